"""Zipf's law summed, and blocks of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.cost import popularity
from semistream.cost.hybrids import time_in_window, tuples_per_read, waiting
from semistream.cost.misses import Misses
from semistream.cost.popularity import Blocks, Ranks, by_rank, scattered
from semistream.cost.skew import check_skew, estimated_skew, expected_distinct
from semistream.errors import InvalidInputError
from semistream.workload import Zipf

SKEWS = (0.0, 0.5, 1.0, 1.5, 2.0)


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("rows", [1, 1_000, 3_000_000, 10**9])
def test_all_keys_together_are_the_stream(rows, skew):
    ranks = Ranks.of(rows, skew)
    assert ranks.total == pytest.approx(1.0, abs=1e-9)
    assert ranks.top(rows) == pytest.approx(1.0, abs=1e-9)
    if rows > 100:
        assert ranks.top(100) == pytest.approx(Zipf(rows, skew).share(100), rel=1e-9)


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("rows", [1_000, 40_000, 5_000_000])
@pytest.mark.parametrize("block_rows", [1.0, 34.0, 1000.0])
def test_all_blocks_together_are_the_stream(rows, skew, block_rows):
    ranks = Ranks.of(rows, skew)
    for blocks in (scattered(ranks, block_rows), by_rank(ranks, block_rows)):
        assert blocks.total == pytest.approx(1.0, rel=1e-6)
        assert blocks.count.sum() == pytest.approx(max(1, round(rows / block_rows)))
        assert (blocks.chance >= 0).all()


def test_blocks_by_rank_are_sums_of_neighbours():
    ranks = Ranks.of(100, 1.0)
    blocks = by_rank(ranks, 10)
    np.testing.assert_allclose(blocks.chance, ranks.chance.reshape(10, 10).sum(axis=1), rtol=1e-9)
    skipped = by_rank(ranks, 10, skip_rows=25)
    assert skipped.total == pytest.approx(ranks.chance[25:].sum())
    assert skipped.chance[0] == pytest.approx(ranks.chance[25:30].sum())


def test_popular_rows_are_scattered_as_they_usually_are(monkeypatch):
    ranks, reads = Ranks.of(40_000, 1.5), []
    for seed in range(8):  # with the rows scattered once each, these differ by 1.3 %
        monkeypatch.setattr(popularity, "_SEED", seed)
        blocks = scattered(ranks, 100)
        assert blocks.total == pytest.approx(1.0)
        reads.append(1 / tuples_per_read(blocks, time_in_window(blocks, 850.0)))
    assert np.std(reads) < 0.005 * np.mean(reads)


@given(st.integers(1, 50), st.floats(0.1, 40.0))
def test_a_window_is_as_full_as_it_is(count, window):
    blocks = Blocks(np.full(count, 1.0 / count), np.ones(count))
    time = time_in_window(blocks, window)
    assert waiting(blocks, time) == pytest.approx(window, rel=1e-6)
    # Every tuple that arrives is finished by some read: alike blocks are read in turn.
    assert tuples_per_read(blocks, time) == pytest.approx(1 + time / count, rel=1e-6)


def test_one_block_is_read_whenever_somebody_waits():
    one = Blocks(np.ones(1), np.ones(1))
    # T (1 + T / 2) / (1 + T) = 10, and 1 + T leave.
    assert tuples_per_read(one, time_in_window(one, 10.0)) == pytest.approx(10 + np.sqrt(101))


@pytest.mark.parametrize("skew", [0.0, 0.3, 0.7, 1.0, 1.3, 1.8])
def test_skew_is_found_in_a_sample(skew):
    keys = Zipf(200_000, skew).draw(0, 50_000, seed=3)
    assert estimated_skew(keys.astype(np.uint64), 200_000) == pytest.approx(skew, abs=0.05 if skew else 0.2)


@pytest.mark.parametrize(("keys", "skew"), [(2_000, 1.0), (500, 1.5), (500, 0.5), (50, 1.0)])
def test_skew_is_found_in_a_sample_that_has_every_key(keys, skew):
    codes = Zipf(keys, skew).draw(0, 200_000, seed=3).astype(np.uint64)
    assert estimated_skew(codes, keys) == pytest.approx(skew, abs=0.07)
    unknown = np.arange(1_000_000, 1_050_000, dtype=np.uint64)
    mixed = np.random.default_rng(1).permutation(np.concatenate([codes, unknown]))
    assert estimated_skew(mixed, keys, Misses(0.2, 0.2)) == pytest.approx(skew, abs=0.1)


def test_a_sample_without_any_row_says_nothing():
    with pytest.raises(InvalidInputError, match="0 tuples that have a row"):
        estimated_skew(np.arange(1_000, dtype=np.uint64), 5_000, Misses(1.0, 1.0))


def test_one_key_has_no_skew():
    assert estimated_skew(np.zeros(1_000, dtype=np.uint64), 1) == 0.0


def test_expected_distinct_of_few_keys_by_hand():
    assert expected_distinct(2, 2, 0.0) == pytest.approx(1.5)


@pytest.mark.parametrize("skew", [-0.1, 2.5, float("nan"), float("inf")])
def test_absurd_skew_is_refused(skew):
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        check_skew(skew)


def test_a_sample_too_small_is_refused():
    with pytest.raises(InvalidInputError, match="at least 200"):
        estimated_skew(np.zeros(10, dtype=np.uint64), 100)
