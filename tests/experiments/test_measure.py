"""What a point counts, against what it must be by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semistream.experiments.case import Case, Measured
from semistream.experiments.data import MasterSpec, StreamSpec, appended_rows, open_or_build
from semistream.experiments.doubling import measure_doubling
from semistream.experiments.measure import measure
from semistream.experiments.pricing import disk_seconds
from semistream.joins import Settings
from semistream.master.disk.profiles import HDD_2007
from semistream.master.disk.stats import DiskStats

MASTER = MasterSpec(rows=20_000, layout="heap")
CASE = Case(
    "meshjoin",
    MASTER,
    StreamSpec(0.5),
    400_000,
    settings=Settings(disk_buffer=8 * 4096),
    warm=1.5,
    measured=2.0,
)


def test_a_scan_reads_the_master_once_per_window(out):
    """In its steady state MESHJOIN answers as many tuples per round of the master as there is room for."""
    got = measure(CASE, out, seed=1)
    pages = open_or_build(MASTER, out, seed=1).pages
    rounds = got.pages / pages
    assert got.answered / rounds == pytest.approx(got.window_tuples, rel=0.02)
    assert got.rows == pytest.approx(got.answered, rel=0.02)
    assert got.misses == 0
    assert got.probes == pytest.approx(got.pages * 20_000 / pages, rel=0.02)
    assert got.seconds > got.disk_seconds > got.bytes / HDD_2007.bytes_per_s


def test_reads_are_priced_by_hand():
    read = DiskStats(calls=10, bytes=60_000_000, seeks=4, seconds=99.0)
    full = 4 * (HDD_2007.seek_s + HDD_2007.rotation_s) + 10 * HDD_2007.call_s + 1.0
    assert disk_seconds(read, "hdd-2007", latency_factor=1.0) == pytest.approx(full)
    assert disk_seconds(read, "hdd-2007", latency_factor=0.5) == pytest.approx((full - 1.0) / 2 + 1.0)
    assert disk_seconds(read, "direct", latency_factor=0.5) == 99.0


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin"])
def test_rates_do_not_depend_on_the_scale(out, algorithm):
    """The argument of scale.py: half of everything, half of the latencies, the same tuples per second.

    Small windows spend more on what each has once, so rates are compared for as many places as there are.
    """

    def rate_per_place(factor: int) -> float:
        pages = 4 * factor
        settings = Settings(disk_buffer=pages * 4096, block_pages=pages, parallel=1)
        master = MasterSpec(rows=30_000 * factor)
        case = Case(algorithm, master, StreamSpec(0.8), 600_000 * factor, factor / 4, settings, measured=4.0)
        got = measure(case, out, seed=1)
        return got.rate * factor / got.window_tuples

    assert rate_per_place(2) == pytest.approx(rate_per_place(1), rel=0.05)
    assert rate_per_place(4) == pytest.approx(rate_per_place(2), rel=0.05)


def test_a_threshold_is_held(out):
    """With a threshold nobody reaches, the front stage stays empty."""
    case = replace(CASE, algorithm="cmeshjoin", settings=Settings(disk_buffer=8 * 4096, front_share=0.3))
    assert measure(case, out, seed=1).front_hits > 0
    assert (
        measure(replace(case, threshold=10**6), out, seed=1).front_hits
        < 0.5 * measure(case, out, seed=1).front_hits
    )


@pytest.mark.parametrize("at_once", [1 << 22, 300])
def test_appended_rows_follow_those_there_are(monkeypatch, at_once):
    monkeypatch.setattr("semistream.experiments.data._APPENDED_AT_ONCE", at_once)
    pieces = [piece.read_all()["k"].to_pylist() for piece in appended_rows(MasterSpec(rows=1_000))]
    assert max(len(piece) for piece in pieces) <= at_once
    keys = [key for piece in pieces for key in piece]
    assert keys == list(range(1_000, 2_000))


def test_newcomers_may_start_with_their_own_frequency(out):
    """CACHING's rule: where rows leave all the time it lets newcomers leave first, so others stay and answer more."""
    case = replace(
        CASE, algorithm="cmeshjoin", settings=Settings(disk_buffer=8 * 4096, front_share=0.3), threshold=1
    )
    papers = measure(replace(case, newcomers="own frequency", stream=StreamSpec(1.0)), out, seed=1)
    ours = measure(replace(case, stream=StreamSpec(1.0)), out, seed=1)
    assert papers.evicted > 0
    assert ours.evicted > 0
    assert papers.front_share > 1.02 * ours.front_share
    assert papers.held > 0
    assert measure(CASE, out, seed=1).held == 0


def test_a_real_disk_is_measured_for_two_seconds_and_the_median_counts(out, monkeypatch):
    """Five times 0.4 s of a clock that goes on by 10 ms whenever it is looked at."""
    looks = iter(range(10**9))
    monkeypatch.setattr("semistream.experiments.measure.time.perf_counter", lambda: next(looks) / 100)
    rates = iter([5.0, 1.0, 3.0, 2.0, 4.0])
    monkeypatch.setattr(Measured, "rate", property(lambda self: ranks.setdefault(id(self), next(rates))))
    ranks: dict[int, float] = {}
    got = measure(replace(CASE, disk="buffered", measured=0.1), out, seed=1)
    assert got.seconds >= 0.4
    assert ranks[id(got)] == 3.0
    assert len(ranks) == 5


def test_the_reads_of_a_master_that_doubles_are_those_of_all_pieces(out):
    """Both versions' pages; only who still waits at the end is answered by reads of no piece."""
    settings = Settings(disk_buffer=8 * 4096, front_share=0.2)
    master = replace(MASTER, layout="key")
    case = replace(CASE, algorithm="cmeshjoin", master=master, settings=settings, doubles=True)
    got = measure_doubling(case, out, seed=1)
    assert got.bytes == pytest.approx(4096 * got.pages, rel=0.1)
    assert got.calls > got.seeks > 0
    assert 0 < got.disk_seconds < got.seconds
    assert got.seconds == pytest.approx(sum(seconds for _, seconds in got.timeline))
