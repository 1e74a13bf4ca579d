"""What only local files have: descriptors, O_DIRECT and its refusal, the kernel's queue."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

from semistream.master.disk import (
    DirectIOUnavailableWarning,
    Extents,
    LocalDisk,
    LocalFile,
    aligned_buffer,
    descriptors,
    kernels,
    local,
    open_disk,
)

BUFFER = aligned_buffer(400 * 8192)


def open_paths() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        except FileNotFoundError:  # the listing's own
            continue
    return found


@pytest.fixture
def many(tmp_path: Path) -> list[LocalFile]:
    """Twenty files of one page that says which file it is."""
    files = []
    for i in range(20):
        path = tmp_path / f"small-{i}"
        path.write_bytes(bytes([i]) * 4096)
        files.append(LocalFile(str(path)))
    return files


def one_page_each(files: list[int]) -> Extents:
    n = len(files)
    return Extents(np.array(files), np.zeros(n, int), np.full(n, 4096), np.arange(n) * 4096)


@pytest.mark.parametrize("mode", ["direct", "buffered"])
def test_few_files_are_open_however_many_a_batch_touches(many, tmp_path: Path, mode: str) -> None:
    with LocalDisk(many, mode=mode) as disk:
        disk._descriptors.limit = 3
        order = np.random.default_rng(0).permutation(20).tolist()
        for _ in range(2):
            BUFFER[:] = 255
            disk.read(one_page_each(order), BUFFER)
            assert BUFFER[: 20 * 4096 : 4096].tolist() == order
            assert sum(str(tmp_path) in path for path in open_paths()) == 3
        disk.read(one_page_each([4]), BUFFER)
        disk.read(one_page_each([5]), BUFFER)
        still_open = " ".join(open_paths())
        assert "small-4" in still_open
        assert "small-5" in still_open
    assert not any(str(tmp_path) in path for path in open_paths())


def test_nothing_is_opened_before_it_is_read(many, tmp_path: Path) -> None:
    with open_disk("direct", many) as disk:
        assert not any(str(tmp_path) in path for path in open_paths())
        disk.read(one_page_each([7]), BUFFER)
        assert [Path(p).name for p in open_paths() if str(tmp_path) in p] == ["small-7"]


def test_a_forgotten_disk_closes_its_files(many, tmp_path: Path) -> None:
    disk = open_disk("direct", many)
    disk.read(one_page_each([1, 2, 3]), BUFFER)
    del disk
    assert not any(str(tmp_path) in path for path in open_paths())


def test_files_are_never_mapped(pages) -> None:
    with open_disk("buffered", pages.local) as disk:
        disk.read(pages.extents((0, 0, 300, 0)), BUFFER)
        assert "pages-0" not in Path("/proc/self/maps").read_text()


def test_one_call_is_read_by_the_calling_thread(pages, monkeypatch) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError("a thread or a queue for a single call")

    with open_disk("direct", pages.local) as disk:
        monkeypatch.setattr(disk._threads, "run", nobody)
        monkeypatch.setattr(disk, "_read_queued", nobody)
        disk.read(pages.extents((0, 5, 1, 0)), BUFFER)
        assert np.array_equal(BUFFER[: pages.size], pages.content[0][5 * pages.size : 6 * pages.size])


# Where there is no queue


def test_without_a_queue_threads_read(pages, monkeypatch) -> None:
    monkeypatch.setattr(local, "open_queue", lambda: None)
    extents = pages.extents(*((i % 2, 599 - i, 1, i) for i in range(300)))
    with open_disk("direct", pages.local) as disk:
        disk.read(extents, BUFFER, pages.seeds(extents))
    assert np.array_equal(BUFFER, pages.expected(extents, BUFFER))


def test_a_queue_that_takes_nothing_is_done_without(pages) -> None:
    extents = pages.extents(*((i % 2, 599 - i, 1, i) for i in range(300)))
    with LocalDisk(pages.local) as disk:
        queue = disk._take_queue()
        assert queue is not None
        queue._context = 1  # the kernel knows no such queue
        disk._queues.append(queue)
        disk.read(extents, BUFFER, pages.seeds(extents))
    assert np.array_equal(BUFFER, pages.expected(extents, BUFFER))


def test_a_batch_longer_than_the_queue_is_read_whole(pages) -> None:
    extents = pages.extents(*((0, 2 * i % 599, 1, i) for i in range(400)))
    with open_disk("direct", pages.local) as disk:
        disk.read(extents, BUFFER, pages.seeds(extents))
        assert disk.stats.calls == 400
    assert np.array_equal(BUFFER, pages.expected(extents, BUFFER))


def test_what_the_kernels_could_not_read_is_read_in_python(pages, monkeypatch) -> None:
    """As after an interruption: nothing lands, and nothing is wrong."""
    monkeypatch.setattr(kernels, "read_in_turn", lambda *_: (0, -1))
    monkeypatch.setattr(local, "open_queue", lambda: None)
    extents = pages.extents(*((i % 2, 599 - i, 1, i) for i in range(50)))
    with open_disk("direct", pages.local) as disk:
        disk.read(extents, BUFFER, pages.seeds(extents))
    assert np.array_equal(BUFFER, pages.expected(extents, BUFFER))


# Where O_DIRECT is refused


@pytest.fixture
def _nobody_warned(monkeypatch) -> None:
    monkeypatch.setattr(descriptors, "_warned", set())


@pytest.fixture
def _refusing(monkeypatch, _nobody_warned) -> None:
    real = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument", path)
        return real(path, flags, *rest)

    monkeypatch.setattr("semistream.master.disk.descriptors.os.open", refuse)


@pytest.mark.usefixtures("_refusing")
def test_a_refusal_at_opening_warns_once_and_reads_buffered(own_pages) -> None:
    extents = own_pages.extents((0, 0, 1, 0), (1, 9, 1, 1), (0, 50, 1, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with open_disk("direct", own_pages.local) as disk:
                disk.read(extents, BUFFER, own_pages.seeds(extents))
                disk.read(extents, BUFFER)
    assert np.array_equal(BUFFER, own_pages.expected(extents, BUFFER))
    assert [w.category for w in caught] == [DirectIOUnavailableWarning]
    assert str(own_pages.paths[0].parent) in str(caught[0].message)
    assert "refuses O_DIRECT" in str(caught[0].message)


@pytest.mark.usefixtures("_refusing")
def test_every_directory_has_its_own_warning(many, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "page").write_bytes(bytes(4096))
    with open_disk("direct", [*many, LocalFile(str(other / "page"))]) as disk:
        with pytest.warns(DirectIOUnavailableWarning) as caught:
            disk.read(one_page_each([0, 1, 20]), BUFFER)
        assert [str(w.message).split(":")[0] for w in caught] == [str(tmp_path), str(other)]


@pytest.mark.usefixtures("_nobody_warned")
def test_a_refusal_at_reading_warns_once_and_reads_buffered(own_pages, monkeypatch) -> None:
    """Some file systems take the flag and refuse the reads."""
    direct: set[int] = set()
    open_direct, in_turn, preadv = descriptors._open_direct, kernels.read_in_turn, os.preadv

    def opened(path: str) -> int:
        direct.add(fd := open_direct(path))
        return fd

    def refuse(fd: int, *rest: object) -> int:
        if fd in direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return preadv(fd, *rest)

    def land_nothing(todo, begin, end, table, *rest):
        if set(table[kernels.DESCRIPTOR, todo].tolist()) & direct:
            return 0, -1
        return in_turn(todo, begin, end, table, *rest)

    monkeypatch.setattr(descriptors, "_open_direct", opened)
    monkeypatch.setattr(local, "open_queue", lambda: None)
    monkeypatch.setattr(kernels, "read_in_turn", land_nothing)
    monkeypatch.setattr("semistream.master.disk.local.os.preadv", refuse)
    extents = own_pages.extents((0, 0, 1, 0), (1, 9, 1, 1), (0, 50, 1, 2))
    with open_disk("direct", own_pages.local) as disk:
        with pytest.warns(DirectIOUnavailableWarning) as caught:
            disk.read(extents, BUFFER, own_pages.seeds(extents))
        assert len(caught) == 1
        assert np.array_equal(BUFFER, own_pages.expected(extents, BUFFER))
        names = [Path(p).name for p in open_paths() if str(own_pages.paths[0].parent) in p]
        assert sorted(names) == ["pages-0", "pages-1"]  # the refused descriptors are gone
        disk.read(extents, BUFFER, own_pages.seeds(extents))


@pytest.mark.usefixtures("_nobody_warned")
def test_tmpfs_is_read_whether_it_takes_o_direct_or_not() -> None:
    """Linux before 6.6 refuses; since then tmpfs accepts the flag and ignores it."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(bytes([9]) * 16384)
        file.flush()
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
            expected = 0
        except OSError:
            expected = 1
        extents = Extents(np.zeros(2, int), np.array([0, 8192]), np.full(2, 4096), np.array([4096, 0]))
        with (
            warnings.catch_warnings(record=True) as caught,
            open_disk("direct", [LocalFile(file.name)]) as disk,
        ):
            warnings.simplefilter("always")
            BUFFER[:] = 0
            disk.read(extents, BUFFER)
            disk.read(extents, BUFFER)
        assert len(caught) == expected
        assert (BUFFER[:8192] == 9).all()


# Other processes

_FORK = """
import os, signal, sys
import numpy as np
from semistream.master.disk import Extents, LocalDisk, LocalFile, aligned_buffer

buffer = aligned_buffer(64 * 4096)
n = 64
extents = Extents(np.zeros(n, int), np.arange(n)[::-1] * 4096, np.full(n, 4096), np.arange(n) * 4096)
disks = [LocalDisk([LocalFile(sys.argv[1])], engine=engine, threads=2) for engine in ("queue", "threads")]

def check():
    for disk in disks:
        buffer[:] = 0
        disk.read(extents, buffer)
        assert buffer[::4096].tolist() == list(range(n))[::-1], disk

check()
check()
child = os.fork()
signal.alarm(30)  # waiting for a thread that only the parent has would take forever
queue = disks[0]._take_queue()
assert queue._process == os.getpid()
disks[0]._queues.append(queue)
check()
for disk in disks:
    disk.close()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("read", flush=True)
"""


def test_a_forked_process_can_go_on_reading(tmp_path: Path) -> None:
    path = tmp_path / "numbered"
    path.write_bytes(b"".join(bytes([i]) * 4096 for i in range(64)))
    # Python 3.12 warns of every fork beside threads; that is what this is about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["read", "read"], done.stderr


_CACHE = """
import sys
import numpy as np
from semistream.master.disk import Extents, LocalFile, aligned_buffer, kernels, open_disk, seal_pages, simulated
from semistream.master.disk import calls

path, n = sys.argv[1], 16
page = np.zeros(n * 4096, np.uint8)
seeds = np.arange(n, dtype=np.uint64)
seal_pages(page, np.arange(n) * 4096, 4096, seeds)
open(path, "wb").write(page.tobytes())
buffer = aligned_buffer(n * 4096)
extents = Extents(np.zeros(n, int), np.arange(n)[::-1] * 4096, np.full(n, 4096), np.arange(n) * 4096)
for kind in ("direct", "buffered", "hdd-2007"):
    with open_disk(kind, [LocalFile(path)]) as disk:
        disk.read(extents, buffer, seeds[::-1])
        disk.read(Extents(*(np.zeros(1, int) + v for v in (0, 0, 4096, 0))), buffer, seeds[:1])
for kernel in (kernels.read_cached, kernels.read_in_turn, kernels.read_queued, calls._coalesce, simulated._makespan):
    print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "error", "-c", _CACHE, str(tmp_path / "pages")]
    lines = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.splitlines())
    first, second = lines
    assert all(line.split()[1] != "0" for line in first)
    assert second == ["1 0"] * 5
