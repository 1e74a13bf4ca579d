"""Versions switch at once, stay readable, and of two writers one is told that it was too late."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import ConcurrentChangeError, InvalidInputError, StoreError, StoreExistsError
from semistream.master import LAYOUTS, Master, operation, storage
from semistream.master.storage import LocalStorage


def table(*ids: int, mark: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([mark] * len(ids), pa.string())})


@pytest.fixture(params=LAYOUTS)
def master(request, tmp_path) -> Master:
    return ss.build_master(table(1, 2, 3), tmp_path / "m", key="id", layout=request.param)


def ids(rows: list[dict]) -> list[int]:
    return [row["id"] for row in rows]


def test_every_version_can_be_opened(master, rows_of):
    second = master.append(table(4))
    third = second.delete(pa.table({"id": [1]}))
    assert [master.version, second.version, third.version] == [1, 2, 3]
    assert [m.manifest.operation for m in (master, second, third)] == ["build", "append", "delete"]
    for opener in (lambda v: ss.open_master(master.path, version=v), master.at_version, third.at_version):
        assert [ids(rows_of(opener(v))) for v in (1, 2, 3)] == [[1, 2, 3], [1, 2, 3, 4], [2, 3, 4]]
    assert ss.open_master(master.path).version == 3
    assert master.versions() == third.versions() == [1, 2, 3]


def test_refresh_gives_the_current_version_or_the_very_object(master):
    assert master.refresh() is master
    changed = master.append(table(4))
    assert master.refresh() == changed
    assert changed.refresh() is changed
    assert master.version == 1, "what was opened stays as it is"


def test_a_change_applies_to_what_is_current(master, rows_of):
    master.append(table(4))
    assert ids(rows_of(master.append(table(5)))) == [1, 2, 3, 4, 5]


def test_an_unknown_version_names_those_there_are(master):
    master.append(table(4))
    for version in (0, 3, -1):
        with pytest.raises(StoreError, match=rf"opening version {version} of .*found versions 1, 2\."):
            ss.open_master(master.path, version=version)
        with pytest.raises(StoreError, match="found versions 1, 2"):
            master.at_version(version)
    with pytest.raises(InvalidInputError, match=r"opening version 2 .*found a str"):
        ss.open_master(master.path, version="2")


def test_replace_makes_a_version_of_other_columns(tmp_path, rows_of):
    old = ss.build_master(table(1), tmp_path / "m", key="id")
    with pytest.raises(
        StoreExistsError, match=r"building a master at .*/m: found a store with version 1\. .*replace"
    ):
        ss.build_master(table(2), tmp_path / "m", key="id")
    new = ss.build_master(
        pa.table({"k": ["x"]}), tmp_path / "m", key="k", layout="heap", if_exists="replace", page_bytes=4096
    )
    assert (new.version, new.layout, new.page_bytes, new.manifest.operation) == (2, "heap", 4096, "replace")
    assert rows_of(ss.open_master(tmp_path / "m")) == [{"k": "x"}]
    assert rows_of(old) == [{"id": 1, "v": "old"}]
    assert rows_of(new.append(pa.table({"k": ["y"]}))) == [{"k": "x"}, {"k": "y"}]


def test_replace_of_nothing_is_a_build(tmp_path):
    master = ss.build_master(table(1), tmp_path / "m", key="id", if_exists="replace")
    assert (master.version, master.manifest.operation) == (1, "build")


def test_an_empty_directory_may_become_a_store(tmp_path, rows_of):
    (tmp_path / "m").mkdir()
    assert ids(rows_of(ss.build_master(table(1), tmp_path / "m", key="id"))) == [1]


WRITERS = {
    "append": lambda master: master.append(table(7)),
    "upsert": lambda master: master.upsert(table(3, 8)),
    "delete": lambda master: master.delete(table(1)),
    "replace": lambda master: ss.build_master(table(6), master.path, key="id", if_exists="replace"),
}


@pytest.mark.parametrize("rival", ["append", "replace"])
@pytest.mark.parametrize("late", WRITERS)
def test_of_two_writers_one_is_too_late(master, rows_of, tree_of, monkeypatch, rival, late):
    """The rival's version appears after the late writer has read what is current, and before it commits."""
    root = Path(master.path)
    won = {}
    commit = operation.Operation.commit

    def too_late(self, manifest):
        if not won:
            won["now"] = True
            WRITERS[rival](master)
            won["tree"] = {
                name: data for name, data in tree_of(root).items() if not name.startswith(self.folder)
            }
        commit(self, manifest)

    monkeypatch.setattr(operation.Operation, "commit", too_late)
    with pytest.raises(ConcurrentChangeError, match=r"found .*refresh\(\) and try again"):
        WRITERS[late](master)

    assert tree_of(root) == won["tree"], "nothing of the late writer is left"
    current = ss.open_master(root)
    assert current.version == 2
    assert ids(rows_of(current)) == ([1, 2, 3, 7] if rival == "append" else [6])
    assert WRITERS[late](master).version == 3, "and it may try again"


def test_a_writer_is_too_late_for_a_version_that_was_vacuumed_already(master, rows_of, monkeypatch):
    """Its number is free again, but newer versions are there: the change must not be lost behind them."""
    commit = operation.Operation.commit
    slow = []

    def slowly(self, manifest):
        if not slow:
            slow.append(manifest.version)
            newer = master.append(table(7)).append(table(8))
            newer.vacuum(keep_for=timedelta(0))
            assert master.versions() == [3]
        commit(self, manifest)

    monkeypatch.setattr(operation.Operation, "commit", slowly)
    with pytest.raises(ConcurrentChangeError, match=r"making version 2 of .*found version 3"):
        master.append(table(9))
    assert master.versions() == [3]
    assert set(ids(rows_of(master.refresh()))) == {1, 2, 3, 7, 8}


def test_many_writers_lose_no_change(tmp_path, rows_of):
    """Four threads append one row each, again and again until it is in: each row is there once."""
    master = ss.build_master(table(0), tmp_path / "m", key="id")
    refused = []

    def writer(number: int) -> None:
        for turn in range(3):
            while True:
                try:
                    master.append(table(number * 10 + turn))
                    break
                except ConcurrentChangeError as error:
                    refused.append(error)

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    current = master.refresh()
    assert ids(rows_of(current)) == sorted([0, *(n * 10 + turn for n in range(1, 5) for turn in range(3))])
    assert current.version == 13
    # Those who were refused left nothing: every file belongs to a version.
    known = {name for v in current.versions() for name in current.at_version(v).manifest.files()}
    assert {s.name for s in current.storage.list("pages")} == known


def test_a_reader_meets_only_whole_versions(tmp_path, monkeypatch, rows_of):
    """Opened at every step of a change, a store is either the old version or the new one."""
    master = ss.build_master(table(1, 2), tmp_path / "m", key="id")
    seen = []

    def look(*_):
        seen.append(ids(rows_of(ss.open_master(tmp_path / "m"))))

    for name in ("write", "close"):
        real = getattr(storage._LocalUpload, name)

        def watched(self, *args, real=real):
            look()
            real(self, *args)
            look()

        monkeypatch.setattr(storage._LocalUpload, name, watched)
    master.upsert(table(2, 3))
    look()
    assert len(seen) > 8
    assert seen == [[1, 2]] * (len(seen) - 1) + [[1, 2, 3]]


@pytest.mark.parametrize("moment", ["sync", "cleanup"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_after_the_switch_does_not_take_the_version_back(
    master, rows_of, monkeypatch, moment, error
):
    """Once the manifest is there readers may use the version: its files must stay whatever happens to the writer."""
    linked = []
    link, walk, sync = storage.os.link, LocalStorage.list, storage._sync

    def link_then_fail(*args):
        link(*args)
        linked.append(args)

    def fail_after_link(real):
        def failing(*args):
            if linked and linked[0] != "failed":
                linked[0] = "failed"
                raise error("after the switch")
            return real(*args)

        return failing

    monkeypatch.setattr(storage.os, "link", link_then_fail)
    if moment == "sync":
        monkeypatch.setattr(storage, "_sync", fail_after_link(sync))
    else:
        monkeypatch.setattr(LocalStorage, "list", fail_after_link(walk))
    try:
        master.append(table(4))
    except (KeyboardInterrupt, OSError) as raised:
        assert "after the switch" in str(raised)  # noqa: PT017 - whether it is raised depends on the moment
    monkeypatch.undo()
    assert linked == ["failed"]
    current = ss.open_master(master.path)
    assert current.version == 2
    assert ids(rows_of(current)) == [1, 2, 3, 4]
    assert current.verify().damaged == ()


def test_a_first_build_that_fails_does_not_take_the_claim_of_another(tmp_path, rows_of):
    """Two builds at one new path: the second fails while the first, which claimed it, has written nothing yet."""

    def failing():
        yield table(1).to_batches()[0]
        raise RuntimeError("second")

    def other():
        with pytest.raises(RuntimeError, match="second"):
            ss.build_master(
                pa.RecordBatchReader.from_batches(table(1).schema, failing()), tmp_path / "m", key="id"
            )
        yield table(2).to_batches()[0]

    source = pa.RecordBatchReader.from_batches(table(2).schema, other())
    ss.build_master(source, tmp_path / "m", key="id")
    assert ids(rows_of(ss.open_master(tmp_path / "m"))) == [2]


def test_the_claim_is_made_again_if_it_was_given_up(tmp_path, rows_of):
    """The build that claimed the path fails last-but-one: the other one still makes a store that opens."""

    def first():
        inner = pa.RecordBatchReader.from_batches(table(2).schema, second())
        ss.build_master(inner, tmp_path / "m", key="id")
        raise RuntimeError("the one that claimed it")
        yield

    def second():
        (tmp_path / "m" / "semistream-master.json").unlink()
        yield table(2).to_batches()[0]

    with pytest.raises(RuntimeError, match="claimed"):
        ss.build_master(pa.RecordBatchReader.from_batches(table(1).schema, first()), tmp_path / "m", key="id")
    assert ids(rows_of(ss.open_master(tmp_path / "m"))) == [2]


def test_new_directories_are_made_durable_with_their_names(tmp_path, monkeypatch):
    """A power cut must not lose the directory that holds the pages while the manifest that names them stays."""
    synced = set()
    sync = storage._sync

    def watched(path):
        synced.add(Path(path))
        sync(path)

    monkeypatch.setattr(storage, "_sync", watched)
    master = ss.build_master(table(1), tmp_path / "a" / "m", key="id")
    root = tmp_path / "a" / "m"
    folders = {(root / name).parent for name in master.manifest.files()}
    assert synced >= {tmp_path, tmp_path / "a", root, root / "pages", root / "versions", *folders}


def test_what_a_master_says_of_itself(tmp_path):
    master = ss.build_master(table(*range(3000)), tmp_path / "m", key=["id", "v"], page_bytes="8KiB")
    assert repr(master).startswith(
        f"Master('{tmp_path / 'm'}', version=1, key=id, v, layout=key, rows=3,000, pages="
    )
    assert master.page_bytes == 8192
    assert master.nbytes == 8192 * master.pages
    assert master.key == ("id", "v")
    assert master.schema == table().schema
    assert master.manifest.columns == ("id: int64", "v: string")
