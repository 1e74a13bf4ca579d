from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.workload import EveryKey, HotSpot, TemporalLocality, Uniform, Zipf
from semistream.workload.cloud import Longitudes

DISTRIBUTIONS = [
    Uniform(1_000_003),
    Zipf(1_000_003),
    Zipf(10**9, 0.5, popularity="in-order"),
    EveryKey(100, 7),
    EveryKey(1_003, popularity="in-order"),
    HotSpot(10_007, 100, drift_rows=50),
    TemporalLocality(1_003, 4, interval_rows=77),
    Longitudes(),
]


@pytest.mark.parametrize("keys", DISTRIBUTIONS, ids=str)
@given(cuts=st.lists(st.integers(0, 400), min_size=3, max_size=3), offset=st.sampled_from([0, 1023, 10**12]))
@settings(deadline=None, max_examples=25)
def test_any_part_can_be_drawn_alone(keys, cuts, offset):
    a, b, c = (offset + cut for cut in sorted(cuts))
    whole = keys.draw(a, c, seed=5)
    assert np.array_equal(whole, np.concatenate([keys.draw(a, b, seed=5), keys.draw(b, c, seed=5)]))
    assert whole.dtype == np.int64
    assert ((whole >= 0) & (whole < keys.n_keys)).all()


@pytest.mark.parametrize(
    "keys", [k for k in DISTRIBUTIONS if k != EveryKey(1_003, popularity="in-order")], ids=str
)
def test_another_seed_gives_other_keys(keys):
    assert not np.array_equal(keys.draw(0, 200, seed=1), keys.draw(0, 200, seed=2))


def test_in_order_popularity_puts_the_hottest_key_first():
    counts = np.bincount(Zipf(1000, popularity="in-order").draw(0, 500_000, seed=1), minlength=1000)
    assert counts.argmax() == 0
    assert counts[:10].sum() > counts[10:100].sum() > counts[900:].sum()


def test_scattered_popularity_permutes_the_keys_and_nothing_else():
    ordered = Zipf(1000, popularity="in-order").draw(0, 100_000, seed=1)
    scattered = Zipf(1000, popularity="scattered").draw(0, 100_000, seed=1)
    key_of_rank = Zipf(1000).popular(1000, seed=1)
    assert np.array_equal(np.sort(key_of_rank), np.arange(1000))
    assert np.array_equal(scattered, key_of_rank[ordered])
    assert not np.array_equal(key_of_rank, np.arange(1000))


def test_popular_keys_are_the_ones_the_stream_asks_for_most():
    keys = Zipf(100_000, 1.2)
    counts = np.bincount(keys.draw(0, 1_000_000, seed=3), minlength=100_000)
    assert keys.popular(3, seed=3).tolist() == np.argsort(-counts)[:3].tolist()


@pytest.mark.parametrize("top", [1, 100, 50_000])
def test_share_is_what_the_top_keys_get(top):
    keys = Zipf(50_000, 0.8)
    drawn = keys.draw(0, 1_000_000, seed=4)
    observed = np.isin(drawn, keys.popular(top, seed=4)).mean()
    share = keys.share(top)
    assert abs(observed - share) <= 4 * math.sqrt(share * (1 - share) / drawn.size)


def test_every_key_comes_exactly_so_often_in_each_round():
    keys = EveryKey(500, 3)
    for start in (0, 1500):
        drawn = keys.draw(start, start + 1500, seed=2)
        assert np.array_equal(np.bincount(drawn), np.full(500, 3))
        assert not np.array_equal(drawn, np.sort(drawn))


def test_hot_spot_takes_its_share_inside_the_hot_set():
    keys = HotSpot(100_000, 1000, hot_probability=0.8, drift_rows=0, popularity="in-order")
    drawn = keys.draw(0, 400_000, seed=1)
    expected = 0.8 + 0.2 * 0.01  # the other tuples ask for any key, so for a hot one, too
    assert abs((drawn < 1000).mean() - expected) < 4 * math.sqrt(expected * (1 - expected) / drawn.size)


@pytest.mark.parametrize("popularity", ["in-order", "scattered"])
def test_hot_set_moves_by_its_width_and_comes_round(popularity):
    keys = HotSpot(10_000, 100, hot_probability=1.0, drift_rows=5_000, popularity=popularity)
    early = set(keys.draw(0, 500, seed=1).tolist())
    later = set(keys.draw(10_000, 10_500, seed=1).tolist())
    a_round_later = set(keys.draw(5_000 * 100, 5_000 * 100 + 500, seed=1).tolist())
    assert early.isdisjoint(later)
    assert len(early) > 90
    assert len(early & a_round_later) > 90


def test_hot_set_slides_smoothly():
    keys = HotSpot(10_000, 100, hot_probability=1.0, drift_rows=5_000, popularity="in-order")
    drawn = keys.draw(0, 20_000, seed=1)
    firsts = np.array([keys.hot_ranks_at(p)[0] for p in range(20_000)])
    assert firsts[0] == 0
    assert firsts[-1] == 399  # 19,999 rows of drift are just short of four widths
    assert ((drawn >= firsts) & (drawn < firsts + 100)).all()


def test_hot_set_is_right_far_into_the_stream():
    keys = HotSpot(10**9, 10**8, hot_probability=1.0, drift_rows=999_999_937, popularity="in-order")
    position = 10**13
    first, after = keys.hot_ranks_at(position)
    drawn = keys.draw(position, position + 1000, seed=1)
    assert ((drawn - first) % 10**9 <= after - first).all()


def test_each_interval_asks_for_its_own_part_by_zipfs_law(chi_squared_z):
    keys = TemporalLocality(2_500, 25, interval_rows=100_000, popularity="in-order")
    expected = np.array([1 / k for k in range(1, 101)])
    for interval in (0, 12, 24, 25):
        drawn = keys.draw(interval * 100_000, (interval + 1) * 100_000, seed=1)
        first, after = keys.domain(interval)
        assert (first, after) == (interval % 25 * 100, interval % 25 * 100 + 100)
        assert chi_squared_z(np.bincount(drawn - first, minlength=100), expected) < 4


def test_intervals_cover_the_keys_when_they_do_not_divide():
    keys = TemporalLocality(1_003, 25)
    bounds = [keys.domain(i) for i in range(25)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 1_003
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    assert {b - a for a, b in bounds} == {40, 41}


def test_the_papers_set_up_is_the_default():
    # CACHING 5.2.1: R = 100 M rows, N = 10: 10 M keys, 25 intervals of 2 M tuples, 0.4 M keys each.
    keys = TemporalLocality(100_000_000 // 10)
    assert keys.intervals * keys.interval_rows == 50_000_000
    assert keys.domain(1) == (400_000, 800_000)
    assert keys.exponent == 1.0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Zipf(100, 2.1), "exponent=2.1"),
        (lambda: Zipf(100, -0.1), "exponent=-0.1"),
        (lambda: Zipf(100, float("nan")), "exponent=nan"),
        (lambda: Zipf(0), "n_keys=0"),
        (lambda: Zipf(10**9 + 1), "n_keys=1000000001"),
        (lambda: Zipf(100.0), "n_keys=100.0"),
        (lambda: Zipf(True), "n_keys=True"),
        (lambda: Zipf(100, popularity="sorted"), "popularity='sorted'"),
        (lambda: Zipf(100).share(0), "top=0"),
        (lambda: Uniform(-1), "n_keys=-1"),
        (lambda: EveryKey(10**9, 2), "times=2"),
        (lambda: HotSpot(10, 11), "hot_keys=11"),
        (lambda: HotSpot(10, 1, hot_probability=1.5), "hot_probability=1.5"),
        (lambda: HotSpot(10, 1, drift_rows=-1), "drift_rows=-1"),
        (lambda: TemporalLocality(10, 11), "intervals=11"),
        (lambda: TemporalLocality(100, interval_rows=0), "interval_rows=0"),
    ],
)
def test_refuses_what_cannot_be(make, named):
    with pytest.raises(InvalidInputError) as refused:
        make()
    assert refused.value.asked == named
    assert refused.value.hint
