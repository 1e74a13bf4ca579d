"""Strings that turn out longer than the first tuples made one expect: the window is divided anew, nobody is lost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import expected, multiset

import semistream as ss
from semistream.errors import InvalidInputError

WITH_WINDOW = [name for name in ss.ALGORITHMS if name not in ("auto", "in-memory")]


def batches_of(lengths, keys, rows=300):
    """One batch a length, of tuples with strings of about that length."""
    generator = np.random.default_rng(3)
    number = 0
    for length in lengths:
        texts = [f"{number + i:06d}" * (length // 6) or None for i in range(rows)]
        yield pa.record_batch(
            {
                "k": generator.integers(0, keys, rows),
                "s": pa.array(texts, pa.string()),
                "n": np.arange(number, number + rows),
            }
        )
        number += rows


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    numbers = np.arange(3_000)
    rows = pa.table({"k": numbers, "v": numbers * 7})
    return rows, ss.build_master(rows, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)


@pytest.mark.parametrize("algorithm", WITH_WINDOW)
@given(lengths=st.lists(st.sampled_from([0, 6, 60, 600, 6_000]), min_size=2, max_size=6))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_tuple_is_answered_once_within_the_budget(algorithm, lengths, master):
    rows, store = master
    batches = list(batches_of(lengths, keys=3_300))
    joined = ss.join(batches, store, on="k", how="left", algorithm=algorithm, memory=200_000)
    out = []
    for batch in joined:
        out.append(batch)
        assert joined.stats.used_bytes <= 200_000
    got = multiset(pa.Table.from_batches(out))
    assert got == expected(pa.Table.from_batches(batches), rows, ["k"], "left")


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "cmeshjoin"])
def test_the_window_fills_again_once_it_knows_better(algorithm, master):
    """Not only the longest tuple fits: after short strings as many wait as if the long ones had come first."""
    _, store = master

    def most_waiting(lengths):
        joined = ss.join(
            batches_of(lengths, keys=3_000, rows=2_000), store, on="k", algorithm=algorithm, memory=300_000
        )
        most = 0
        for _ in joined:
            most = max(most, joined.stats.admitted - (joined.stats.answered - joined.stats.front_hits))
        return most

    assert most_waiting([0, 120, 120, 120]) >= 0.8 * most_waiting([120, 120, 120, 120])


def advances(algorithm, store, batches, memory=400_000):
    joined = ss.join(batches, store, on="k", how="left", algorithm=algorithm, memory=memory)
    rows = sum(len(batch) for batch in joined)
    return joined.stats.advances, rows


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "hybridjoin"])
def test_small_batches_do_not_keep_the_window_from_being_divided(algorithm, tmp_path):
    """What is let in after the window was emptied may fit into it as it was: it is divided all the same."""
    numbers = np.arange(30_000)
    store = ss.build_master(pa.table({"k": numbers, "v": numbers}), tmp_path / "s", key="k", page_bytes=4096)

    def cut(lengths):
        return [b.slice(i, 50) for b in batches_of(lengths, 30_000, 2_000) for i in range(0, 2_000, 50)]

    grown, rows = advances(algorithm, store, cut([12, 120, 120, 120]))
    known, _ = advances(algorithm, store, cut([120, 120, 120, 120]))
    assert rows == 8_000
    assert grown <= 1.5 * known


@pytest.mark.parametrize("algorithm", ["r-meshjoin", "hybridjoin"])
def test_one_long_string_does_not_shrink_the_window_for_good(algorithm, master):
    _, store = master
    short = list(batches_of([12] * 8, keys=3_000, rows=1_000))
    long = list(batches_of([12, 100_002], keys=3_000, rows=1))[1:]
    usual, _ = advances(algorithm, store, short)
    once, rows = advances(algorithm, store, [*short[:2], *long, *short[2:]])
    assert rows == 8_001
    assert once <= 2 * usual + 20


@pytest.mark.parametrize("length", [150_000, 240_000, 270_000])
def test_a_string_that_fits_alone_is_taken(length, master):
    """Of the 400,000 bytes some 300,000 are the window's: even where no second tuple has a place beside it."""
    _, store = master
    _, rows = advances("hybridjoin", store, list(batches_of([6, length, 6], keys=3_000, rows=1)))
    assert rows == 3


def test_tuples_that_have_begun_find_their_places_again(tmp_path):
    """In the snapshot are short tuples that have met a part of the master, and long ones that have met nothing."""
    numbers = np.arange(60_000)
    rows = pa.table({"k": numbers, "v": numbers})
    store = ss.build_master(rows, tmp_path / "s", key="k", page_bytes=4096)
    batches = [*batches_of([12], 60_000, rows=500), *list(batches_of([6, 4_002], 60_000, rows=200))[1:]]
    options = {"on": "k", "how": "left", "algorithm": "r-meshjoin", "memory": 400_000, "disk": "buffered"}
    joined = ss.join(iter(batches), store, **options)
    out = []
    for _ in range(4):
        out += [next(joined), *joined.ready()]
    snapshot = joined.snapshot()
    met = np.array(snapshot["semistream_pages_met"].to_pylist())
    assert (met > 0).sum() > 300
    assert (met == 0).sum() > 100
    nothing = pa.Table.from_batches([], schema=batches[0].schema)
    out += list(ss.join(nothing, store, resume=snapshot, **options))
    got = multiset(pa.Table.from_batches(out))
    assert got == expected(pa.Table.from_batches(batches), rows, ["k"], "left")


def test_a_string_longer_than_the_memory_is_an_error_that_says_so(master):
    _, store = master
    batches = batches_of([6, 600_000], keys=3_000, rows=2)
    with pytest.raises(InvalidInputError, match="Raise memory="):
        list(ss.join(batches, store, on="k", algorithm="hybridjoin", memory=300_000))
