"""Pins: every task of a micro-batch, whenever and wherever it runs, is answered from one version; vacuum keeps that version."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import semistream as ss
from semistream.errors import InvalidInputError, NotAStoreError, StoreError
from semistream.master import storage
from semistream.master.pins import KEPT_BATCHES, KEPT_FOR, pin, pinned_versions
from semistream.master.storage import ObjectStorage
from semistream.master.vacuum import vacuum

QUERY = "0a1b2c3d-0000-4000-8000-123456789abc"
OTHER = "ffffffff-0000-4000-8000-123456789abc"
AT_ONCE = timedelta(0)


def table(*ids: int, value: str = "x") -> pa.Table:
    return pa.table({"id": ids, "v": [value] * len(ids)})


@pytest.fixture
def master(tmp_path) -> ss.Master:
    return ss.build_master(table(*range(10)), tmp_path / "m", key="id")


def pin_file(master: ss.Master, batch: int, query: str = QUERY) -> Path:
    return Path(master.path) / "pins" / query / f"{batch:012d}.json"


def age(path: Path, by: timedelta) -> None:
    at = (datetime.now(UTC) - by).timestamp()
    os.utime(path, (at, at))


class TestPinning:
    def test_the_first_task_takes_the_current_version_and_the_others_go_by_it(self, master):
        assert pin(master.storage, QUERY, 0) == 1
        newer = master.upsert(table(1, value="new"))
        assert newer.version == 2
        assert pin(master.storage, QUERY, 0) == 1, "a replay"
        assert pin(master.storage, QUERY, 1) == 2, "the next micro-batch"
        assert pin(master.storage, OTHER, 0) == 2, "another query"

    def test_a_pin_outlives_the_process(self, master):
        pin(master.storage, QUERY, 7)
        master.upsert(table(1, value="new"))
        assert json.loads(pin_file(master, 7).read_text()) == {"version": 1}
        assert pin(ss.open_master(master.path).storage, QUERY, 7) == 1

    def test_tasks_that_race_agree(self, master):
        """All tasks ask at once while the master changes under them; whoever asks gets what the file says."""
        rounds, tasks = 20, 8
        for batch in range(rounds):
            start = threading.Barrier(tasks + 1)
            got: list[int] = []

            def task(batch=batch, start=start, got=got):
                start.wait()
                got.append(pin(ss.open_master(master.path).storage, QUERY, batch))

            threads = [threading.Thread(target=task) for _ in range(tasks)]
            for thread in threads:
                thread.start()
            start.wait()
            master.upsert(table(1, value=str(batch)))
            for thread in threads:
                thread.join()
            assert len(got) == tasks
            assert set(got) == {json.loads(pin_file(master, batch).read_text())["version"]}
        assert [
            path.name for path in Path(master.path, "pins", QUERY).iterdir() if path.suffix != ".json"
        ] == []

    def test_the_loser_of_a_race_takes_the_winners_version(self, master, monkeypatch):
        """Between its look and its write another task pins; it saw the master as it was before a change, or after."""
        local, others = type(master.storage), []
        claim = local.claim

        def late(self, name, data):
            monkeypatch.setattr(local, "claim", claim)
            others.append(pin(self, QUERY, 3, version=1))
            claim(self, name, data)

        newer = master.upsert(table(1))
        monkeypatch.setattr(local, "claim", late)
        assert pin(newer.storage, QUERY, 3) == 1
        assert others == [1]

    def test_old_pins_make_way(self, master):
        for batch in (0, 1, KEPT_BATCHES, KEPT_BATCHES + 1):
            pin(master.storage, QUERY, batch)
        assert sorted(path.name for path in Path(master.path, "pins", QUERY).iterdir()) == [
            f"{KEPT_BATCHES:012d}.json",
            f"{KEPT_BATCHES + 1:012d}.json",
        ]

    def test_pins_are_no_part_of_the_master(self, master, rows_of):
        before = rows_of(master)
        pin(master.storage, QUERY, 0)
        assert master.refresh().version == 1
        assert rows_of(ss.open_master(master.path)) == before
        assert master.upsert(table(1)).version == 2
        assert ss.open_master(master.path).verify().damaged == ()

    @pytest.mark.parametrize(
        "query", ["", "../up", "a/b", "a.b", "a" * 65, "é", "a b", "a\n", ".", "..", "a\x00b", "/etc"]
    )
    def test_a_query_id_that_could_be_a_path_is_refused(self, master, tree_of, query):
        before = tree_of(Path(master.path).parent)
        with pytest.raises(InvalidInputError, match="pinning micro-batch 0 of query"):
            pin(master.storage, query, 0)
        assert tree_of(Path(master.path).parent) == before

    def test_a_negative_micro_batch_is_refused(self, master):
        with pytest.raises(InvalidInputError, match="micro-batch -1"):
            pin(master.storage, QUERY, -1)

    @pytest.mark.parametrize(
        "content",
        [
            b"{",
            b"[]",
            b"3",
            b"{}",
            b'{"version": null}',
            b'{"version": "3"}',
            b'{"version": 0}',
            b'{"version": 1.5}',
            b"\xff\xfe",
            b'{"version": true}',
            b"[" * 100_000,
        ],
    )
    def test_a_damaged_pin_is_said_not_guessed(self, master, content):
        """Guessing the current version would answer a replay from other rows."""
        pin_file(master, 0).parent.mkdir(parents=True)
        pin_file(master, 0).write_bytes(content)
        with pytest.raises(StoreError, match=rf"pin pins/{QUERY}/000000000000\.json of .*Remove the file"):
            pin(master.storage, QUERY, 0)

    @pytest.mark.parametrize("left", [b"", bytes(14)], ids=["nothing", "zeros"])
    def test_a_pin_that_was_lost_with_the_power_is_made_again(self, master, left):
        """No answer of its micro-batch has left: they wait until the pin is safe."""
        pin_file(master, 3).parent.mkdir(parents=True)
        pin_file(master, 3).write_bytes(left)
        assert pin(master.storage, QUERY, 3) == 1
        newer = master.upsert(table(1))
        assert pin(newer.storage, QUERY, 3) == 1, "a replay"
        again = pin_file(master, 3).with_name("000000000003-1.json")
        again.write_bytes(b"")
        assert pin(newer.storage, QUERY, 3) == 2, "lost once more"
        assert json.loads(again.with_name("000000000003-2.json").read_text()) == {"version": 2}

    def test_a_pin_can_be_made_safe_while_the_micro_batch_is_answered(self, master, monkeypatch):
        synced: list[str] = []
        later: list = []
        fsync = os.fsync
        pin(master.storage, QUERY, 0)  # makes the directory

        def noted(descriptor):
            synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", noted)
        assert pin(master.storage, QUERY, 1, meanwhile=later.append) == 1
        assert (synced, len(later)) == ([], 1)
        assert pin(master.upsert(table(1)).storage, QUERY, 1) == 1, "seen by everybody"
        del synced[:]
        later.pop()()
        safe = [str(pin_file(master, 1)), str(pin_file(master, 1).parent)]
        assert synced == safe
        del synced[:]
        assert pin(master.storage, QUERY, 1, meanwhile=later.append) == 1
        later.pop()()
        assert synced == safe, "who made it may not have lived to see it safe"
        del synced[:]
        pin(master.storage, QUERY, 2)
        assert synced == [str(pin_file(master, 2)), str(pin_file(master, 2).parent)]

    def test_a_pin_whose_write_failed_is_written_anew(self, master, monkeypatch):
        """The kernel tells of it once; the next who asks would hear that all is well."""
        tried, fsync = [], os.fsync

        def fails_once(descriptor):
            tried.append(os.fstat(descriptor).st_ino)
            if len(tried) == 1:
                raise OSError(5, "Input/output error")
            fsync(descriptor)

        pin(master.storage, QUERY, 2)  # makes the directory
        monkeypatch.setattr(os, "fsync", fails_once)
        assert pin(master.storage, QUERY, 3) == 1
        safe = pin_file(master, 3).stat().st_ino
        assert safe != tried[0]
        assert safe in tried
        assert json.loads(pin_file(master, 3).read_text()) == {"version": 1}
        assert [path.suffix for path in pin_file(master, 3).parent.iterdir()] == [".json", ".json"]

    def test_an_object_that_is_being_written_is_waited_for(self, master, monkeypatch):
        """Some object stores show it empty meanwhile."""
        store = ObjectStorage(pafs.LocalFileSystem(), master.path, master.path)
        pin_file(master, 3).parent.mkdir(parents=True)
        pin_file(master, 3).write_bytes(b"")
        waited: list[float] = []

        def sleep(seconds):
            waited.append(seconds)
            if len(waited) == 2:
                pin_file(master, 3).write_text('{"version": 1}')

        monkeypatch.setattr(storage.time, "sleep", sleep)
        master.upsert(table(1))
        assert pin(store, QUERY, 3) == 1
        assert len(waited) == 2
        pin_file(master, 4).write_bytes(b"")
        with pytest.raises(StoreError, match="Remove the file"):  # whose writer died
            pin(store, QUERY, 4)
        assert sum(waited) < 5

    def test_a_pin_to_a_version_that_is_gone_is_told(self, master):
        pin(master.storage, QUERY, 0)
        newer = master.upsert(table(1))
        pin(master.storage, QUERY, 1)
        pin(master.storage, QUERY, 2)
        newer.vacuum(keep_for=AT_ONCE)  # only the last two micro-batches may be replayed
        version = pin(newer.storage, QUERY, 0)
        with pytest.raises(StoreError, match=r"opening version 1 of .*found versions 2"):
            newer.at_version(version)

    def test_no_store_no_pin(self, master):
        gone = master.storage
        for path in sorted(Path(master.path).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        with pytest.raises(NotAStoreError, match="found nothing"):
            pin(gone, QUERY, 0)
        assert not Path(master.path, "pins").exists()


class TestVacuum:
    def test_a_version_that_may_be_replayed_is_kept(self, master, rows_of):
        before = rows_of(master)
        pin(master.storage, QUERY, 0)
        newer = master.upsert(table(1, value="new"))
        assert newer.vacuum(keep_for=AT_ONCE).versions == ()
        assert rows_of(newer.at_version(pin(newer.storage, QUERY, 0))) == before

    def test_only_the_last_micro_batches_of_a_query_count(self, master):
        pin(master.storage, QUERY, 0)
        newer = master.upsert(table(1, value="new"))
        pin(newer.storage, QUERY, 1)
        assert newer.vacuum(keep_for=AT_ONCE).versions == (), "micro-batch 0 may still be replayed"
        pin(newer.storage, QUERY, 2)
        assert newer.vacuum(keep_for=AT_ONCE).versions == (1,)

    def test_every_query_counts_for_itself(self, master):
        pin(master.storage, OTHER, 0)
        newer = master.upsert(table(1, value="new"))
        for batch in range(5):
            pin(newer.storage, QUERY, batch)
        assert newer.vacuum(keep_for=AT_ONCE).versions == ()

    def test_micro_batches_are_ordered_by_number_not_by_name_or_time(self, master):
        pin(master.storage, QUERY, 999)
        newer = master.upsert(table(1, value="new"))
        for batch in (1001, 1000):
            pin(newer.storage, QUERY, batch)
        age(pin_file(newer, 1000), timedelta(days=2))
        assert newer.vacuum(keep_for=AT_ONCE).versions == (1,)

    def test_a_pin_that_was_made_again_keeps_its_version(self, master):
        for batch in (0, 1):
            pin_file(master, batch).parent.mkdir(parents=True, exist_ok=True)
            pin_file(master, batch).write_bytes(b"")
            pin(master.storage, QUERY, batch)
        newer = master.upsert(table(1, value="new"))
        pin(newer.storage, QUERY, 2)
        assert newer.vacuum(keep_for=AT_ONCE).versions == (), "micro-batch 1 may still be replayed"
        pin(newer.storage, QUERY, 3)
        assert newer.vacuum(keep_for=AT_ONCE).versions == (1,)

    def test_pins_of_a_query_that_is_long_gone_go_with_their_version(self, master):
        pin(master.storage, QUERY, 0)
        pin(master.storage, OTHER, 0)
        newer = master.upsert(table(1, value="new"))
        pin(newer.storage, OTHER, 1)
        pin(newer.storage, OTHER, 2)
        now = datetime.now(UTC)
        before = vacuum(newer.storage, keep_for=AT_ONCE, now=now + KEPT_FOR - timedelta(minutes=1))
        assert before.versions == ()
        assert pin_file(master, 0).exists()
        after = vacuum(newer.storage, keep_for=AT_ONCE, now=now + KEPT_FOR + timedelta(minutes=1))
        assert after.versions == (1,)
        assert not Path(master.path, "pins", QUERY).exists(), "nor an empty directory"

    def test_a_query_lives_as_long_as_its_last_pin(self, master):
        pin(master.storage, QUERY, 0)
        age(pin_file(master, 0), KEPT_FOR + timedelta(days=1))
        pin(master.storage, QUERY, 1)
        newer = master.upsert(table(1, value="new"))
        assert newer.vacuum(keep_for=AT_ONCE).versions == ()
        assert pin_file(master, 0).exists()

    def test_pinned_pages_are_read_as_they_were(self, master, rows_of):
        """The version is kept with its files, those it shares with none included."""
        pin(master.storage, QUERY, 0)
        expected = rows_of(master)
        newest = master.upsert(table(*range(10), value="new")).upsert(table(*range(10), value="newer"))
        assert newest.vacuum(keep_for=AT_ONCE).versions == (2,)
        assert rows_of(newest.at_version(1)) == expected
        assert newest.at_version(1).verify().damaged == ()

    def test_a_damaged_pin_stops_vacuum_before_anything_is_removed(self, master, tree_of):
        newer = master.upsert(table(1, value="new"))
        pin_file(newer, 0).parent.mkdir(parents=True)
        pin_file(newer, 0).write_text("{}")
        before = tree_of(Path(master.path))
        with pytest.raises(StoreError, match="Remove the file"):
            newer.vacuum(keep_for=AT_ONCE)
        assert tree_of(Path(master.path)) == before

    @pytest.mark.parametrize(
        "name",
        [
            f"pins/{QUERY}/.000000000001.json.{'0' * 32}.semistream-aside",  # a pin being written, or a task that died
            f"pins/{QUERY}/.nfs0000000000000001",
            "pins/README.md",
        ],
    )
    def test_other_files_beside_pins_are_no_pins(self, master, name):
        pin(master.storage, QUERY, 0)
        newer = master.upsert(table(1, value="new"))
        path = Path(master.path, name)
        path.write_bytes(b"")
        assert newer.vacuum(keep_for=AT_ONCE).versions == ()
        assert pinned_versions(newer.storage)[0] == {1}

    def test_pins_that_nobody_replays_do_not_add_up(self, master):
        """Where micro-batches without tuples pin nothing, older pins are not removed one by one."""
        for batch in range(0, 4 * KEPT_BATCHES, 3):
            pin(master.storage, QUERY, batch)
        master.vacuum()
        assert len(list(Path(master.path, "pins", QUERY).iterdir())) <= KEPT_BATCHES
