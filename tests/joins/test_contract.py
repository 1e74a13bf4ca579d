"""What every algorithm must hold, for every layout and kind of key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import expected, multiset

import semistream as ss
from semistream.errors import InvalidInputError, SemistreamError
from semistream.joins import Settings

FIXED = [name for name in ss.ALGORITHMS if name != "auto"]
AT_ONCE = "auto, each batch at once"  # what enrich() uses on Spark
SCANNING = {"meshjoin", "r-meshjoin", "cmeshjoin", "in-memory"}
KEYS = {
    "int64": st.integers(-20, 60),
    "int32": st.integers(-20, 60),
    "string": st.text("ab", max_size=5),
    "composite": st.tuples(st.integers(0, 5), st.text("ab", max_size=2)),
}


def named(algorithm: str) -> str:
    return "auto" if algorithm == AT_ONCE else algorithm


def table_of(kind: str, keys: list, extra: dict[str, pa.Array]) -> tuple[pa.Table, list[str]]:
    if kind == "composite":
        first = [None if k is None else k[0] for k in keys]
        second = [None if k is None else k[1] for k in keys]
        return pa.table({"a": pa.array(first, pa.int64()), "b": pa.array(second, pa.string()), **extra}), [
            "a",
            "b",
        ]
    types = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string()}
    return pa.table({"k": pa.array(keys, types[kind]), **extra}), ["k"]


def data(kind: str, master_keys: list, stream_keys: list) -> tuple[pa.Table, pa.Table, list[str]]:
    count = len(master_keys)
    payload = {
        "name": pa.array(
            [None if i % 5 == 0 else "x" * (i % 40) + str(i) for i in range(count)], pa.string()
        ),
        "number": pa.array(range(count), pa.int64()),
        "flag": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(count)], pa.bool_()),
    }
    master, key = table_of(kind, master_keys, payload)
    stream, _ = table_of(kind, stream_keys, {"n": pa.array(range(len(stream_keys)), pa.int32())})
    return master, stream, key


def run(stream, master, key, *, rows, **options) -> tuple[pa.Table, object]:
    joined = ss.join(
        pa.RecordBatchReader.from_batches(stream.schema, iter(stream.to_batches(max_chunksize=rows))),
        master,
        on=key,
        disk="buffered",
        **options,
    )
    return pa.Table.from_batches(joined, schema=joined.schema), joined.stats


@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("layout", ["key", "frequency", "heap"])
@pytest.mark.parametrize("algorithm", [*FIXED, AT_ONCE])
@given(drawn=st.data())
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_tuple_is_answered_exactly_once(algorithm, layout, kind, drawn, tmp_path_factory):
    if layout == "heap" and algorithm not in SCANNING:
        return  # refused, see test_joins_that_need_an_index_say_so
    key_values = st.none() | KEYS[kind]
    master_keys = drawn.draw(st.lists(key_values, max_size=200, unique=drawn.draw(st.booleans())))
    stream_keys = drawn.draw(st.lists(key_values, max_size=150))
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    master, stream, key = data(kind, master_keys, stream_keys)
    built = ss.build_master(
        master, tmp_path_factory.mktemp("m") / "s", key=key, layout=layout, page_bytes=4096
    )
    budget = drawn.draw(st.sampled_from([130_000, 200_000, 1_000_000]))
    chosen = Settings(
        parallel=drawn.draw(st.sampled_from([1, 3, 64])),
        block_pages=drawn.draw(st.sampled_from([1, 2, 5])),
        disk_buffer=drawn.draw(st.sampled_from([None, 4096, 12288])),
        per_step=drawn.draw(st.sampled_from([None, 1, 7])),
        front_share=drawn.draw(st.sampled_from([None, 0.1])),
        at_once=algorithm == AT_ONCE,
    )
    out, stats = run(
        stream,
        built,
        key,
        rows=drawn.draw(st.integers(1, 60)),
        how=how,
        algorithm=named(algorithm),
        memory=budget,
        settings=chosen,
    )
    assert multiset(out) == expected(stream, master, key, how)
    assert stats.tuples == stats.answered == len(stream_keys)
    assert stats.rows == out.num_rows
    assert stats.used_bytes <= stats.budget_bytes


@pytest.mark.parametrize("layout", ["key", "frequency", "heap"])
@pytest.mark.parametrize("algorithm", [*FIXED, AT_ONCE])
@given(drawn=st.data())
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_larger_masters_any_budget_any_batches(algorithm, layout, drawn, tmp_path_factory):
    """Up to ten thousand rows, skewed streams; the keys come from a seed, which hypothesis draws."""
    if layout == "heap" and algorithm not in SCANNING:
        return
    generator = np.random.default_rng(drawn.draw(st.integers(0, 2**32)))
    kind = drawn.draw(st.sampled_from(["int64", "string"]))
    rows, tuples = drawn.draw(st.integers(0, 10_000)), drawn.draw(st.integers(1, 4000))
    domain = max(1, int(rows * drawn.draw(st.sampled_from([0.02, 0.5, 3.0]))))
    numbers = generator.integers(0, domain, rows)
    asked = np.minimum(generator.zipf(1.3, tuples), domain + domain // 10)
    as_key = (lambda n: f"key {n:04d}") if kind == "string" else int
    master, stream, key = data(kind, [as_key(n) for n in numbers], [as_key(n) for n in asked])
    built = ss.build_master(
        master, tmp_path_factory.mktemp("m") / "s", key=key, layout=layout, page_bytes=4096
    )
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    least = 100_000 if algorithm != "in-memory" else 3_000_000
    out, stats = run(
        stream,
        built,
        key,
        rows=drawn.draw(st.integers(1, 5000)),
        how=how,
        algorithm=named(algorithm),
        memory=drawn.draw(st.integers(least, 4 * least)),
        settings=Settings(at_once=algorithm == AT_ONCE),
    )
    assert multiset(out) == expected(stream, master, key, how)
    assert stats.tuples == stats.answered == tuples
    assert stats.used_bytes <= stats.budget_bytes


@pytest.mark.parametrize("algorithm", sorted(set(FIXED) - SCANNING))
def test_joins_that_need_an_index_say_so(algorithm, tmp_path):
    master = ss.build_master(pa.table({"k": [1], "v": [2]}), tmp_path / "s", key="k", layout="heap")
    with pytest.raises(InvalidInputError, match=r'found layout "heap", which has no index\. Use meshjoin'):
        ss.join(pa.table({"k": [1]}), master, on="k", algorithm=algorithm)


@pytest.mark.parametrize("algorithm", FIXED)
def test_a_budget_that_is_too_small_is_refused_with_the_minimum(algorithm, tmp_path):
    master = ss.build_master(pa.table({"k": list(range(5000))}), tmp_path / "s", key="k")
    with pytest.raises(InvalidInputError, match=r"Raise memory= to at least"):
        ss.join(pa.table({"k": [1]}), master, on="k", algorithm=algorithm, memory=5000)


@pytest.mark.parametrize("algorithm", FIXED)
def test_duplicate_stream_keys_do_not_overwrite_each_other(algorithm, tmp_path):
    master = ss.build_master(pa.table({"k": [1, 2], "v": ["a", "b"]}), tmp_path / "s", key="k")
    stream = pa.table({"k": [1, 1, 1, 2, 9, 9], "n": list(range(6))})
    out, _ = run(stream, master, "k", rows=6, how="left", algorithm=algorithm, memory="1MB")
    got = sorted(zip(out["n"].to_pylist(), out["v"].to_pylist(), strict=True))
    assert got == [(0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, None), (5, None)]


def test_the_front_stage_goes_on_admitting_when_it_is_full(tmp_path):
    """A hot set that moves: rows of the second one must replace those of the first."""
    rows = 4000
    master = ss.build_master(
        pa.table({"k": list(range(rows)), "v": list(range(rows))}), tmp_path / "s", key="k"
    )
    generator = np.random.default_rng(3)
    first, second = generator.integers(0, 1000, 30_000), generator.integers(3000, 4000, 30_000)
    stream = pa.table({"k": np.concatenate([first, second])})
    joined = ss.join(
        stream.to_batches(max_chunksize=500),
        master,
        on="k",
        algorithm="chybridjoin",
        memory="120KB",
        disk="buffered",
    )
    hits = [(batch["k"][0].as_py() >= 3000, joined.stats.front_hits) for batch in joined]
    assert joined.stats.evicted > 0
    before = max(count for moved, count in hits if not moved)
    assert joined.stats.front_hits - before > 0.3 * len(second)


@pytest.mark.parametrize("layout", ["key", "frequency", "heap"])
@pytest.mark.parametrize(
    "algorithm", ["cinlj", "cmeshjoin", "chybridjoin", "x-hybridjoin", "optimised-x-hybridjoin", AT_ONCE]
)
def test_rows_in_memory_serve_the_hot_part_of_the_stream(algorithm, layout, tmp_path):
    """Three quarters of the stream ask for the master's first rows: nearly all of these are answered from memory."""
    if layout == "heap" and algorithm not in SCANNING:
        return
    rows = 8000
    table = pa.table({"k": list(range(rows)), "v": list(range(rows))})
    master = ss.build_master(table, tmp_path / "s", key="k", layout=layout, page_bytes=4096)
    generator = np.random.default_rng(2)
    keys = np.where(
        generator.random(60_000) < 0.75,
        generator.integers(0, 150, 60_000),
        generator.integers(0, rows, 60_000),
    )
    joined = ss.join(
        pa.table({"k": keys}).to_batches(max_chunksize=1000),
        master,
        on="k",
        algorithm=named(algorithm),
        memory=300_000,
        disk="buffered",
        settings=Settings(at_once=algorithm == AT_ONCE),
    )
    out = pa.Table.from_batches(joined)
    assert out["v"].equals(out["k"])  # each with its own row, while others come and go
    assert sorted(out["k"].to_pylist()) == sorted(keys.tolist())
    assert joined.stats.front_hits > 0.6 * len(keys)


def test_meshjoin_reads_the_papers_two_pages_in_turn(tmp_path):
    """MESH figure 2: two pages, a window of two tuples; each tuple leaves after it met both."""
    keys = list(range(1200))
    table = pa.table({"k": keys, "v": [f"{i:04d}" for i in keys]})
    master = ss.build_master(table, tmp_path / "s", key="k", page_bytes=16384)
    assert master.pages == 2
    one_page = Settings(disk_buffer=16384, per_step=1)
    joined = ss.join(
        pa.table({"k": [1, 700, 5]}).to_batches(max_chunksize=1),
        master,
        on="k",
        algorithm="meshjoin",
        memory="400KB",
        disk="buffered",
        settings=one_page,
    )
    assert sorted(k for b in joined for k in b["k"].to_pylist()) == [1, 5, 700]
    # s1 meets p1, p2; s2 enters before p2 and meets p2, p1; s3 enters before the second p1 and meets p1, p2.
    assert (joined.stats.advances, joined.stats.pages) == (4, 4)


def test_hybridjoin_reads_only_pages_that_are_waited_for(tmp_path):
    table = pa.table({"k": list(range(10_000)), "v": list(range(10_000))})
    master = ss.build_master(table, tmp_path / "s", key="k", page_bytes=4096)
    page_of = np.repeat(np.arange(master.pages), master.data.load_table().rows)
    keys = [5, 9000, 6, 9001, 5, 4000]
    stream = pa.table({"k": keys})
    for parallel in (1, 64):
        joined = ss.join(
            stream,
            master,
            on="k",
            algorithm="hybridjoin",
            memory="1MB",
            disk="buffered",
            settings=Settings(parallel=parallel),
        )
        assert sorted(v for b in joined for v in b["v"].to_pylist()) == sorted(keys)
        assert joined.stats.pages == len({int(page_of[k]) for k in keys})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "k", "how": "outer"}, "Choose 'inner' or 'left'"),
        ({"on": "x"}, "'x' must be one of them"),
        ({"on": {"n": "v"}}, "Join on exactly the master's key"),
        ({"on": "k", "columns": ["w"]}, "Leave out w"),
        ({"on": "k", "columns": "v"}, "Name each column once"),
        ({"on": "k", "columns": ["v", "v"]}, "Name each column once"),
        ({"on": "k", "algorithm": "hibridjoin"}, "Did you mean 'hybridjoin'"),
        ({"on": "k", "memory": "lots"}, "Give a number of bytes"),
        ({"on": {"n": "k"}}, "Cast the stream's column"),
    ],
)
def test_bad_input_is_explained(options, message, tmp_path):
    master = ss.build_master(pa.table({"k": [1], "v": [2]}), tmp_path / "s", key="k")
    with pytest.raises(SemistreamError, match=message):
        list(ss.join(pa.table({"k": [1], "n": ["not a number"]}), master, **options))


def test_names_that_clash_get_a_suffix_and_left_joins_are_nullable(tmp_path):
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)])
    master = ss.build_master(pa.table({"k": [1], "v": [2]}, schema=schema), tmp_path / "s", key="k")
    stream = pa.table({"id": [1, 3], "v": [7, 8]})
    joined = ss.join(stream, master, on={"id": "k"}, how="left")
    assert joined.schema.names == ["id", "v", "v_master"]
    assert joined.schema.field("v_master").nullable
    got = {row["id"]: row["v_master"] for b in joined for row in b.to_pylist()}
    assert got == {1: 2, 3: None}


def test_a_clash_with_a_suffixed_name_gets_another_suffix(tmp_path):
    master = ss.build_master(pa.table({"k": [1], "v": [2], "v_master": [3]}), tmp_path / "s", key="k")
    joined = ss.join(pa.table({"k": [1], "v": [7]}), master, on="k")
    assert joined.schema.names == ["k", "v", "v_master", "v_master_master"]
    assert [row for b in joined for row in b.to_pylist()] == [
        {"k": 1, "v": 7, "v_master": 2, "v_master_master": 3}
    ]


def test_names_that_repeat_in_the_stream_are_refused(tmp_path):
    master = ss.build_master(pa.table({"k": [1], "v": [2]}), tmp_path / "s", key="k")
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["k", "k"])
    with pytest.raises(InvalidInputError, match="Rename those that repeat"):
        ss.join([twice], master, on="k")


@pytest.mark.parametrize("algorithm", FIXED)
def test_a_number_too_large_for_the_key_is_a_miss(algorithm, tmp_path):
    master = ss.build_master(
        pa.table({"k": pa.array([1, -5], pa.int32()), "v": [2, 3]}), tmp_path / "s", key="k"
    )
    stream = pa.table({"k": pa.array([1, 2**40, -5, 1 + 2**32, None], pa.int64()), "n": list(range(5))})
    out, stats = run(stream, master, "k", rows=5, how="left", algorithm=algorithm, memory="1MB")
    assert sorted(zip(out["n"].to_pylist(), out["v"].to_pylist(), strict=True)) == [
        (0, 2),
        (1, None),
        (2, 3),
        (3, None),
        (4, None),
    ]
    assert (stats.misses, stats.answered) == (3, 5)
    unsigned = pa.table({"k": pa.array([1, 2**63 + 5], pa.uint64()), "n": [0, 1]})
    out, _ = run(unsigned, master, "k", rows=5, how="inner", algorithm=algorithm, memory="1MB")
    assert out["n"].to_pylist() == [0]
