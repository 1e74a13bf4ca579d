from __future__ import annotations

from datetime import UTC, datetime

import pytest

from semistream.errors import InvalidInputError
from semistream.workload import (
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
from semistream.workload.cloud import REPORT, Longitudes
from semistream.workload.options import ARRIVALS, KEYS, parse_source
from semistream.workload.retail import Products


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"n_keys": "10"}, Zipf(10)),
        ({"keys": "uniform", "n_keys": "10"}, Uniform(10)),
        (
            {"keys": "zipf", "n_keys": "1_000", "exponent": "0.5", "popularity": "in-order"},
            Zipf(1000, 0.5, popularity="in-order"),
        ),
        (
            {"keys": "hot-spot", "n_keys": "10", "hot_keys": "2", "drift_rows": "0"},
            HotSpot(10, 2, drift_rows=0),
        ),
        (
            {"keys": "temporal-locality", "n_keys": "100", "interval_rows": "7"},
            TemporalLocality(100, interval_rows=7),
        ),
        ({"keys": "every-key", "n_keys": "10", "times": "3"}, EveryKey(10, 3)),
        ({"keys": "longitudes"}, Longitudes()),
    ],
)
def test_keys_from_text(options, keys):
    assert Workload.from_options(options).keys == keys


@pytest.mark.parametrize(
    ("options", "arrivals"),
    [
        ({}, Constant()),
        ({"arrivals": "constant", "rate": "5"}, Constant(5.0)),
        ({"arrivals": "poisson", "rate": "100000"}, Poisson(100_000.0)),
        (
            {"arrivals": "bursty", "burst_s": "0.5", "burst_factor": "3"},
            Bursty(burst_s=0.5, burst_factor=3.0),
        ),
        (
            {"arrivals": "self-similar", "hurst": "0.9", "variation": "1"},
            SelfSimilar(hurst=0.9, variation=1.0),
        ),
    ],
)
def test_arrivals_from_text(options, arrivals):
    assert Workload.from_options({"n_keys": "10"} | options).arrivals == arrivals


def test_the_rest_from_text():
    workload = Workload.from_options(
        {
            "N_Keys": "10",
            "rows": "1_000",
            "seed": "7",
            "missing_share": "0.25",
            "starts_at": "2030-01-01T00:00:00",
            "columns": "id:position, k:key,q:int16:-3:3,note:text:9",
        }
    )
    assert workload == Workload(
        Zipf(10),
        1000,
        seed=7,
        missing_share=0.25,
        starts_at=datetime(2030, 1, 1, tzinfo=UTC),
        columns=(Position("id"), Key("k"), Number("q", "int16", -3, 3), Text("note", 9)),
    )


def test_defaults_are_those_of_the_class():
    assert Workload.from_options({"n_keys": "10"}) == Workload(Zipf(10))


def test_cloud_reports_bring_their_columns():
    assert Workload.from_options({"keys": "longitudes"}).columns == REPORT


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("arrivals", ARRIVALS)
def test_every_combination_can_be_asked_for(keys, arrivals):
    needed = {"n_keys": "100", "hot_keys": "10"} if keys == "hot-spot" else {"n_keys": "100"}
    options = {"keys": keys, "arrivals": arrivals, "rows": "10"} | ({} if keys == "longitudes" else needed)
    assert Workload.from_options(options).slice(0, 10).num_rows == 10


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_keys": "10", "exponnent": "1"}, "Did you mean 'exponent'?"),
        ({"n_keys": "10", "missing": "1"}, "Did you mean 'missing_share'?"),
        ({"n_keys": "10", "keys": "uniform", "exponent": "1"}, "It belongs to zipf, temporal-locality."),
        ({"n_keys": "10", "hurst": "0.8"}, "It belongs to self-similar."),
        ({"n_keys": "10", "xyzzy": "1"}, "The options are "),
        ({"n_keys": "10", "keys": "zipfian"}, "Choose one of uniform, zipf,"),
        ({"n_keys": "10", "arrivals": "random"}, "Choose one of constant, poisson,"),
        ({}, "Set the option n_keys."),
        ({"n_keys": "ten"}, "not a whole number"),
        ({"n_keys": "10", "exponent": "steep"}, "not a number"),
        ({"n_keys": "10", "exponent": "3"}, "outside 0..2"),
        ({"n_keys": "10", "rows": "1e6"}, "not a whole number"),
        ({"n_keys": "10", "starts_at": "yesterday"}, "no moment in it"),
        ({"n_keys": "10", "columns": "k:float"}, "Write name:key"),
        ({"n_keys": "10", "columns": ":key"}, "Write name:key"),
        ({"n_keys": "10", "columns": "q:int32:one:two"}, "Write name:key"),
        ({"n_keys": "10", "popularity": "sorted"}, "Choose one of scattered, in-order"),
    ],
)
def test_what_cannot_be_read_is_named(options, says):
    with pytest.raises(InvalidInputError) as refused:
        Workload.from_options(options)
    assert says in str(refused.value)


def test_other_sources_from_text(tmp_path):
    assert parse_source({"dataset": "products", "rows": "5", "seed": "3"}) == Products(5, 3)
    assert parse_source({"n_keys": "10"}) == Workload(Zipf(10))
    for options, says in [
        ({"dataset": "products"}, "Set the option rows."),
        ({"dataset": "products", "rows": "5", "exponent": "1"}, "no such option for dataset=products"),
        ({"dataset": "trace"}, "Set the option path."),
        ({"dataset": "customers"}, "Choose one of stream, trace, products."),
        ({"path": str(tmp_path), "arival": "t"}, "Did you mean 'arrival'?"),
        ({"n_keys": "10", "partitons": "1"}, "Did you mean 'partitions'?"),
    ]:
        with pytest.raises(InvalidInputError) as refused:
            parse_source(options, also=("partitions",))
        assert says in str(refused.value)
