from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.workload.permutation import Permutation

keys = st.integers(0, 2**64 - 1)


@given(n=st.integers(1, 3000), key=keys)
@settings(deadline=None)
def test_is_one_to_one(n, key):
    images = Permutation(n, key=key).apply(np.arange(n))
    assert np.array_equal(np.sort(images), np.arange(n))


@pytest.mark.parametrize("n", [2**20, 2**20 - 1, 2**20 + 1, 10**6, 3_000_017])
def test_is_one_to_one_on_large_domains(n):
    images = Permutation(n, key=5).apply(np.arange(n))
    assert np.array_equal(np.bincount(images, minlength=n), np.ones(n))


@given(n=st.integers(10**6, 10**9), key=keys, start=st.integers(0, 10**6 - 1000))
@settings(deadline=None)
def test_stays_in_the_domain_and_apart(n, key, start):
    images = Permutation(n, key=key).apply(np.arange(start, start + 1000))
    assert images.min() >= 0
    assert images.max() < n
    assert np.unique(images).size == 1000


@pytest.mark.parametrize("n", [10**6, 2**24, 10**8, 10**9])
def test_scatters_the_first_ranks_evenly(n, chi_squared_z):
    images = Permutation(n, key=11).apply(np.arange(100_000))
    observed = np.bincount(images * 1000 // n, minlength=1000)
    edges = -(-np.arange(1001) * n // 1000)
    # Without replacement, so a little more even than independent draws when n is small; never less.
    assert chi_squared_z(observed, np.diff(edges).astype(float)) < 4


@pytest.mark.parametrize("n", [10**6, 10**8, 10**9])
def test_neighbours_in_rank_are_no_neighbours_in_key(n, chi_squared_z):
    images = Permutation(n, key=3).apply(np.arange(200_001))
    gaps = np.diff(images) % n
    observed = np.bincount(gaps * 200 // n, minlength=200)
    assert chi_squared_z(observed, np.full(200, 1 / 200)) < 4


def test_pages_share_hot_rows_as_if_by_chance():
    # 100,000 hot keys on a million pages of 100 rows: the number of pages with k hot rows is Poisson with mean 0.1.
    images = Permutation(10**8, key=9).apply(np.arange(100_000))
    hot = np.bincount(np.bincount(images // 100, minlength=10**6), minlength=3)
    expected = 10**6 * np.exp(-0.1) * np.array([1.0, 0.1, 0.005])
    assert abs(hot[1] - expected[1]) < 4 * np.sqrt(expected[1])
    assert abs(hot[2] - expected[2]) < 4 * np.sqrt(expected[2])


def test_every_key_is_its_own_permutation():
    images = {Permutation(1000, key=k).apply(np.arange(1000)).tobytes() for k in range(200)}
    assert len(images) == 200


def test_every_place_is_equally_likely_over_the_keys(chi_squared_z):
    for rank in (0, 3, 9):
        landed = np.array([int(Permutation(10, key=k).apply(np.array([rank]))[0]) for k in range(3000)])
        assert chi_squared_z(np.bincount(landed, minlength=10), np.full(10, 0.1)) < 4


def test_the_input_is_left_alone():
    values = np.arange(10)
    Permutation(10, key=1).apply(values)
    assert values.tolist() == list(range(10))


@pytest.mark.parametrize("n", [0, -1, 10**9 + 1, 1.5])
def test_refuses_a_size_it_cannot_have(n):
    with pytest.raises(InvalidInputError, match="n="):
        Permutation(n, key=1)
