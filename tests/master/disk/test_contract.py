"""Every kind of disk returns the same bytes and the same counts."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.master.disk import MAX_CALL_BYTES, Disk, Extents, aligned_buffer

BUFFER_PAGES = 400
BUFFER = aligned_buffer(BUFFER_PAGES * 8192)


@st.composite
def reads(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """(file, first page, pages, target page) without overlapping targets; often adjacent to the read before."""
    result: list[tuple[int, int, int, int]] = []
    target = file = page = 0
    for _ in range(draw(st.integers(0, 25))):
        length = draw(st.integers(1, 140))
        if target + length > BUFFER_PAGES:
            break
        if draw(st.booleans()):
            file, page = draw(st.integers(0, 1)), draw(st.integers(0, 599))
        page = min(page, 600 - length)
        target += draw(st.sampled_from([0, 0, 0, 1]))
        if target + length > BUFFER_PAGES:
            break
        result.append((file, page, length, target))
        page += length
        target += length
    return draw(st.permutations(result)) if draw(st.booleans()) else result


def count(extents: Extents, arm: tuple[int, int] | None) -> tuple[int, int, tuple[int, int] | None]:
    """Calls, seeks and the arm's last place, straight from the definition."""
    calls = seeks = 0
    columns = (extents.file, extents.offset, extents.length, extents.target)
    last: tuple[int, int, int, int] | None = None
    for file, offset, length, target in zip(*(c.tolist() for c in columns), strict=True):
        if last is not None:
            joined = (file, offset, target) == (last[0], last[1] + last[2], last[3] + last[2])
            if joined and last[2] + length <= MAX_CALL_BYTES:
                last = (file, last[1], last[2] + length, last[3])
                arm = (file, offset + length)
                continue
        calls += 1
        seeks += arm != (file, offset)
        last = (file, offset, length, target)
        arm = (file, offset + length)
    return calls, seeks, arm


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(reads(), min_size=1, max_size=3))
def test_every_disk_returns_the_same_bytes_and_counts(disk: Disk, pages, batches) -> None:
    arm = getattr(disk, "expected_arm", None)  # the fixture's disk lives through all examples
    for batch in batches:
        extents = pages.extents(*batch)
        BUFFER[:] = 0
        before = disk.stats.snapshot()
        disk.read(extents, BUFFER)
        done = disk.stats - before
        assert np.array_equal(BUFFER, pages.expected(extents, np.zeros_like(BUFFER)))
        calls, seeks, arm = count(extents, arm)
        assert (done.calls, done.seeks, done.bytes) == (calls, seeks, int(extents.length.sum()))
    disk.expected_arm = arm


def test_pages_are_verified_wherever_they_come_from(disk: Disk, pages) -> None:
    numbers = np.random.default_rng(3).permutation(pages.count)[:BUFFER_PAGES]
    extents = pages.extents(*((i % 2, page, 1, i) for i, page in enumerate(numbers.tolist())))
    disk.read(extents, BUFFER, pages.seeds(extents))
    assert np.array_equal(BUFFER, pages.expected(extents, BUFFER))


def test_adjacent_pages_become_calls_of_at_most_one_mebibyte(disk: Disk, pages) -> None:
    extents = pages.extents(*((0, page, 1, page) for page in range(300)))
    disk.read(extents, BUFFER, pages.seeds(extents))
    assert (disk.stats.calls, disk.stats.seeks, disk.stats.bytes) == (3, 1, 300 * pages.size)


def test_an_extent_is_never_split(disk: Disk, pages) -> None:
    disk.read(pages.extents((0, 0, 300, 0), (0, 300, 1, 300)), BUFFER)
    assert (disk.stats.calls, disk.stats.seeks) == (2, 1)


def test_going_back_and_forth_between_files_seeks_every_time(disk: Disk, pages) -> None:
    disk.read(pages.extents((0, 0, 1, 0), (1, 0, 1, 1), (0, 1, 1, 2), (1, 1, 1, 3)), BUFFER)
    assert disk.stats.seeks == 4
    disk.read(pages.extents((1, 2, 1, 0)), BUFFER)
    assert disk.stats.seeks == 4


def test_reading_nothing_costs_nothing(disk: Disk, pages) -> None:
    disk.read(pages.extents(), BUFFER)
    assert (disk.stats.calls, disk.stats.seeks, disk.stats.bytes) == (0, 0, 0)


def test_threads_share_a_disk_and_the_counts_are_exact(disk: Disk, pages) -> None:
    # Even pages only: no call begins where another one ended, so every call is a seek however threads interleave.
    threads, rounds, batch = 6, 8, 40
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        buffer = aligned_buffer(batch * pages.size)
        for _ in range(rounds):
            numbers = rng.integers(0, pages.count // 2, batch) * 2
            extents = pages.extents(*((i % 2, page, 1, i) for i, page in enumerate(numbers.tolist())))
            disk.read(extents, buffer, pages.seeds(extents))
            if not np.array_equal(buffer, pages.expected(extents, buffer)):
                wrong.append(f"thread {seed}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    total = threads * rounds * batch
    assert (disk.stats.calls, disk.stats.seeks, disk.stats.bytes) == (total, total, total * pages.size)


def test_seconds_add_up(disk: Disk, pages) -> None:
    disk.read(pages.extents((0, 0, 1, 0)), BUFFER)
    first = disk.stats.seconds
    disk.read(pages.extents((0, 5, 1, 0)), BUFFER)
    assert 0 < first < disk.stats.seconds


@pytest.mark.parametrize(
    ("file", "offset", "length", "target"),
    [
        (2, 0, 4096, 0),
        (-1, 0, 4096, 0),
        (0, 512, 4096, 0),
        (0, -4096, 4096, 0),
        (0, 0, 100, 0),
        (0, 0, 0, 0),
        (0, 0, 4096, 8),
        (0, 0, 4096, -4096),
        (0, 0, 8192, BUFFER_PAGES * 8192 - 4096),
    ],
)
def test_an_extent_outside_the_disk_or_the_buffer_is_named(disk: Disk, file, offset, length, target) -> None:
    good = [0, 0, 4096, 0]
    columns = np.array([good, [file, offset, length, target]]).T
    with pytest.raises(InvalidInputError, match=f"extent 1: {length} bytes of file {file} from {offset}"):
        disk.read(Extents(*columns), BUFFER)
    assert disk.stats.calls == 0


@pytest.mark.parametrize(
    "buffer",
    [
        aligned_buffer(16384)[8:],
        aligned_buffer(16384)[8 : 8 + 8192],
        aligned_buffer(16384)[::2],
        aligned_buffer(16384).view(np.int64),
        aligned_buffer(16384).reshape(2, -1),
        np.frombuffer(bytes(8192), np.uint8),
    ],
    ids=["odd length", "unaligned", "strided", "not bytes", "two-dimensional", "read-only"],
)
def test_a_buffer_that_no_disk_can_read_into_is_refused(disk: Disk, pages, buffer) -> None:
    with pytest.raises(InvalidInputError, match=r"Make it with aligned_buffer"):
        disk.read(pages.extents((0, 0, 1, 0)), buffer)


def test_seeds_must_be_one_per_extent(disk: Disk, pages) -> None:
    with pytest.raises(InvalidInputError, match="a read of 1 pages: found 2 seeds"):
        disk.read(pages.extents((0, 0, 1, 0)), BUFFER, np.zeros(2, np.uint64))


def test_columns_may_be_read_only_or_strided(disk: Disk, pages) -> None:
    plain = pages.extents((0, 3, 1, 1), (1, 7, 1, 0))
    wide = np.repeat(np.stack([plain.file, plain.offset, plain.length, plain.target]), 2, axis=1)
    wide.flags.writeable = False
    seeds = np.repeat(pages.seeds(plain), 2)[::2]
    disk.read(Extents(*(row[::2] for row in wide)), BUFFER, seeds)
    assert np.array_equal(BUFFER, pages.expected(plain, BUFFER))


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="found 1, 1, 1 and 2 entries"):
        Extents(np.zeros(1, int), np.zeros(1, int), np.zeros(1, int), np.zeros(2, int))


def test_a_closed_disk_says_so(disk: Disk, pages) -> None:
    disk.close()
    disk.close()
    with pytest.raises(InvalidInputError, match="closed"):
        disk.read(pages.extents((0, 0, 1, 0)), BUFFER)


def test_closing_waits_for_the_reads_of_other_threads(disk: Disk, pages, monkeypatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    fetch = disk.fetch

    def slow(calls: object) -> int:
        inside.set()
        assert go_on.wait(10)
        return fetch(calls)

    monkeypatch.setattr(disk, "fetch", slow)
    extents = pages.extents(*((0, 2 * i, 1, i) for i in range(50)))
    BUFFER[:] = 0
    reader = threading.Thread(target=disk.read, args=(extents, BUFFER))
    closer = threading.Thread(target=disk.close)
    reader.start()
    assert inside.wait(10)
    closer.start()
    go_on.set()
    reader.join()
    closer.join()
    assert np.array_equal(BUFFER, pages.expected(extents, np.zeros_like(BUFFER)))
