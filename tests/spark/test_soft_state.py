"""Soft state: what workers share costs speed when it is lost, never a row; and nothing in it is trusted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from enriching import expected, replace_bytes, rows_of, table

import semistream as ss
from semistream.joins.registry import Settings
from semistream.spark import softstate, worker
from semistream.spark.enrich import _uid
from semistream.spark.metrics import Counts
from semistream.spark.softstate import Process, SoftState, digest_of, forget, private_folder, sweep
from semistream.spark.worker import Enrichment, Step

DIGEST = digest_of("a master")
HEADER_BYTES = 4096


def arrays(value: int = 1) -> dict[str, np.ndarray]:
    return {
        "records": np.full(10_000, value, dtype=np.uint8),
        "heap": np.empty(0, dtype=np.uint8),
        "entries": np.full(3_000, -value, dtype=np.int64),
        "live": np.ones(7, dtype=np.bool_),
        "uses": np.full(5, value, dtype=np.int32),
    }


def same(found, wanted) -> bool:
    return found is not None and all(
        np.array_equal(found[name], array) and found[name].dtype == array.dtype
        for name, array in wanted.items()
    )


@pytest.fixture
def state(tmp_path) -> SoftState:
    opened = SoftState.open("query", tmp_path)
    assert opened is not None
    return opened


class TestFiles:
    def test_what_is_published_is_loaded(self, state):
        assert state.generation("front") == 0
        assert state.load("front", DIGEST) is None
        generation = state.publish("front", DIGEST, arrays())
        assert generation == state.generation("front") > 0
        assert same(state.load("front", DIGEST), arrays())
        assert state.load("other", DIGEST) is None

    def test_what_is_loaded_is_ones_own_to_change(self, state):
        state.publish("front", DIGEST, arrays())
        one, other = state.load("front", DIGEST), state.load("front", DIGEST)
        one["records"][:] = 7
        one["uses"][0] = 99
        assert same(other, arrays())
        assert same(state.load("front", DIGEST), arrays())

    def test_a_new_state_replaces_the_old_one_under_nobody(self, state):
        state.publish("front", DIGEST, arrays(1))
        old = state.load("front", DIGEST)
        state.publish("front", DIGEST, arrays(2))
        assert same(old, arrays(1))
        assert same(state.load("front", DIGEST), arrays(2))
        assert [path.name for path in state.folder.iterdir()] == ["front.front"]

    def test_readers_never_see_half_of_a_state(self, state):
        """Writers replace it as fast as they can; every load is of one state or of none."""
        done, seen, wrong = threading.Event(), Counter(), []

        def read():
            while not done.is_set():
                found = state.load("front", DIGEST)
                if found is not None:
                    value = int(found["uses"][0])
                    seen[value] += 1
                    wrong.extend([] if same(found, arrays(value)) else [value])

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for value in range(1, 101):
            assert state.publish("front", DIGEST, arrays(value))
        done.set()
        for reader in readers:
            reader.join()
        assert wrong == []
        assert len(seen) > 1

    def test_directories_and_files_are_the_users_alone(self, tmp_path):
        before = os.umask(0)
        try:
            state = SoftState.open("query", tmp_path)
            state.publish("front", DIGEST, arrays())
        finally:
            os.umask(before)
        modes = {
            path: path.stat().st_mode & 0o777
            for path in [state.folder.parent, state.folder, *state.folder.iterdir()]
        }
        assert list(modes.values()) == [0o700, 0o700, 0o600]
        assert state.folder.parent == tmp_path / f"semistream-{os.getuid()}"

    def test_where_it_cannot_be_written_nothing_is_left(self, state, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(softstate, "_write", full)
        assert state.publish("front", DIGEST, arrays()) == 0
        assert list(state.folder.iterdir()) == []

    def test_a_directory_that_went_away_is_no_error(self, state):
        state.publish("front", DIGEST, arrays())
        state.remove()
        assert state.generation("front") == 0
        assert state.load("front", DIGEST) is None
        assert state.publish("front", DIGEST, arrays()) == 0


def flipped(at: int):
    def damage(path: Path) -> None:
        replace_bytes(path, at, bytes([path.read_bytes()[at] ^ 0x41]))

    return damage


def cut(to: int):
    return lambda path: os.truncate(path, to)


def header(change):
    def damage(path: Path) -> None:
        said = json.loads(path.read_bytes()[:HEADER_BYTES])
        changed = change(said)
        said = said if changed is None else changed
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        replace_bytes(path, 0, text.ljust(HEADER_BYTES)[:HEADER_BYTES])

    return damage


def place(**changes):
    return header(lambda said: said["arrays"]["entries"].update(changes))


def linked(path: Path) -> None:
    real = path.parent.parent / "elsewhere"
    path.rename(real)
    path.symlink_to(real)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another_users(path: Path) -> None:
    os.chown(path, 12345, 12345)


DAMAGE = {
    "magic flipped": flipped(12),
    "digest flipped": flipped(60),
    "records flipped": flipped(HEADER_BYTES + 5_000),
    "last array flipped": lambda path: flipped(path.stat().st_size - HEADER_BYTES)(path),
    "emptied": cut(0),
    "cut in the header": cut(100),
    "cut after the header": cut(HEADER_BYTES),
    "cut in an array": cut(HEADER_BYTES + 5_000),
    "cut at its end": lambda path: cut(path.stat().st_size - 5000)(path),
    "foreign digest": header(lambda said: said.update(digest=digest_of("another master"))),
    "no json": header(lambda _: b"\xff" * 100),
    "a list": header(lambda _: []),
    "a number": header(lambda _: 3),
    "no arrays": header(lambda said: {name: value for name, value in said.items() if name != "arrays"}),
    "arrays as a list": header(lambda said: said.update(arrays=[1])),
    "deeply nested": header(lambda _: b"[" * HEADER_BYTES),
    "objects": place(dtype="|O"),
    "no such type": place(dtype="<q9"),
    "a negative place": place(at=-8),
    "a place beyond": place(at=1 << 40),
    "a negative count": place(count=-1),
    "a count beyond": place(count=1 << 40),
    "a count beyond words": place(count=1e34),
    "a count that is no number": place(count="many"),
    "an endless count": place(count=float("inf")),
    "a link": linked,
    "a directory": a_directory,
    "anybody may write": lambda path: path.chmod(0o666),
    "the group may write": lambda path: path.chmod(0o620),
    "another's": another_users,
}


def damages() -> list:
    root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
    return [
        pytest.param(damage, id=name, marks=[root] if name == "another's" else [])
        for name, damage in DAMAGE.items()
    ]


class TestTrust:
    @pytest.mark.parametrize("damage", damages())
    def test_a_damaged_state_is_none(self, state, damage):
        state.publish("front", DIGEST, arrays())
        damage(state.folder / "front.front")
        assert state.load("front", DIGEST) is None

    @pytest.mark.parametrize("seed", range(5))
    def test_no_flip_of_bits_goes_through(self, state, seed):
        """Anywhere that is read: the header as far as it goes, and every array."""
        rng = np.random.default_rng(seed)
        state.publish("front", DIGEST, arrays())
        path = state.folder / "front.front"
        whole = path.read_bytes()
        said = json.loads(whole[:HEADER_BYTES])
        read = list(range(len(json.dumps(said))))
        for each in said["arrays"].values():
            read += range(each["at"], each["at"] + each["count"] * np.dtype(each["dtype"]).itemsize)
        for at in rng.choice(read[: len(json.dumps(said))], 60).tolist() + rng.choice(read, 60).tolist():
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << int(rng.integers(8)))]) + whole[at + 1 :])
            found = state.load("front", DIGEST)
            if found is not None:  # then what changed is a name, which whoever adopts the state looks for
                assert set(found) != set(arrays()) or same(found, arrays()), at

    @pytest.mark.parametrize("kind", ["a link", "a file", "open to all", "open to the group", "another's"])
    def test_a_directory_that_is_not_private_is_not_used(self, tmp_path, kind):
        if kind == "another's" and os.getuid() != 0:
            pytest.skip("only root can give files away")
        base = tmp_path / f"semistream-{os.getuid()}"
        if kind == "a link":
            (tmp_path / "real").mkdir(mode=0o700)
            base.symlink_to(tmp_path / "real")
        elif kind == "a file":
            base.touch()
        else:
            base.mkdir()
            base.chmod({"open to all": 0o777, "open to the group": 0o750, "another's": 0o700}[kind])
        if kind == "another's":
            os.chown(base, 12345, 12345)
        assert private_folder(tmp_path) is None
        assert SoftState.open("query", tmp_path) is None
        sweep(tmp_path)
        forget(query="query", root=tmp_path)
        assert [path.name for path in tmp_path.iterdir() if path.name != "real"] == [base.name]

    @pytest.mark.parametrize("kind", ["a link", "open to all"])
    def test_nor_one_of_a_query(self, tmp_path, kind):
        folder = SoftState.open("query", tmp_path).folder
        folder.rmdir()
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real") if kind == "a link" else folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        assert SoftState.open("query", tmp_path) is None

    def test_nowhere_to_write(self, tmp_path):
        assert private_folder(tmp_path / "nowhere") is None
        assert SoftState.open("query", tmp_path / "nowhere") is None
        sweep(tmp_path / "nowhere")

    def test_a_query_id_that_is_a_path_stays_inside(self, tmp_path):
        """It is a local property, which anybody's code may set."""
        SoftState.open("x", tmp_path)
        SoftState.open("x/../../escaped", tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [f"semistream-{os.getuid()}"]


def ended() -> Process:
    """A process that was, and is no more."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process.of(child.pid)
    child.communicate(b"\n")
    assert process is not None
    return process


class TestCleaning:
    @staticmethod
    def folders(root: Path) -> set[str]:
        return {path.name for path in private_folder(root).iterdir()}

    def test_what_a_process_that_is_gone_left_is_swept(self, state, tmp_path):
        base = state.folder.parent
        state.publish("front", DIGEST, arrays())
        dead = base / f"{ended().name}-query"
        dead.mkdir()
        (dead / "front.front").write_bytes(b"x" * 100)
        me = Process.of(os.getpid())
        reused = base / f"{me.pid}.{me.began - 1}-query"  # the number lives, the process does not
        reused.mkdir()
        sweep(tmp_path)
        assert self.folders(tmp_path) == {state.folder.name}
        assert same(state.load("front", DIGEST), arrays())

    def test_nothing_else_is_touched(self, state, tmp_path):
        base, outside = state.folder.parent, tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").touch()
        (base / "notes").mkdir()
        (base / "1.x-query").mkdir()
        (base / "a file").touch()
        (base / f"{ended().name}-link").symlink_to(outside)
        before = self.folders(tmp_path)
        sweep(tmp_path)
        assert self.folders(tmp_path) == before
        assert (outside / "precious").exists()

    def test_what_nobody_used_for_an_hour_goes_too(self, state, tmp_path):
        at = time.time() - 3700
        os.utime(state.folder, (at, at))
        sweep(tmp_path)
        assert self.folders(tmp_path) == set()

    def test_a_query_that_goes_on_is_used(self, state, tmp_path):
        at = time.time() - 3700
        os.utime(state.folder, (at, at))
        SoftState.open("query", tmp_path)
        sweep(tmp_path)
        assert self.folders(tmp_path) == {state.folder.name}

    def test_a_query_that_ended_is_forgotten_and_no_other(self, state, tmp_path):
        other = SoftState.open("other-query", tmp_path)
        state.publish("front", DIGEST, arrays())
        forget(query="query", root=tmp_path)
        assert self.folders(tmp_path) == {other.folder.name}

    def test_a_jvm_that_ends_is_forgotten_and_no_other(self, state, tmp_path):
        me = Process.of(os.getpid())
        other = state.folder.parent / f"{me.name}-batch"
        other.mkdir(mode=0o700)
        forget(jvm=Process.running_this_worker(), root=tmp_path)
        assert self.folders(tmp_path) == {other.name}

    def test_workers_of_one_daemon_share_a_directory(self):
        """A worker is the child of PySpark's daemon, and that a child of the executor's JVM."""
        code = (
            "import os, sys\n"
            "from semistream.spark.softstate import Process\n"
            "if os.fork() == 0:\n"
            "    print(Process.running_this_worker().name)\n"
            "    sys.stdout.flush(); os._exit(0)\n"
            "os.wait()\n"
        )
        for _ in range(2):
            said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            assert said.stdout.strip() == Process.of(os.getpid()).name


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
