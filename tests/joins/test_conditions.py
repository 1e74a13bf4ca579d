"""Joins by more than equal keys, against two nested loops."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.errors import SemistreamError
from semistream.joins import Between, Settings

NUMBERS = st.none() | st.integers(-5, 25)
SMALL = Settings(disk_buffer=8192, per_step=7)


def loops(stream: pa.Table, master: pa.Table, how: str, holds, drop: tuple[str, ...] = ()) -> Counter:
    out: Counter = Counter()
    width = len(master.column_names) - len(drop)
    for s in stream.to_pylist():
        found = [m for m in master.to_pylist() if holds(s, m)]
        for m in found:
            out[(*s.values(), *(v for k, v in m.items() if k not in drop))] += 1
        if not found and how == "left":
            out[(*s.values(), *(None,) * width)] += 1
    return out


def run(stream: pa.Table, built: ss.Master, rows: int, **options) -> Counter:
    joined = ss.join(
        pa.RecordBatchReader.from_batches(stream.schema, iter(stream.to_batches(max_chunksize=rows))),
        built,
        disk="buffered",
        memory=300_000,
        settings=SMALL,
        **options,
    )
    out = Counter(tuple(row.values()) for batch in joined for row in batch.to_pylist())
    assert joined.stats.tuples == joined.stats.answered == len(stream)
    assert joined.stats.rows == sum(out.values())
    return out


def inside(s: dict, m: dict) -> bool:
    return (
        s["t"] is not None
        and (m["lo"] is None or m["lo"] <= s["t"])
        and (m["hi"] is None or s["t"] <= m["hi"])
    )


def tables(drawn, kind: pa.DataType) -> tuple[pa.Table, pa.Table]:
    number = (
        NUMBERS if not pa.types.is_floating(kind) else NUMBERS.map(lambda v: None if v is None else v / 2)
    )
    masters = drawn.draw(st.lists(st.tuples(st.integers(0, 4), number, number), max_size=120))
    streams = drawn.draw(st.lists(st.tuples(st.none() | st.integers(0, 5), number), max_size=80))
    k, lo, hi = zip(*masters, strict=True) if masters else ((), (), ())
    master = pa.table(
        {
            "k": pa.array(k, pa.int64()),
            "lo": pa.array(lo, kind),
            "hi": pa.array(hi, kind),
            "v": list(range(len(k))),
        },
        schema=pa.schema({"k": pa.int64(), "lo": kind, "hi": kind, "v": pa.int64()}),
    )
    key, t = zip(*streams, strict=True) if streams else ((), ())
    stream = pa.table({"k": pa.array(key, pa.int64()), "t": pa.array(t, kind), "n": pa.array(range(len(t)))})
    return master, stream


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "cmeshjoin", "in-memory", "auto"])
@given(drawn=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_equal_keys_and_a_range(algorithm, drawn, tmp_path_factory):
    """A slowly changing dimension: several rows a key, each valid for a while."""
    master, stream = tables(drawn, pa.int64())
    built = ss.build_master(
        master,
        tmp_path_factory.mktemp("m") / "s",
        key="k",
        layout=drawn.draw(st.sampled_from(["key", "heap"])),
        page_bytes=4096,
    )
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    got = run(
        stream,
        built,
        drawn.draw(st.integers(1, 40)),
        on="k",
        how=how,
        algorithm=algorithm,
        condition=Between("t", "lo", "hi"),
    )
    want = loops(
        stream, master, how, lambda s, m: s["k"] == m["k"] and s["k"] is not None and inside(s, m), ("k",)
    )
    assert got == want


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.float64(), pa.timestamp("us"), pa.date32()])
@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin"])
@given(drawn=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_range_alone(algorithm, kind, drawn, tmp_path_factory):
    master, stream = tables(drawn, kind)
    built = ss.build_master(master, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    got = run(
        stream.select(["t", "n"]),
        built,
        drawn.draw(st.integers(1, 40)),
        how=how,
        algorithm=algorithm,
        condition=Between("t", "lo", "hi"),
    )
    stored = pa.Table.from_batches(built.scan(), schema=built.schema)
    assert got == loops(stream.select(["t", "n"]), stored, how, inside)


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "cmeshjoin"])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_any_predicate(algorithm, how, tmp_path):
    master = pa.table({"k": list(range(40)), "v": [i * 7 % 11 for i in range(40)]})
    stream = pa.table({"a": [3, 5, None, 40, 7], "n": list(range(5))})
    built = ss.build_master(master, tmp_path / "s", key="k", page_bytes=4096)
    got = run(
        stream,
        built,
        2,
        how=how,
        algorithm=algorithm,
        condition=lambda pairs: pc.equal(pairs["a"], pc.add(pairs["v"], 2)),
    )
    assert got == loops(stream, master, how, lambda s, m: s["a"] is not None and s["a"] == m["v"] + 2)


def test_a_range_alone_does_not_try_every_pair(tmp_path):
    tried = []

    class Watched(Between):
        def __call__(self, pairs):
            tried.append(len(pairs))
            return super().__call__(pairs)

    master = pa.table({"k": list(range(1000)), "lo": list(range(1000)), "hi": list(range(1000))})
    built = ss.build_master(master, tmp_path / "s", key="k", page_bytes=4096)
    stream = pa.table({"t": list(range(500))})
    run(stream, built, 100, algorithm="meshjoin", condition=Watched("t", "lo", "hi"))
    assert sum(tried) == 500


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to join by"),
        (
            {"on": "k", "condition": Between("t", "lo", "hi"), "algorithm": "hybridjoin"},
            "Use one of meshjoin",
        ),
        ({"condition": Between("t", "lo", "hi"), "algorithm": "in-memory"}, "Use meshjoin, which scans"),
        ({"on": "k", "condition": Between("t", "lo", "x")}, "add it to columns="),
        ({"on": "k", "condition": Between("t", "lo", "hi"), "columns": ["lo"]}, "'hi' must be one of them"),
        ({"on": "k", "condition": Between("x", "lo", "hi")}, "a stream without 'x'"),
        ({"on": "k", "condition": Between("f", "lo", "hi")}, "Cast the stream's column"),
        ({"on": "k", "condition": Between("w", "name", "name")}, "Use numbers, dates, times"),
        ({"on": "k", "condition": lambda _: [1]}, "Give one boolean for each row"),
    ],
)
def test_bad_conditions_are_explained(options, message, tmp_path):
    master = pa.table({"k": [1], "lo": [0], "hi": [9], "name": ["x"]})
    built = ss.build_master(master, tmp_path / "s", key="k")
    stream = pa.table({"k": [1], "t": [5], "f": [0.5], "w": ["a"]})
    with pytest.raises(SemistreamError, match=message):
        list(ss.join(stream, built, **options))
