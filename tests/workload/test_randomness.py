from __future__ import annotations

import numpy as np
import pytest

from semistream.workload.randomness import STEP, below, derive, integers, mix, unit, units_at

MASK = (1 << 64) - 1


def test_the_hash_is_splitmix64():
    # The sequence for seed 1234567 that implementations of splitmix64 are checked against.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    states = [(1234567 + (i + 1) * int(STEP)) & MASK for i in range(4)]
    assert [int(mix(np.uint64(s))) for s in states] == published


@pytest.mark.parametrize("bound", [1, 2, 3, 6, 1000, 2**20 + 1])
def test_integers_are_uniform(bound, chi_squared_z):
    drawn = integers(0, 2_000_000, derive(1, "uniform"), bound)
    assert drawn.min() == 0
    assert drawn.max() == bound - 1 if bound <= 1000 else drawn.max() < bound
    if bound > 1:
        bins = min(bound, 1000)
        edges = np.arange(bins + 1) * bound // bins
        observed = np.histogram(drawn, edges)[0]
        assert chi_squared_z(observed, np.diff(edges).astype(float)) < 4


def test_a_bound_that_does_not_divide_the_word_favours_no_number(chi_squared_z):
    # 2^34 / (3 * 2^28) is 21.3: without the second draws, one number in three would come 22 times for the others' 21.
    drawn = integers(0, 3_000_000, derive(2, "wide"), 3 * 2**28)
    assert chi_squared_z(np.bincount(drawn % 3), np.full(3, 1 / 3)) < 4
    assert chi_squared_z(np.bincount(drawn % 3), np.array([22.0, 21.0, 21.0])) > 4


def test_a_bound_of_one_leaves_no_choice():
    assert int(below(np.uint64(5), np.uint64(1))) == 0


def test_units_stay_inside_the_open_interval():
    assert 0.0 < float(unit(np.uint64(0))) < 1e-15
    assert 1.0 - 1e-15 < float(unit(np.uint64(MASK))) < 1.0


def test_units_have_the_moments_of_the_uniform_law():
    drawn = units_at(np.arange(1_000_000), derive(3, "units"))
    assert abs(drawn.mean() - 0.5) < 4 * np.sqrt(1 / 12 / drawn.size)
    assert abs((drawn**2).mean() - 1 / 3) < 4 * np.sqrt((1 / 5 - 1 / 9) / drawn.size)


@pytest.mark.parametrize("shift", [0, 1, 2, 64, 1024])
def test_purposes_and_neighbours_are_uncorrelated(shift):
    n = 1_000_000
    one = units_at(np.arange(n), derive(1, "keys"))
    other = units_at(np.arange(shift, shift + n), derive(1, "keys" if shift else "quantity"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(n)


def test_seeds_and_purposes_give_different_keys():
    keys = {
        int(derive(seed, purpose)) for seed in range(-50, 50) for purpose in ("keys", "arrivals", "missing")
    }
    assert len(keys) == 300
