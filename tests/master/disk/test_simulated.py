"""Virtual time: computed by hand, to the last bit."""

from __future__ import annotations

import pytest

from semistream.errors import InvalidInputError
from semistream.master.disk import (
    PROFILES,
    DiskProfile,
    LocalDisk,
    SimulatedDisk,
    VirtualClock,
    aligned_buffer,
    open_disk,
)

BUFFER = aligned_buffer(400 * 8192)


def toy(pages, *, queue_depth: int, bandwidth: str = "shared") -> SimulatedDisk:
    """Powers of two, so that sums are exact: a page takes half a second, a call one, a seek three."""
    profile = DiskProfile("toy", 2.0, 1.0, 2 * pages.size, 1.0, queue_depth, bandwidth)
    return SimulatedDisk(profile, LocalDisk(pages.local, mode="buffered"))


def test_one_arm_adds_everything_up(pages) -> None:
    with toy(pages, queue_depth=1) as disk:
        disk.read(pages.extents((0, 0, 1, 0), (0, 1, 2, 5), (0, 9, 1, 9)), BUFFER)
        # seek, call, page; call, two pages; seek, call, page
        assert disk.clock.seconds == (3 + 1 + 0.5) + (1 + 1) + (3 + 1 + 0.5)
        assert (disk.stats.calls, disk.stats.seeks, disk.stats.seconds) == (3, 2, 11.0)


def test_the_arm_stays_where_it_was_between_batches(pages) -> None:
    with toy(pages, queue_depth=1) as disk:
        disk.read(pages.extents((0, 0, 1, 0)), BUFFER)
        before = disk.stats.snapshot()
        disk.read(pages.extents((0, 1, 1, 0)), BUFFER)
        assert (disk.stats - before).seconds == 1.5


def test_latencies_overlap_and_the_channel_is_shared(pages) -> None:
    with toy(pages, queue_depth=2) as disk:
        disk.read(pages.extents((0, 0, 1, 0), (0, 9, 1, 1), (0, 20, 1, 2)), BUFFER)
        # Two calls are ready at 4 and transfer until 4.5 and 5; the third starts at 4.5, is ready at 8.5.
        assert disk.clock.seconds == 9.0


def test_streams_do_not_slow_each_other(pages) -> None:
    with toy(pages, queue_depth=2, bandwidth="per-stream") as disk:
        disk.read(pages.extents((0, 0, 4, 0), (0, 9, 1, 4), (0, 20, 1, 5), (0, 30, 1, 6)), BUFFER)
        # Slot one until 4 + 2 = 6; slot two until 4.5; then 4.5 + 4.5 = 9 on two; 6 + 4.5 = 10.5 on one.
        assert disk.clock.seconds == 10.5


def test_a_full_channel_hides_latency(pages) -> None:
    with toy(pages, queue_depth=4) as disk:
        disk.read(pages.extents(*((0, i * 40, 32, i * 33) for i in range(8))), BUFFER)
        # 16 s per call: only the first latency shows.
        assert disk.clock.seconds == 4 + 8 * 16


def test_the_disk_of_2007(pages) -> None:
    with open_disk("hdd-2007", pages.local) as disk:
        disk.read(pages.extents((0, 0, 256, 0)), BUFFER)
        assert disk.stats.seconds == 0.0001 + (0.0085 + 60 / 7200 / 2) + 256 * 8192 / 60e6
        before = disk.stats.snapshot()
        disk.read(pages.extents(*((1, 7 * i, 1, i) for i in range(80))), BUFFER)
        expected = 80 * (0.0085 + 60 / 7200 / 2 + 0.0001 + 8192 / 60e6)
        assert (disk.stats - before).seconds == pytest.approx(expected, rel=1e-12)


def test_the_object_store_keeps_32_in_flight(pages) -> None:
    with open_disk("object-store", pages.local) as disk:
        one = 0.03 + 8192 / 90e6
        disk.read(pages.extents(*((0, 3 * i, 1, i) for i in range(32))), BUFFER)
        assert disk.stats.seconds == pytest.approx(one, rel=1e-12)
        disk.read(pages.extents(*((0, 3 * i, 1, i) for i in range(33))), BUFFER)
        assert disk.stats.seconds == pytest.approx(3 * one, rel=1e-12)


@pytest.mark.parametrize("name", PROFILES)
def test_the_same_batches_cost_the_same_every_time(pages, name: str) -> None:
    def run() -> float:
        with open_disk(f"simulated:{name}", pages.local) as disk:
            for begin in range(0, 500, 50):
                disk.read(pages.extents(*((i % 2, begin + 2 * i, 1, i) for i in range(40))), BUFFER)
            assert disk.stats.seconds == disk.clock.seconds
            return disk.clock.seconds

    assert run() == run() > 0


def test_other_work_is_priced_on_the_same_clock(pages) -> None:
    with toy(pages, queue_depth=1) as disk:
        disk.clock.advance(10.0)
        disk.read(pages.extents((0, 0, 1, 0)), BUFFER)
        assert disk.clock.seconds == 14.5
        assert disk.stats.seconds == 4.5


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_time_does_not_go_back(seconds: float) -> None:
    clock = VirtualClock()
    with pytest.raises(InvalidInputError, match="does not go forward"):
        clock.advance(seconds)
    assert clock.seconds == 0.0
