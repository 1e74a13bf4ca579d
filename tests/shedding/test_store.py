"""The store of shed tuples: oldest first, whole files only, nothing removed that is still needed."""

from __future__ import annotations

import errno
import json
import math
import stat

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError, NoSpaceError, StoreError
from semistream.shedding import ShedStore
from semistream.shedding import store as stores

SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string()})


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.record_batch({"n": numbers, "s": [f"tuple {n}" for n in numbers]}, schema=SCHEMA)


def taken(store: ShedStore, most: int = 1000) -> list[int]:
    out: list[int] = []
    while (some := store.take(most)) is not None:
        assert 0 < len(some) <= most
        assert some["s"].to_pylist() == [f"tuple {n}" for n in some["n"].to_pylist()]
        out += some["n"].to_pylist()
    return out


@given(drawn=st.data())
@settings(max_examples=60, deadline=None)
def test_what_goes_in_comes_out_in_order_and_memory_is_bounded(drawn, tmp_path_factory):
    buffer_bytes = drawn.draw(st.sampled_from([200, 2000, 100_000]))
    store = ShedStore.open(tmp_path_factory.mktemp("s") / "shed", SCHEMA, buffer_bytes=buffer_bytes)
    put, got = 0, []
    for _ in range(drawn.draw(st.integers(1, 20))):
        if drawn.draw(st.booleans()):
            count = drawn.draw(st.integers(1, 60))
            store.put(batch(put, count))
            put += count
        else:
            some = store.take(drawn.draw(st.integers(1, 40)))
            got += [] if some is None else some["n"].to_pylist()
        assert store.tuples == put - len(got)
        assert store.nbytes <= buffer_bytes or buffer_bytes == 200  # where a tuple is more than its share
    got += taken(store)
    assert got == list(range(put))
    store.settle(math.inf, 0)
    store.close()
    assert not store.folder.exists()


def test_files_are_private_and_any_tool_can_read_them(tmp_path):
    store = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=1000)
    store.put(batch(0, 100))
    assert stat.S_IMODE((tmp_path / "shed").stat().st_mode) == 0o700
    (file,) = (tmp_path / "shed").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pa.ipc.open_file(file) as reader:
        assert reader.read_all()["n"].to_pylist() == list(range(100))


def test_a_file_stays_until_its_tuples_are_answered(tmp_path):
    store = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=100)
    store.put(batch(0, 50))
    store.put(batch(50, 50))
    first, second = sorted((tmp_path / "shed").iterdir())
    while (store.take(1))["n"].to_pylist() != [49]:
        pass
    store.settle(advances=10, bound=5)  # they are offered, and answered after five more advances
    assert first.exists()
    store.settle(advances=14, bound=99)
    assert first.exists()
    store.settle(advances=15, bound=99)
    assert not first.exists()
    assert second.exists()


def crashed(folder) -> None:
    """What a crash leaves of a file that was being written."""
    (folder / "shed-000000000099.arrow.part").write_bytes(b"ARROW1\0\0half a file")


def test_resume_reads_on_where_the_snapshot_was_taken(tmp_path):
    folder = tmp_path / "shed"
    store = ShedStore.open(folder, SCHEMA, buffer_bytes=400)
    for start in range(0, 100, 20):
        store.put(batch(start, 20))
    store.flush()
    assert [store.take(1)["n"][0].as_py() for _ in range(7)] == list(range(7))
    marked = store.mark()
    # What happens after the snapshot must not matter: more is put away, some is answered, then a crash.
    store.put(batch(100, 50))
    store.flush()
    while store.take(30) is not None:
        store.settle(math.inf, 0)
    crashed(folder)
    again = ShedStore.open(folder, SCHEMA, buffer_bytes=400, resume=marked)
    assert again.tuples == 93
    assert taken(again) == list(range(7, 100))
    assert not list(folder.glob("*.part"))
    # And once more: the snapshot is still the last one that is safe.
    again.settle(math.inf, 0)
    assert taken(ShedStore.open(folder, SCHEMA, buffer_bytes=400, resume=marked)) == list(range(7, 100))


def test_files_go_when_two_later_snapshots_are_taken(tmp_path):
    store = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10)
    store.put(batch(0, 20))
    store.mark()
    taken(store)
    store.settle(math.inf, 0)
    assert list((tmp_path / "shed").iterdir())
    store.mark()  # the first may still be the one that is safe
    assert list((tmp_path / "shed").iterdir())
    store.mark()
    assert not list((tmp_path / "shed").iterdir())


def test_a_snapshot_without_shed_tuples_takes_none_of_those_that_came_later(tmp_path):
    store = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10)
    marked = store.mark()
    store.put(batch(0, 20))
    again = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10, resume=marked)
    assert again.tuples == 0
    assert not list((tmp_path / "shed").iterdir())


def test_tuples_of_another_join_are_neither_mixed_in_nor_removed(tmp_path):
    ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10).put(batch(0, 20))
    with pytest.raises(StoreError, match="tuples that another join has shed"):
        ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10)
    assert len(list((tmp_path / "shed").iterdir())) == 1


def test_a_file_that_is_gone_or_damaged_is_no_empty_one(tmp_path):
    store = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10)
    store.put(batch(0, 20))
    marked = store.mark()
    (file,) = (tmp_path / "shed").iterdir()
    file.write_bytes(file.read_bytes()[:-40])
    again = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10, resume=marked)
    with pytest.raises(StoreError, match="the shed tuples in"):
        again.take(5)
    file.unlink()
    with pytest.raises(StoreError, match=r"found no shed-000000000000\.arrow"):
        ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10, resume=marked)


@pytest.mark.parametrize(
    "marked",
    [
        "{",
        json.dumps([{"name": "../../etc/passwd", "rows": 1}]),
        json.dumps([{"name": "shed-000000000000.arrow", "rows": -1}]),
        json.dumps([{"name": "shed-000000000000.arrow", "rows": "many"}]),
        json.dumps([{"other": 1}]),
        json.dumps(7),
    ],
)
def test_what_no_snapshot_says_is_refused(marked, tmp_path):
    with pytest.raises(InvalidInputError, match=r"Pass what snapshot\(\) gave"):
        ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=10, resume=marked)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    store = ShedStore.open(tmp_path / "shed", SCHEMA, buffer_bytes=100_000)
    store.put(batch(0, 20))

    def full(*_args) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stores.os, "fsync", full)
    with pytest.raises(NoSpaceError, match="Give shed_to= a disk with room"):
        store.flush()
    monkeypatch.undo()
    assert not list((tmp_path / "shed").iterdir())
    assert taken(store) == list(range(20))
