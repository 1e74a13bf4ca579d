"""Soft state: what workers share is theirs alone, is cleaned up, and nothing in it is trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from damaging import HEADER_BYTES, damages

from semistream.spark import softstate
from semistream.spark.softstate import Process, SoftState, digest_of, forget, private_folder, sweep

DIGEST = digest_of("a master")


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
