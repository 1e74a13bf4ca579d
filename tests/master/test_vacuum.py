"""Vacuum removes what no reader may need, and nothing else."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import InvalidInputError, StoreError
from semistream.master import LAYOUTS
from semistream.master.vacuum import vacuum

HOUR = timedelta(hours=1)


def table(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": ["x" * 900] * len(ids)})


def ids(master: ss.Master) -> list[int]:
    return [i for batch in master.scan() for i in batch.column("id").to_pylist()]


@pytest.fixture(params=LAYOUTS)
def versions(request, tmp_path) -> list[ss.Master]:
    """Three versions that share pages: the second keeps most of the first, the third most of the second."""
    first = ss.build_master(
        table(*range(40)), tmp_path / "m", key="id", layout=request.param, page_bytes=4096
    )
    second = first.upsert(table(0, 50))
    return [first, second, second.append(table(60))]


def files_in(root: str | Path) -> set[str]:
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file()}


def expected_files(masters: list[ss.Master]) -> set[str]:
    names = {"semistream-master.json"}
    for master in masters:
        names |= master.manifest.files() | {f"versions/{master.version:08d}.json"}
    return names


def test_nothing_goes_before_its_time(versions, tree_of):
    current = versions[-1]
    before = tree_of(Path(current.path))
    done = current.vacuum()
    assert (done.versions, done.files, done.bytes) == ((), 0, 0)
    assert tree_of(Path(current.path)) == before


def test_old_versions_go_and_shared_pages_stay(versions):
    current = versions[-1]
    expected = ids(current)
    before = files_in(current.path)
    sizes = {name: Path(current.path, name).stat().st_size for name in before}

    done = current.vacuum(keep_for=timedelta(0))

    assert done.versions == (1, 2)
    assert files_in(current.path) == expected_files([current])
    gone = before - files_in(current.path)
    assert done.files == len(gone)
    assert done.bytes == sum(size for name, size in sizes.items() if name in gone and "versions/" not in name)
    assert current.versions() == [3]
    assert ids(current) == ids(ss.open_master(current.path)) == expected
    assert current.verify().damaged == ()
    with pytest.raises(StoreError, match=r"opening version 1 of .*found versions 3\. .*vacuum"):
        current.at_version(1)


def test_a_version_is_kept_until_the_time_has_passed_since_it_was_replaced(versions):
    """However old it is: a reader may have opened it a moment before the next one came."""
    _, second, third = versions
    replaced_at = third.manifest.created_at
    storage = third.storage
    kept = vacuum(storage, keep_for=HOUR, now=second.manifest.created_at + HOUR - timedelta(microseconds=1))
    assert kept.versions == ()
    assert vacuum(storage, keep_for=HOUR, now=second.manifest.created_at + HOUR).versions == (1,)
    assert vacuum(storage, keep_for=HOUR, now=replaced_at + HOUR - timedelta(microseconds=1)).versions == ()
    assert ids(second) == ids(second.at_version(2)), "a reader of a kept version goes on"
    assert vacuum(storage, keep_for=HOUR, now=replaced_at + HOUR).versions == (2,)
    assert files_in(third.path) == expected_files([third])
    far = vacuum(storage, keep_for=HOUR, now=datetime(2999, 1, 1, tzinfo=UTC))
    assert (far.versions, far.files) == ((), 0), "the current version stays for ever"


def leftovers(root: Path, age: timedelta) -> list[Path]:
    """What killed operations leave behind: pages, tables, spilled rows, manifests written aside."""
    hexadecimal = "0123456789abcdef" * 2
    paths = [
        root / "pages" / hexadecimal / f"{hexadecimal}.arrow",
        root / "pages" / hexadecimal / f"table-{hexadecimal}.arrow",
        root / "scratch" / hexadecimal / "run-0.arrow",
        root / "versions" / f".00000004.json.{hexadecimal}.semistream-aside",
        root / f".semistream-master.json.{hexadecimal}.semistream-aside",
    ]
    at = (datetime.now(UTC) - age).timestamp()
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left behind")
        os.utime(path, (at, at))
    return paths


def test_leftovers_go_once_they_are_old(versions):
    current = versions[-1]
    root = Path(current.path)
    old = leftovers(root, age=2 * HOUR)
    assert vacuum(current.storage, keep_for=3 * HOUR).files == 0, "an operation may still be at work on them"
    assert all(path.exists() for path in old)
    done = vacuum(current.storage, keep_for=HOUR)
    assert (done.versions, done.files, done.bytes) == ((), 5, 5 * len(b"left behind"))
    assert files_in(root) == expected_files(versions)
    assert not old[0].parent.exists()
    assert not old[2].parent.exists()


def test_leftovers_count_from_now_as_given(versions):
    current = versions[-1]
    leftovers(Path(current.path), age=timedelta(0))
    assert vacuum(current.storage, keep_for=HOUR, now=datetime.now(UTC)).files == 0
    assert vacuum(current.storage, keep_for=HOUR, now=datetime.now(UTC) + 2 * HOUR).files > 5


def test_the_next_vacuum_finishes_one_that_was_interrupted(versions, monkeypatch):
    current = versions[-1]
    expected = ids(current)
    deleted = []
    delete = type(current.storage).delete

    def some(self, name):
        if len(deleted) == 3:
            raise KeyboardInterrupt
        deleted.append(name)
        delete(self, name)

    monkeypatch.setattr(type(current.storage), "delete", some)
    with pytest.raises(KeyboardInterrupt):
        current.vacuum(keep_for=timedelta(0))
    monkeypatch.undo()
    assert deleted[:2] == ["versions/00000001.json", "versions/00000002.json"], (
        "what can be opened can be read"
    )
    assert ids(ss.open_master(current.path)) == expected
    current.vacuum(keep_for=timedelta(0))
    assert files_in(current.path) == expected_files([current])
    assert ids(current) == expected


def test_changes_go_on_after_a_vacuum(versions):
    current = versions[-1]
    current.vacuum(keep_for=timedelta(0))
    changed = current.append(table(70))
    assert changed.version == 4
    assert ids(changed)[-1] == 70
    assert changed.versions() == [3, 4]


def test_a_reader_of_a_version_that_is_gone_is_told(versions):
    first, *_, current = versions
    current.vacuum(keep_for=timedelta(0))
    with pytest.raises(StoreError, match=r"table-.*No such file"):
        ids(first)


def test_a_negative_time_is_refused(versions, tree_of):
    before = tree_of(Path(versions[0].path))
    with pytest.raises(InvalidInputError, match=r"keep_for=.*found a negative time.*timedelta\(0\)"):
        versions[-1].vacuum(keep_for=timedelta(seconds=-1))
    assert tree_of(Path(versions[0].path)) == before


def test_a_store_with_a_damaged_manifest_is_left_alone(versions, tree_of):
    """Which pages a version needs is not known, so none may go."""
    current = versions[-1]
    Path(current.path, "versions/00000002.json").write_text("{")
    before = tree_of(Path(current.path))
    with pytest.raises(StoreError, match=r"damaged manifest versions/00000002\.json"):
        current.vacuum(keep_for=timedelta(0))
    assert tree_of(Path(current.path)) == before
