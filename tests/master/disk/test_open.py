"""Names, files and buffers."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.errors import InvalidInputError
from semistream.master.disk import (
    ALIGNMENT,
    DISK_KINDS,
    PROFILES,
    Disk,
    DiskStats,
    LocalDisk,
    LocalFile,
    ObjectDisk,
    SimulatedDisk,
    aligned_buffer,
    open_disk,
)


@pytest.mark.parametrize("kind", [*DISK_KINDS, *(f"simulated:{name}" for name in PROFILES)])
def test_every_name_opens_a_disk(kind: str, pages) -> None:
    with open_disk(kind, pages.local) as disk:
        assert isinstance(disk, Disk)
        assert disk.name == kind.removeprefix("simulated:")
        assert isinstance(disk, LocalDisk if kind in ("direct", "buffered") else SimulatedDisk)


def test_every_profile_is_a_kind() -> None:
    assert set(DISK_KINDS) == {"direct", "buffered", *PROFILES}


@pytest.mark.parametrize("kind", ["floppy", "simulated:", "simulated:direct", "", "HDD-2007"])
def test_an_unknown_name_lists_the_known_ones(kind: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_disk(kind, [])
    assert all(known in str(caught.value) for known in DISK_KINDS)


@pytest.mark.parametrize("kind", ["direct", "buffered"])
def test_remote_files_are_read_by_ranges(kind: str, pages) -> None:
    with open_disk(kind, pages.remote) as disk:
        assert isinstance(disk, ObjectDisk)
        assert disk.name == "remote"


def test_local_and_remote_files_do_not_mix(pages) -> None:
    with pytest.raises(InvalidInputError, match="2 local ones and 2 remote ones"):
        open_disk("direct", [*pages.local, *pages.remote])


def test_some_thread_must_read() -> None:
    with pytest.raises(InvalidInputError, match="threads=0"):
        open_disk("direct", [LocalFile("x")], threads=0)


@pytest.mark.parametrize("nbytes", [1, 4095, 4096, 4097, 5 << 20])
def test_buffers_are_aligned_zeroed_writable_and_rounded_up(nbytes: int) -> None:
    buffer = aligned_buffer(nbytes)
    assert nbytes <= len(buffer) < nbytes + ALIGNMENT
    assert len(buffer) % ALIGNMENT == 0
    assert buffer.ctypes.data % ALIGNMENT == 0
    assert not buffer.any()
    buffer[-1] = 7
    assert buffer.dtype == np.uint8


@pytest.mark.parametrize("nbytes", [0, -1])
def test_a_buffer_has_a_size(nbytes: int) -> None:
    with pytest.raises(InvalidInputError, match="not positive"):
        aligned_buffer(nbytes)


def test_stats_are_told_apart_by_subtraction() -> None:
    stats = DiskStats(calls=5, bytes=100, seeks=2, seconds=1.0)
    before = stats.snapshot()
    stats.record(calls=1, nbytes=10, seeks=1, seconds=0.5)
    assert stats - before == DiskStats(calls=1, bytes=10, seeks=1, seconds=0.5)
    assert before == DiskStats(calls=5, bytes=100, seeks=2, seconds=1.0)
