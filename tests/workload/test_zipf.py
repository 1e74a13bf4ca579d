from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.workload.alias import alias_table
from semistream.workload.randomness import derive
from semistream.workload.zipf import SPLIT, TABLE_BITS, _table, fill_zipf, zipf_mass

EXPONENTS = [0.0, 0.5, 1.0, 1.5, 2.0]


def draw(n: int, exponent: float, rows: int, *, start: int = 0, seed: int = 1) -> np.ndarray:
    out = np.empty(rows, dtype=np.int64)
    fill_zipf(out, start, derive(seed, "zipf test"), n=n, exponent=exponent)
    return out


def exact_probabilities(n: int, exponent: float) -> np.ndarray:
    weights = np.array([k**-exponent for k in range(1, n + 1)])
    return weights / math.fsum(weights)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 4097])
def test_small_domains_match_exact_probabilities_rank_by_rank(n, exponent, chi_squared_z):
    ranks = draw(n, exponent, 2_000_000)
    observed = np.bincount(ranks, minlength=n)
    assert observed.size == n  # nothing outside 0..n-1
    expected = exact_probabilities(n, exponent)
    frequent = expected * ranks.size >= 10
    if frequent.sum() > 1:
        rest = ~frequent
        if expected[rest].sum() * ranks.size >= 10:
            observed = np.append(observed[frequent], observed[rest].sum())
            expected = np.append(expected[frequent], expected[rest].sum())
        else:
            observed, expected = observed[frequent], expected[frequent]
        assert chi_squared_z(observed, expected) < 4


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("n", [10**6 + 3, 10**8, 10**9])
def test_large_domains_match_exact_masses(n, exponent, chi_squared_z):
    ranks = draw(n, exponent, 4_000_000) + 1
    assert ranks.min() >= 1
    assert ranks.max() <= n
    # The first 50 ranks one by one, then ten bins for each power of ten; masses by generalised harmonic sums.
    edges = np.unique(np.concatenate([np.arange(50), np.geomspace(50, n, 80).astype(np.int64)]))
    edges[-1] = n
    cumulative = np.array([0.0 if e == 0 else zipf_mass(int(e), exponent) for e in edges])
    expected = np.diff(cumulative) / cumulative[-1]
    observed = np.diff(np.searchsorted(np.sort(ranks), edges, side="right"))
    enough = expected * ranks.size >= 20
    assert enough.sum() >= 20
    lost = ranks.size - observed[enough].sum()
    assert abs(lost - expected[~enough].sum() * ranks.size) < 4 * math.sqrt(20 * max(1, (~enough).sum()))
    assert chi_squared_z(observed[enough], expected[enough]) < 4


def test_the_statistic_tells_neighbouring_exponents_apart(chi_squared_z):
    observed = np.bincount(draw(1000, 1.0, 2_000_000), minlength=1000)
    assert chi_squared_z(observed, exact_probabilities(1000, 1.0)) < 4
    assert chi_squared_z(observed, exact_probabilities(1000, 1.01)) > 4


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_ranks_inside_a_segment_keep_their_slope(exponent):
    # Ranks 128..255 come in segments of two; drawn uniformly inside a segment, odd ranks would be half of them.
    n, rows, parts = 255, 4_000_000, 25
    counts = sum(np.bincount(draw(n, exponent, rows, start=i * rows), minlength=n) for i in range(parts))
    odd, even = counts[128::2].sum(), counts[127::2].sum()  # rank r is counts[r - 1]
    p = exact_probabilities(n, exponent)
    share = p[128::2].sum() / (p[128::2].sum() + p[127::2].sum())
    spread = math.sqrt(share * (1 - share) / (odd + even))
    assert abs(odd / (odd + even) - share) < 4 * spread
    assert abs(0.5 - share) > 3 * spread  # so that the line above can tell


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("n", [1, 100, 10**6, 10**9])
def test_the_table_holds_the_segments_weights_to_the_last_bits(n, exponent):
    table = [int(entry) for entry in _table(n, exponent)]
    slots = len(table)
    full = 1 << (64 - TABLE_BITS)
    masses = [0] * slots
    for slot, entry in enumerate(table):
        threshold, other = entry >> TABLE_BITS, entry & (slots - 1)
        masses[slot] += threshold
        masses[other] += full - threshold
    assert sum(masses) == 1 << 64
    weights = []
    for segment in range(slots):
        octave = max(segment // SPLIT - 1, 0)
        first = segment if segment < SPLIT else (SPLIT + segment % SPLIT) << octave
        weights.append((1 << octave) * first**-exponent if 1 <= first <= n else 0.0)
    total = math.fsum(weights)
    for mass, weight in zip(masses, weights, strict=True):
        assert math.isclose(mass / 2**64, weight / total, rel_tol=1e-14, abs_tol=2.0**-50)


@given(weights=st.lists(st.integers(0, 1000), min_size=1, max_size=16).filter(any))
def test_alias_tables_add_up_for_any_weights(weights):
    bits = 4
    masses = [0] * 16
    for slot, entry in enumerate(alias_table(np.array(weights, dtype=float), bits)):
        threshold, other = int(entry) >> bits, int(entry) & 15
        masses[slot] += threshold
        masses[other] += (1 << 60) - threshold
    for mass, weight in zip(masses, weights + [0] * 16, strict=False):
        assert math.isclose(mass / 2**64, weight / sum(weights), abs_tol=2.0**-50)


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.5, 0.999999, 1.0, 1.000001, 1.5, 2.0])
@pytest.mark.parametrize("n", [1, 2, 999, 1000, 1001, 5000, 300_000])
def test_zipf_mass_is_the_sum(n, exponent):
    direct = math.fsum(k**-exponent for k in range(1, n + 1))
    assert math.isclose(zipf_mass(n, exponent), direct, rel_tol=1e-13)


def test_zipf_mass_meets_its_limits():
    assert math.isclose(zipf_mass(10**9, 2.0), math.pi**2 / 6 - 1e-9, rel_tol=1e-12)
    assert math.isclose(zipf_mass(10**9, 1.0), math.log(10**9) + 0.5772156649015329 + 0.5e-9, rel_tol=1e-13)
    assert math.isclose(zipf_mass(10**9, 0.0), 1e9, rel_tol=1e-13)


@given(
    exponent=st.sampled_from(EXPONENTS), n=st.integers(1, 10**9), cuts=st.tuples(*[st.integers(0, 500)] * 2)
)
@settings(deadline=None, max_examples=50)
def test_a_draw_depends_on_its_position_only(exponent, n, cuts):
    a, b = sorted(cuts)
    assert np.array_equal(draw(n, exponent, 500)[a:b], draw(n, exponent, b - a, start=a))
