from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.workload import Bursty, Constant, Poisson, SelfSimilar
from semistream.workload.poisson import BLOCK_ROWS, gamma, unit_rate_times
from semistream.workload.randomness import derive

PROCESSES = [Constant(1000.0), Poisson(1000.0), Bursty(1000.0), SelfSimilar(1000.0)]


def counts_per_second(process, seconds: int, seed: int) -> np.ndarray:
    n = process.arrived_by(float(seconds), seed=seed)
    times = process.times(0, n, seed=seed)
    return np.bincount(np.minimum(times.astype(np.int64), seconds - 1), minlength=seconds)


def hurst_exponent(process, *, seconds: int, seed: int) -> float:
    """Aggregated variance: the variance of the mean rate over m seconds falls like m^(2H-2)."""
    rates = counts_per_second(process, seconds, seed) / process.rate
    spans = 2 ** np.arange(9)
    variances = [((rates.reshape(-1, m).mean(axis=1) - 1.0) ** 2).mean() for m in spans]
    return 1.0 + float(np.polyfit(np.log(spans), np.log(variances), 1)[0]) / 2.0


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
@given(
    cuts=st.lists(st.integers(0, 3000), min_size=3, max_size=3),
    offset=st.sampled_from([0, 1000, 10**9, 10**13]),
)
@settings(deadline=None, max_examples=25)
def test_any_part_can_be_timed_alone(process, cuts, offset):
    a, b, c = (offset + cut for cut in sorted(cuts))
    whole = process.times(a, c, seed=5)
    assert np.array_equal(whole, np.concatenate([process.times(a, b, seed=5), process.times(b, c, seed=5)]))
    assert (np.diff(whole) >= 0).all()
    assert (whole > 0).all()


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
def test_counting_is_the_inverse_of_timing(process):
    times = process.times(0, 5000, seed=3)
    for i in (0, 1, 500, 1023, 1024, 2047, 2048, 4998):
        between = (times[i] + times[i + 1]) / 2
        assert times[i] < between < times[i + 1], "arrivals too close for this check"
        assert process.arrived_by(float(between), seed=3) == i + 1
    assert process.arrived_by(0.0, seed=3) == 0
    assert process.arrived_by(-5.0, seed=3) == 0
    assert process.arrived_by(float(times[0]) * 0.999, seed=3) == 0


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: type(p).__name__)
def test_the_mean_rate_is_the_rate(process):
    # Over a million seconds; self-similar arrivals vary by 0.5 * 10^(-0.2 * 6) = 3 % even then.
    arrived = process.arrived_by(1e6, seed=11)
    assert math.isclose(arrived / 1e6, 1000.0, rel_tol=0.13 if isinstance(process, SelfSimilar) else 0.001)


@pytest.mark.parametrize("process", PROCESSES[1:], ids=lambda p: type(p).__name__)
def test_another_seed_gives_other_times(process):
    assert not np.array_equal(process.times(0, 100, seed=1), process.times(0, 100, seed=2))


def test_constant_arrivals_are_evenly_spaced():
    times = Constant(8.0).times(0, 16, seed=0)
    assert times.tolist() == [(i + 1) / 8 for i in range(16)]
    assert Constant(8.0).arrived_by(1.0, seed=0) == 8


def test_poisson_gaps_are_exponential_and_independent():
    gaps = np.diff(Poisson(2.0).times(0, 500_001, seed=1)) * 2.0
    # Kolmogorov and Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand times.
    cumulative = 1.0 - np.exp(-np.sort(gaps))
    steps = np.arange(1, gaps.size + 1) / gaps.size
    assert np.abs(cumulative - steps).max() < 1.95 / math.sqrt(gaps.size)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / math.sqrt(gaps.size)


def test_poisson_counts_vary_by_their_mean():
    counts = counts_per_second(Poisson(100.0), 20_000, seed=2)
    assert abs(counts.mean() - 100) < 4 * math.sqrt(100 / 20_000)
    assert abs(counts.var() / 100 - 1) < 4 * math.sqrt(2 / 20_000)


@pytest.mark.parametrize("arrivals", [1, 100, BLOCK_ROWS, 5 * BLOCK_ROWS, 10**6, 10**12])
def test_the_time_of_the_nth_arrival_is_gamma_distributed(arrivals):
    # What the tree of shares must give at every depth: mean n, variance n, over many seeds.
    seeds = 3000
    waits = np.array(
        [float(unit_rate_times(arrivals - 1, arrivals, derive(s, "tree"))[0]) for s in range(seeds)]
    )
    assert abs(waits.mean() - arrivals) < 4 * math.sqrt(arrivals / seeds)
    spread = 2 + 6 / arrivals  # variance of the squared deviation of a gamma variable, in units of n^2
    assert abs(((waits - arrivals) ** 2).mean() / arrivals - 1) < 4 * math.sqrt(spread / seeds)


def test_blocks_are_independent_of_each_other():
    first, second = [], []
    for seed in range(3000):
        ends = unit_rate_times(0, 2 * BLOCK_ROWS, derive(seed, "tree"))
        first.append(ends[BLOCK_ROWS - 1])
        second.append(ends[-1] - ends[BLOCK_ROWS - 1])
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(3000)


@pytest.mark.parametrize("shape", [1.0, 2.5, 512.0])
def test_gamma_draws_have_their_moments(shape):
    drawn = np.array([gamma(shape, derive(i, "gamma")) for i in range(20_000)])
    assert abs(drawn.mean() - shape) < 4 * math.sqrt(shape / drawn.size)
    assert abs(((drawn - shape) ** 2).mean() / shape - 1) < 4 * math.sqrt((2 + 6 / shape) / drawn.size)
    third = ((drawn - shape) ** 3).mean()  # twice the shape: told apart from a normal variable's zero
    assert abs(third - 2 * shape) < 4 * math.sqrt(15 * shape**3 / drawn.size) + shape


def test_bursts_have_their_rate_and_their_length():
    process = Bursty(1000.0, burst_factor=20.0, burst_s=0.5, period_s=4.0)
    assert math.isclose(process.quiet_rate * (3.5 + 20 * 0.5) / 4.0, 1000.0)
    times = process.times(0, 1_000_000, seed=1)
    bins = np.bincount((times / 0.05).astype(np.int64))[:-1] / 0.05
    busy = bins > (process.quiet_rate * 5)
    # A burst covers ten bins of 0.05 s, two of them in part.
    assert 0.115 < busy.mean() < 0.135
    assert math.isclose(np.median(bins[~busy]), process.quiet_rate, rel_tol=0.05)
    assert math.isclose(np.median(bins[busy]), process.quiet_rate * 20, rel_tol=0.05)


def test_each_period_has_one_burst_at_its_own_moment():
    process = Bursty(10_000.0, burst_factor=1000.0, burst_s=0.01, period_s=1.0)
    times = process.times(0, process.arrived_by(200.0, seed=4), seed=4)
    period = times.astype(np.int64)
    middles = np.array([np.median(times[period == p] - p) for p in range(200)])
    widths = np.array([np.subtract(*np.percentile(times[period == p] - p, [75, 25])) for p in range(200)])
    assert (widths < 0.011).all()
    assert abs(middles.mean() - 0.5) < 4 * math.sqrt(1 / 12 / 200)
    assert middles.min() < 0.1
    assert middles.max() > 0.9


@pytest.mark.parametrize("seed", [1, 2])
def test_poisson_arrivals_have_hurst_exponent_one_half(seed):
    assert abs(hurst_exponent(Poisson(100.0), seconds=2**14, seed=seed) - 0.5) < 0.03


@pytest.mark.parametrize("hurst", [0.5, 0.6, 0.7, 0.8, 0.9])
def test_self_similar_arrivals_have_the_hurst_exponent_asked_for(hurst):
    process = SelfSimilar(100.0, hurst=hurst, variation=0.5)
    estimates = [hurst_exponent(process, seconds=2**14, seed=s) for s in range(4)]
    assert abs(np.mean(estimates) - hurst) < 0.04


@pytest.mark.parametrize("span_s", [1, 64, 1024])
def test_self_similar_variation_follows_its_law_over_the_seeds(span_s):
    process = SelfSimilar(1000.0, hurst=0.75, variation=0.4)
    arrived = np.array([process.arrived_by(float(span_s), seed=s) for s in range(2000)])
    relative = arrived / (1000.0 * span_s)
    assert abs(relative.mean() - 1) < 4 * relative.std() / math.sqrt(2000)
    expected = 0.4 * span_s ** (0.75 - 1)
    assert math.isclose(math.sqrt(((relative - 1) ** 2).mean()), expected, rel_tol=0.1)


def test_no_variation_is_poisson():
    counts = counts_per_second(SelfSimilar(100.0, variation=0.0), 5_000, seed=2)
    assert abs(counts.var() / 100 - 1) < 4 * math.sqrt(2 / 5_000)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Constant(0.0), "rate=0.0"),
        (lambda: Poisson(-1.0), "rate=-1.0"),
        (lambda: Poisson(float("inf")), "rate=inf"),
        (lambda: Bursty(10.0, burst_factor=0.5), "burst_factor=0.5"),
        (lambda: Bursty(10.0, burst_s=10.0, period_s=10.0), "burst_s=10.0"),
        (lambda: Bursty(10.0, period_s=0.0), "period_s=0.0"),
        (lambda: SelfSimilar(10.0, hurst=0.4), "hurst=0.4"),
        (lambda: SelfSimilar(10.0, hurst=1.0), "hurst=1.0"),
        (lambda: SelfSimilar(10.0, variation=-1.0), "variation=-1.0"),
    ],
)
def test_refuses_what_cannot_be(make, named):
    with pytest.raises(InvalidInputError) as refused:
        make()
    assert refused.value.asked == named
