from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.workload import (
    ArrivalTime,
    Bursty,
    Constant,
    EveryKey,
    HotSpot,
    Key,
    Number,
    Poisson,
    Position,
    SelfSimilar,
    TemporalLocality,
    Text,
    Uniform,
    Workload,
    Zipf,
)

EVERY_COLUMN = (
    Position("sale_id"),
    Key("product_id"),
    Number("small", "int16", -5, 5),
    Number("quantity", "int32", 1, 9),
    Number("amount", "int64", -(10**12), -(10**12) + 10**6),
    Text("note", 21),
    ArrivalTime("event_time"),
)

workloads = st.builds(
    Workload,
    st.sampled_from(
        [
            Uniform(1000),
            Zipf(10**8),
            EveryKey(100, 3),
            HotSpot(1000, 10, drift_rows=100),
            TemporalLocality(500),
        ]
    ),
    st.none(),
    arrivals=st.sampled_from([Constant(5.0), Poisson(1e6), Bursty(100.0), SelfSimilar(1e4)]),
    missing_share=st.sampled_from([0.0, 0.1, 1.0]),
    columns=st.just(EVERY_COLUMN),
    seed=st.integers(0, 3),
)


@given(
    workload=workloads,
    cuts=st.lists(st.integers(0, 2500), min_size=3, max_size=3),
    far=st.sampled_from([0, 10**11]),
)
@settings(deadline=None, max_examples=60)
def test_a_slice_is_the_sum_of_its_parts(workload, cuts, far):
    a, b, c = (far + cut for cut in sorted(cuts))
    parts = pa.Table.from_batches([workload.slice(a, b), workload.slice(b, c)]).combine_chunks()
    assert pa.Table.from_batches([workload.slice(a, c)]).equals(parts)
    assert parts.schema == workload.schema


@given(batch_rows=st.integers(1, 700), start=st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_batches_are_the_stream_whatever_their_size(batch_rows, start):
    workload = Workload(Zipf(1000), 1000, columns=EVERY_COLUMN, arrivals=Poisson(100.0))
    batches = list(workload.batches(batch_rows=batch_rows, start=start))
    assert all(b.num_rows == batch_rows for b in batches[:-1])
    together = pa.Table.from_batches(batches, workload.schema).combine_chunks()
    assert together.equals(pa.Table.from_batches([workload.slice(start, 1000)]))


def test_a_stream_without_end_goes_on():
    workload = Workload(Zipf(1000))
    batches = list(islice(workload.batches(batch_rows=100), 5))
    assert sum(b.num_rows for b in batches) == 500
    assert workload.total_rows is None
    with pytest.raises(InvalidInputError, match="without end"):
        workload.reader()


def test_a_reader_gives_everything_once():
    workload = Workload(EveryKey(1000), 1000, columns=(Position("id"), Key("k")))
    table = workload.reader(batch_rows=77).read_all()
    assert table["id"].to_pylist() == list(range(1000))
    assert sorted(table["k"].to_pylist()) == list(range(1000))


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_the_share_of_missing_keys_is_the_one_asked_for(share):
    workload = Workload(Zipf(10_000), 400_000, missing_share=share, columns=(Key("k"),))
    keys = workload.slice(0, 400_000)["k"].to_numpy()
    missing = keys >= 10_000
    assert abs(missing.mean() - share) <= 4 * math.sqrt(share * (1 - share) / keys.size)
    assert keys.max() < 20_000
    if share > 0:
        assert np.unique(keys[missing]).size > 8_000  # spread over 10,000 keys that the master does not have


def test_the_keys_that_are_not_missing_are_those_of_the_stream_without():
    plain = Workload(Zipf(10_000), 1000, columns=(Key("k"),)).slice(0, 1000)["k"].to_numpy()
    holed = (
        Workload(Zipf(10_000), 1000, missing_share=0.3, columns=(Key("k"),)).slice(0, 1000)["k"].to_numpy()
    )
    assert np.array_equal(holed[holed < 10_000], plain[holed < 10_000])


def test_sales_are_twenty_bytes():
    workload = Workload(Zipf(10))
    assert workload.schema.names == ["product_id", "quantity", "event_time"]
    assert workload.tuple_bytes == 20
    assert workload.slice(0, 1000).nbytes == 20_000


def test_arrival_times_count_from_the_beginning():
    begin = datetime(2030, 6, 1, 12, tzinfo=UTC)
    workload = Workload(Zipf(10), 100, arrivals=Constant(10.0), starts_at=begin)
    times = workload.slice(0, 100)["event_time"].to_pylist()
    assert [round((t - begin).total_seconds(), 6) for t in times] == [
        round((i + 1) / 10, 6) for i in range(100)
    ]


def test_arrived_by_never_passes_the_end():
    workload = Workload(Zipf(10), 100, arrivals=Constant(10.0))
    assert [workload.arrived_by(s) for s in (0.0, 1.0, 9.95, 1e9)] == [0, 10, 99, 100]


def test_numbers_fill_their_range_evenly(chi_squared_z):
    batch = Workload(Zipf(10), columns=EVERY_COLUMN).slice(0, 90_000)
    assert chi_squared_z(np.bincount(batch["quantity"].to_numpy())[1:], np.full(9, 1 / 9)) < 4
    assert chi_squared_z(np.bincount(batch["small"].to_numpy() + 5), np.full(11, 1 / 11)) < 4
    amounts = batch["amount"].to_numpy()
    assert amounts.min() >= -(10**12)
    assert amounts.max() <= -(10**12) + 10**6


def test_columns_are_independent_of_the_keys_and_of_each_other():
    batch = Workload(Uniform(1000), columns=(Key("k"), *EVERY_COLUMN[2:4])).slice(0, 200_000)
    values = np.array([batch[c].to_numpy().astype(float) for c in ("k", "small", "quantity")])
    correlation = np.corrcoef(values)
    assert np.abs(correlation[~np.eye(3, dtype=bool)]).max() < 4 / math.sqrt(200_000)


def test_text_has_its_width_and_hardly_repeats():
    notes = Workload(Zipf(10), columns=(Text("note", 21),)).slice(0, 5_000)["note"].to_pylist()
    assert {len(n) for n in notes} == {21}
    assert len(set(notes)) == 5_000
    assert all(n.isascii() and n.islower() for n in notes)


def test_a_workload_is_a_value():
    one, other = Workload(Zipf(10), 5), Workload(Zipf(10), 5)
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    assert replace(one, seed=1) != one
    with pytest.raises(FrozenInstanceError):
        one.seed = 3


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rows": -1}, "rows=-1"),
        ({"rows": 2**44 + 1}, f"rows={2**44 + 1}"),
        ({"missing_share": 1.1}, "missing_share=1.1"),
        ({"missing_share": -0.1}, "missing_share=-0.1"),
        ({"columns": ()}, "columns=[]"),
        ({"columns": (Key("a"), Position("a"))}, "columns=['a', 'a']"),
        ({"starts_at": datetime(2024, 1, 1)}, "starts_at=2024-01-01 00:00:00"),
    ],
)
def test_refuses_what_cannot_be(changes, named):
    with pytest.raises(InvalidInputError) as refused:
        Workload(Zipf(10), **changes)
    assert refused.value.asked == named


@pytest.mark.parametrize("bounds", [(-1, 5), (5, 4), (0, 101)])
def test_refuses_a_slice_outside_the_stream(bounds):
    with pytest.raises(InvalidInputError, match="100 rows"):
        Workload(Zipf(10), 100).slice(*bounds)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Number("n", "int16", 0, 40_000),
        lambda: Number("n", "int32", 5, 4),
        lambda: Number("n", "int8", 0, 1),
        lambda: Text("t", 0),
    ],
)
def test_refuses_columns_that_cannot_be(make):
    with pytest.raises(InvalidInputError):
        make()
