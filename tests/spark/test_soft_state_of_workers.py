"""Soft state in workers: it costs speed when it is lost, never a row."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from damaging import HEADER_BYTES, damages
from enriching import expected, rows_of, table

import semistream as ss
from semistream.joins.registry import Settings
from semistream.spark import softstate, worker
from semistream.spark.enrich import _uid
from semistream.spark.metrics import Counts
from semistream.spark.softstate import SoftState
from semistream.spark.task import Step
from semistream.spark.worker import Enrichment

MASTER = table(k=range(2000), v=[f"value {i}" for i in range(2000)])


@pytest.fixture
def store(tmp_path) -> ss.Master:
    return ss.build_master(MASTER, tmp_path / "master", key="k", page_bytes=4096)


class Counting:
    """In place of Spark's accumulator."""

    def __init__(self) -> None:
        self.added: list[dict] = []

    def add(self, collected: dict) -> None:
        self.added.append(collected)

    def last(self) -> Counts:
        (counted,) = self.added[-1].values()
        return Counts.total(counts for _, counts in counted.tasks.values())


class Worker:
    """A worker's process, as far as it remembers anything: `anew` begins one."""

    def __init__(self, root: Path) -> None:
        self.root, self.counting = root, Counting()

    def anew(self) -> None:
        for kept in worker._kept.values():
            kept.opened.close()
        worker._kept.clear()
        worker._swept.clear()

    def run(self, *steps: Step, keys, at_once: int = 100_000) -> pa.Table:
        """The tuples of a task through the enrichments."""
        batch = pa.RecordBatch.from_pydict(
            {"c0": pa.array(keys, pa.int64()), "c1": pa.array(range(len(keys)))}
        )
        batches = [batch.slice(start, at_once) for start in range(0, len(batch), at_once)]
        found = list(Enrichment(steps, self.counting)(iter(batches)))
        return pa.Table.from_batches(found)

    @property
    def file(self) -> Path:
        (path,) = self.root.glob("semistream-*/*/*.front")
        return path


@pytest.fixture
def process(tmp_path, monkeypatch):
    """One process in place of many, with shared memory of its own and a clock that stands still."""
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(softstate, "_SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr(worker, "_kept", {})
    monkeypatch.setattr(worker, "_swept", [])
    process = Worker(tmp_path / "shm")
    yield process
    process.anew()


def step_of(store: ss.Master, **changes) -> Step:
    given = {
        "label": "m",
        "master": store,
        "on": {"c0": "k"},
        "how": "left",
        "columns": ("v",),
        "algorithm": "chybridjoin",
        "memory_bytes": 1_000_000,
        "disk": "buffered",
        "settings": Settings(front_share=0.05),
        "follows": False,
        "types": (pa.string(),),
    }
    step = Step(uid="", **(given | changes))
    return replace(step, uid=_uid(step))


HOT = [i % 100 for i in range(2000)]  # every key twenty times: all are taken in


def wanted(keys, master: pa.Table = MASTER) -> Counter:
    stream = table(c0=keys, c1=range(len(keys)))
    return expected(stream, master, {"c0": "k"}, "left")


class TestWorkers:
    def test_the_next_worker_goes_on_where_the_last_one_was(self, process, store):
        step = step_of(store)
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)
        assert process.counting.last().front_hits == 0
        process.anew()
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)
        assert process.counting.last().front_hits == len(HOT)

    def test_the_next_worker_knows_all_rows_of_a_key(self, process, tmp_path):
        twice = table(k=[*range(2000)] * 2, v=[f"value {i}" for i in range(4000)])
        step = step_of(ss.build_master(twice, tmp_path / "twice", key="k", page_bytes=4096))
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT, twice)
        process.anew()
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT, twice)
        assert process.counting.last().front_hits == len(HOT)

    @pytest.mark.parametrize("damage", damages())
    def test_whatever_became_of_the_state_rows_are_right(self, process, store, damage):
        step = step_of(store)
        process.run(step, keys=HOT)
        damage(process.file)
        process.anew()
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)
        assert process.counting.last().front_hits == 0, "nothing of it was believed"

    def test_a_state_that_was_removed(self, process, store):
        step = step_of(store)
        process.run(step, keys=HOT)
        SoftState(process.file.parent).remove()
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)  # this worker has its own
        assert process.file.exists(), "published again"
        process.anew()
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)
        assert process.counting.last().front_hits == len(HOT)

    def test_a_state_of_another_size_is_not_taken(self, process, store):
        """Well-formed, with the right checksum and digest, but of other arrays."""
        step = step_of(store)
        process.run(step, keys=HOT)
        said = json.loads(process.file.read_bytes()[:HEADER_BYTES])
        soft = SoftState(process.file.parent)
        loaded = soft.load(step.uid, said["digest"])
        for changed in (
            {**loaded, "uses": loaded["uses"][:-1].copy()},
            {**loaded, "entries": loaded["entries"].astype(np.uint64)},
            {name: array for name, array in loaded.items() if name != "heap"},
        ):
            soft.publish(step.uid, said["digest"], changed)
            process.anew()
            assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)
            assert process.counting.last().front_hits == 0

    def test_another_version_does_not_take_the_state_of_this_one(self, process, store):
        process.run(step_of(store), keys=HOT)
        newer = store.upsert(table(k=range(50), v=["new"] * 50))
        process.anew()
        changed = table(k=range(2000), v=["new"] * 50 + MASTER["v"].to_pylist()[50:])
        assert rows_of(process.run(step_of(newer), keys=HOT)) == wanted(HOT, changed)
        assert process.counting.last().front_hits == 0

    def test_a_worker_that_goes_on_forgets_what_changed(self, process, store):
        process.run(step_of(store), keys=HOT)
        newer = store.upsert(table(k=range(50), v=["new"] * 50))
        changed = table(k=range(2000), v=["new"] * 50 + MASTER["v"].to_pylist()[50:])
        assert rows_of(process.run(step_of(newer), keys=HOT)) == wanted(HOT, changed)
        assert rows_of(process.run(step_of(store), keys=HOT)) == wanted(HOT), "and back: a replay"

    def test_a_worker_settles_once_for_every_join_it_opens_and_every_version_it_moves_to(
        self, process, store, monkeypatch
    ):
        """Else every task is followed by a collection that looks at all there is."""
        settled = []
        monkeypatch.setattr(worker, "settle", lambda: settled.append(1))
        newer = store.upsert(table(k=range(50), v=["new"] * 50))
        for master, times in ((store, 1), (store, 1), (newer, 2), (newer, 2), (store, 3)):
            process.run(step_of(master), keys=HOT)
            assert len(settled) == times
        process.anew()
        process.run(step_of(store), keys=HOT)
        assert len(settled) == 4

    def test_a_store_that_was_built_anew_at_the_same_path(self, process, store):
        process.run(step_of(store), keys=HOT)
        shutil.rmtree(store.path)
        other = table(k=range(2000), v=[f"other {i}" for i in range(2000)])
        rebuilt = ss.build_master(other, store.path, key="k", page_bytes=4096)
        assert rebuilt.version == store.version
        assert rows_of(process.run(step_of(rebuilt), keys=HOT)) == wanted(HOT, other)

    def test_it_is_published_when_much_was_learnt_and_not_too_often(self, process, store, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr(worker.time, "monotonic", lambda: now[0])
        step = step_of(store)
        process.run(step, keys=[1, 1, 2, 2])  # two keys are not worth it
        assert list(process.root.glob("semistream-*/*/*.front")) == []
        process.run(step, keys=HOT)
        first = process.file.stat().st_ino
        process.run(step, keys=[key + 100 for key in HOT])
        assert process.file.stat().st_ino == first, "a moment ago"
        now[0] += 11
        process.run(step, keys=HOT)
        assert process.file.stat().st_ino != first

    def test_where_there_is_no_room_it_is_not_tried_all_the_time(self, process, store, monkeypatch):
        """A container's shared memory is small: writing the state until there is no more room must not be every task's work."""
        tried = []

        def full(*_):
            tried.append(1)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(softstate, "_write", full)
        monkeypatch.setattr(worker.time, "monotonic", lambda: 1000.0)
        for _ in range(5):
            assert rows_of(process.run(step_of(store), keys=HOT)) == wanted(HOT)
        assert len(tried) <= 1

    def test_a_worker_takes_what_another_published_meanwhile(self, process, store):
        step = step_of(store)
        process.run(step, keys=HOT)
        ours = worker._kept.pop(step.uid)
        process.file.unlink()
        process.run(step, keys=[key + 100 for key in HOT])  # another worker, with other keys
        theirs = worker._kept.pop(step.uid)
        worker._kept[step.uid] = ours
        assert rows_of(process.run(step, keys=[key + 100 for key in HOT])) == wanted(
            [key + 100 for key in HOT]
        )
        assert process.counting.last().front_hits == len(HOT)
        theirs.opened.close()

    @pytest.mark.parametrize("algorithm", ["auto", "chybridjoin", "cinlj", "cmeshjoin"])
    @pytest.mark.parametrize("share", [0.02, 0.3])
    def test_a_front_stage_that_is_always_full(self, process, store, algorithm, share):
        """Keys come and go all the time, in and between tasks, workers and states; no tuple gets another's row."""
        step = step_of(store, algorithm=algorithm, memory_bytes=200_000, settings=Settings(front_share=share))
        rng = np.random.default_rng(7)
        for task in range(6):
            keys = ((rng.zipf(1.3, 6_000) + 150 * task) % 2500).tolist()
            assert rows_of(process.run(step, keys=keys, at_once=2_000)) == wanted(keys), task
            if task % 3 == 2:
                process.anew()
        assert process.counting.last().front_hits > 0

    def test_a_task_that_spark_ends_early_leaves_no_tuple_behind(self, process, store):
        for algorithm in ss.ALGORITHMS:
            step = step_of(store, algorithm=algorithm, memory_bytes=300_000)
            batch = pa.RecordBatch.from_pydict({"c0": pa.array(range(1500)), "c1": pa.array(range(1500))})
            before = len(os.listdir("/proc/self/fd"))
            stream = Enrichment((step,), process.counting)(iter([batch] * 50))
            next(stream)
            stream.close()
            assert step.uid not in worker._kept
            assert len(os.listdir("/proc/self/fd")) == before, f"{algorithm} left a file open"
            assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)
            process.anew()
            assert len(os.listdir("/proc/self/fd")) == before, f"{algorithm} left a file open"

    def test_a_task_that_fails_leaves_no_tuple_behind(self, process, store):
        def breaks():
            yield pa.RecordBatch.from_pydict({"c0": pa.array(range(1500)), "c1": pa.array(range(1500))})
            raise RuntimeError("the source broke")

        step, before = step_of(store), len(os.listdir("/proc/self/fd"))
        with pytest.raises(RuntimeError, match="the source broke"):
            list(Enrichment((step,), process.counting)(breaks()))
        assert process.counting.added == []
        assert len(os.listdir("/proc/self/fd")) == before
        assert rows_of(process.run(step, keys=HOT)) == wanted(HOT)

    def test_one_worker_for_many_queries_stays_within_bounds(self, process, store):
        """Say, enrich() called anew for every micro-batch, or a notebook that is run up and down."""
        for number in range(20):
            process.run(step_of(store, label=f"query {number}"), keys=HOT)
        held = sum(kept.opened.budget.total_bytes for kept in worker._kept.values())
        assert held <= 3 * 1_000_000
        before = len(worker._kept)
        for _ in range(5):
            process.run(step_of(ss.open_master(store.path), label="again"), keys=HOT)
        assert len(worker._kept) <= before
        assert len(list(process.root.glob("semistream-*/*/*.front"))) <= 21

    def test_the_time_of_a_join_is_its_own(self, process, store, monkeypatch):
        """Not that of whoever takes the rows: Spark, or the next enrichment of a star."""
        now = [0.0]
        monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])
        batch = pa.RecordBatch.from_pydict({"c0": pa.array(HOT), "c1": pa.array(HOT)})
        for _ in Enrichment((step_of(store),), process.counting)(iter([batch] * 5)):
            now[0] += 100.0
        assert process.counting.last().join_seconds < 1.0

    def test_columns_of_every_batch_are_counted_from_zero(self, process, store):
        found = process.run(step_of(store), step_of(store, label="again", on={"c1": "k"}), keys=[5, 6])
        assert found.column_names == ["c0", "c1", "c2", "c3"]
        assert rows_of(found) == Counter([(5, 0, "value 5", "value 0"), (6, 1, "value 6", "value 1")])
