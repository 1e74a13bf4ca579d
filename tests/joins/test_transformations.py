"""The warehouse's transformations against dictionaries and loops."""

from __future__ import annotations

import weakref
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.joins import Settings, transformations
from semistream.joins.transformations import (
    assign_surrogate_keys,
    find_new,
    mark_duplicates,
    with_columns,
)

ALGORITHMS = ["inlj", "meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin", "in-memory"]
SCANNING = {"meshjoin", "cmeshjoin", "in-memory"}
BUFFERED = {"disk": "buffered", "memory": 300_000}
DRAWN = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
KEYS = {
    "number": (["k"], [pa.int64()], st.tuples(st.none() | st.integers(-4, 8))),
    "text": (["k"], [pa.string()], st.tuples(st.none() | st.text("ab", max_size=2))),
    "composite": (
        ["k", "b"],
        [pa.int64(), pa.string()],
        st.tuples(st.none() | st.integers(0, 2), st.none() | st.text("a", max_size=2)),
    ),
}


class Case:
    """A master and a stream, as tables and as plain rows: the key columns stand second and fourth in the stream."""

    def __init__(self, drawn, algorithm: str, folder) -> None:
        draw = drawn.draw
        self.key, types, keys = KEYS[draw(st.sampled_from(sorted(KEYS)), label="kind")]
        self.unique = draw(st.booleans(), label="unique")
        # Long rows: a few dozen fill several pages, so that meshjoin meets the rows of a key in several reads.
        least = draw(st.sampled_from([0, 6 if self.unique else 30]))
        self.master_keys = draw(
            st.lists(keys, min_size=least, max_size=60, unique=self.unique), label="master"
        )
        least = draw(st.sampled_from([0, 30]))
        self.stream_keys = draw(st.lists(keys, min_size=least, max_size=60), label="stream")
        layouts = ["key", "frequency", "heap"] if algorithm in SCANNING else ["key", "frequency"]
        count = len(self.master_keys)
        self.surrogates = [None if i % 3 == 1 else 1000 + i for i in range(count)]
        columns = {n: column(self.master_keys, i, types[i]) for i, n in enumerate(self.key)}
        columns |= {
            "skey": pa.array(self.surrogates, pa.int32()),
            "pad": pa.array(["x" * 700] * count, pa.string()),
        }
        self.master = ss.build_master(
            pa.table(columns),
            folder / "m",
            key=self.key,
            layout=draw(st.sampled_from(layouts), label="layout"),
            page_bytes=4096,
        )
        numbers = pa.array(range(len(self.stream_keys)), pa.int32())
        stream = {"n": numbers, "k": column(self.stream_keys, 0, types[0]), "m": pc.negate(numbers)}
        stream |= {n: column(self.stream_keys, i, types[i]) for i, n in enumerate(self.key)}
        self.stream = pa.table(stream)
        rows = draw(st.integers(1, 40), label="rows of a batch")
        self.options = {
            "on": self.key,
            "algorithm": algorithm,
            "settings": Settings(disk_buffer=8192, per_step=draw(st.sampled_from([None, 3]))),
            **BUFFERED,
        }
        self.reader = pa.RecordBatchReader.from_batches(
            self.stream.schema, iter(self.stream.to_batches(max_chunksize=rows))
        )

    def has(self, key: tuple) -> bool:
        return None not in key and key in self.master_keys

    def surrogates_of(self, key: tuple) -> list:
        if not self.has(key):
            return [None]
        return [s for k, s in zip(self.master_keys, self.surrogates, strict=True) if k == key]

    def rows(self) -> list[tuple]:
        return [tuple(row.values()) for row in self.stream.to_pylist()]


def column(keys: list[tuple], part: int, kind: pa.DataType) -> pa.Array:
    return pa.array([key[part] for key in keys], kind)


def read(transformed) -> Counter:
    """All rows; reading them as one table checks that every batch has the schema that was promised."""
    table = pa.Table.from_batches(transformed, schema=transformed.schema)
    table.validate(full=True)
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def products(tmp_path):
    table = pa.table({"id": ["a", "b", "c"], "skey": [1, 2, None], "price": [5.0, None, 7.0]})
    return ss.build_master(table, tmp_path / "products", key="id", page_bytes=4096)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(drawn=st.data())
@DRAWN
def test_surrogates_stand_where_the_key_stood(algorithm, drawn, tmp_path_factory):
    case = Case(drawn, algorithm, tmp_path_factory.mktemp("t"))
    keep = drawn.draw(st.booleans(), label="keep_key")
    out = assign_surrogate_keys(case.reader, case.master, surrogate="skey", keep_key=keep, **case.options)
    expected: Counter = Counter()
    for row, key in zip(case.rows(), case.stream_keys, strict=True):
        for found in case.surrogates_of(key):
            kept = row[1:] if keep else row[2:3]
            expected[(row[0], found, *kept)] += 1
    assert read(out) == expected
    assert out.schema.names == ["n", "skey", *(["k", "m", *case.key[1:]] if keep else ["m"])]
    assert out.stats.tuples == out.stats.answered == len(case.stream_keys)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(drawn=st.data())
@DRAWN
def test_new_tuples_are_those_whose_key_the_master_does_not_have(algorithm, drawn, tmp_path_factory):
    case = Case(drawn, algorithm, tmp_path_factory.mktemp("t"))
    out = find_new(case.reader, case.master, **case.options)
    pairs = zip(case.rows(), case.stream_keys, strict=True)
    assert read(out) == Counter(row for row, key in pairs if not case.has(key))
    assert out.schema == case.stream.schema
    assert out.stats.tuples == out.stats.answered == len(case.stream_keys)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(drawn=st.data())
@DRAWN
def test_every_tuple_is_marked_once(algorithm, drawn, tmp_path_factory):
    case = Case(drawn, algorithm, tmp_path_factory.mktemp("t"))
    out = mark_duplicates(case.reader, case.master, **case.options)
    pairs = zip(case.rows(), case.stream_keys, strict=True)
    assert read(out) == Counter((*row, case.has(key)) for row, key in pairs)
    assert out.schema == case.stream.schema.append(pa.field("is_duplicate", pa.bool_()))
    assert out.stats.tuples == out.stats.answered == len(case.stream_keys)
    assert out.stats.used_bytes <= out.stats.budget_bytes == 300_000


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(drawn=st.data())
@DRAWN
def test_columns_are_computed_from_what_was_joined(algorithm, drawn, tmp_path_factory):
    case = Case(drawn, algorithm, tmp_path_factory.mktemp("t"))
    joined = ss.join(case.reader, case.master, how="left", columns=["skey"], **case.options)
    out = with_columns(
        joined,
        {
            "known": lambda batch: pc.is_valid(batch["skey"]),
            "sum": pc.field("skey") + pc.field("n"),
            "twice": lambda batch: pc.multiply(batch["sum"], 2),
        },
    )
    expected: Counter = Counter()
    for row, key in zip(case.rows(), case.stream_keys, strict=True):
        for found in case.surrogates_of(key):
            total = None if found is None else found + row[0]
            expected[(*row, found, found is not None, total, None if total is None else 2 * total)] += 1
    assert read(out) == expected
    assert out.schema.names == [*joined.schema.names, "known", "sum", "twice"]
    assert out.stats is joined.stats


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("order", ["any", "stream"])
def test_marking_goes_on_over_many_segments(algorithm, order, tmp_path, monkeypatch):
    """More tuples than there are bits for, of keys with several rows, in batches that go over segments' ends."""
    monkeypatch.setattr(transformations, "_SEEN_SHARE", 800)
    memory = 400_000 if algorithm == "in-memory" else 100_000
    keys = np.repeat(np.arange(300), 3)
    np.random.default_rng(1).shuffle(keys)
    table = pa.table({"k": keys, "pad": ["x" * 100] * len(keys)})
    layout = "heap" if algorithm in SCANNING else "key"
    master = ss.build_master(table, tmp_path / "m", key="k", layout=layout, page_bytes=4096)
    segment = 8 * (memory // 800)
    tuples = 3 * segment + 100
    stream = pa.table(
        {"k": np.random.default_rng(2).integers(0, 600, tuples), "tuple_number": np.arange(tuples)}
    )
    batches = stream.to_batches(max_chunksize=701)
    out = mark_duplicates(
        batches, master, on="k", algorithm=algorithm, memory=memory, order=order, disk="buffered"
    )
    got = pa.Table.from_batches(out, schema=out.schema)
    got = got if order == "stream" else got.sort_by("tuple_number")
    assert got.num_rows == tuples
    assert got.select(["k", "tuple_number"]).equals(stream)
    assert np.array_equal(got["is_duplicate"].to_numpy(), stream["k"].to_numpy() < 300)
    assert out.stats.tuples == out.stats.answered == tuples
    assert out.stats.misses == int(np.count_nonzero(stream["k"].to_numpy() >= 300))
    assert out.stats.used_bytes <= out.stats.budget_bytes == memory


def test_one_segment_lets_its_memory_go_before_the_next_takes_its_own(tmp_path, monkeypatch):
    master = ss.build_master(pa.table({"k": [1, 1]}), tmp_path / "m", key="k", page_bytes=4096)
    opened = []

    def watched(*args, **options):
        assert all(earlier() is None for earlier in opened)
        joined = ss.join(*args, **options)
        opened.append(weakref.ref(joined._driver.opened.join))
        return joined

    monkeypatch.setattr(transformations, "join", watched)
    monkeypatch.setattr(transformations, "_SEEN_SHARE", 30_000)
    out = mark_duplicates(pa.table({"k": [1] * 200}), master, on="k", **BUFFERED)
    assert sum(map(len, out)) == 200
    assert len(opened) == 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_newer_version_may_repeat_keys(algorithm, tmp_path):
    master = ss.build_master(pa.table({"k": [1, 2]}), tmp_path / "m", key="k", page_bytes=4096)

    def arriving():
        yield pa.record_batch({"k": [1, 2, 3]})
        master.append(pa.table({"k": [2, 3, 3]}))
        yield pa.record_batch({"k": [2, 3, 4]})

    out = mark_duplicates(arriving(), master, on="k", algorithm=algorithm, versions="newest", **BUFFERED)
    assert read(out) == Counter({(1, True): 1, (2, True): 2, (3, False): 1, (3, True): 1, (4, False): 1})


@pytest.mark.parametrize("layout", ["key", "heap"])
def test_nothing_is_read_before_it_is_asked_for(layout, tmp_path):
    master = ss.build_master(pa.table({"k": [1, 2]}), tmp_path / "m", key="k", layout=layout, page_bytes=4096)
    taken = []

    def batches():
        for number in range(50):
            taken.append(number)
            yield pa.record_batch({"k": [number] * 100})

    options = {"on": "k", "algorithm": "cmeshjoin", "settings": Settings(per_step=10), **BUFFERED}
    for transform in (mark_duplicates, find_new):
        taken.clear()
        out = transform(batches(), master, **options)
        assert taken == [0]
        next(out)
        assert len(taken) < 50


def test_a_name_of_the_key_that_goes_is_free_again(products):
    stream = pa.table({"skey": ["a", "x"], "n": [1, 2]})
    by_skey = {"on": {"skey": "id"}, "surrogate": "skey", **BUFFERED}
    out = assign_surrogate_keys(stream, products, **by_skey)
    assert out.schema.names == ["skey", "n"]
    assert read(out) == Counter([(1, 1), (None, 2)])
    kept = assign_surrogate_keys(stream, products, keep_key=True, **by_skey)
    assert kept.schema.names == ["skey_master", "skey", "n"]


def test_a_name_the_stream_has_gets_the_joins_suffix(products):
    stream = pa.table({"id": ["a"], "skey": [9]})
    out = assign_surrogate_keys(stream, products, on="id", surrogate="skey", **BUFFERED)
    assert out.schema.names == ["skey_master", "skey"]
    assert read(out) == Counter([(1, 9)])


def test_the_join_can_be_one_over_a_transformation(products):
    stream = pa.table({"id": ["a", "b", "q", None], "n": [1, 2, 3, 4]})
    marked = mark_duplicates(stream, products, on="id", name="old", **BUFFERED)
    out = with_columns(marked, {"fresh": lambda batch: pc.invert(batch["old"])})
    assert read(out) == Counter(
        [("a", 1, True, False), ("b", 2, True, False), ("q", 3, False, True), (None, 4, False, True)]
    )


@pytest.mark.parametrize("layout", ["key", "heap"])
def test_an_empty_stream_needs_a_schema(layout, tmp_path):
    table = pa.table({"id": ["a"], "skey": [1]})
    master = ss.build_master(table, tmp_path / "m", key="id", layout=layout, page_bytes=4096)
    empty = pa.schema({"id": pa.string()}).empty_table()
    for transform, options in (
        (assign_surrogate_keys, {"surrogate": "skey"}),
        (find_new, {}),
        (mark_duplicates, {}),
    ):
        assert list(transform(empty, master, on="id", **options, **BUFFERED)) == []
        with pytest.raises(InvalidInputError, match="Pass a RecordBatchReader to join an empty stream"):
            transform([], master, on="id", **options, **BUFFERED)


def test_bad_input_of_the_transformations_is_explained(products):
    stream = pa.table({"id": ["a"], "n": [1]})
    with pytest.raises(
        InvalidInputError, match=r"surrogate='key': found .* id, skey, price\. Name one of them"
    ):
        assign_surrogate_keys(stream, products, on="id", surrogate="key")
    with pytest.raises(InvalidInputError, match=r"name='n': found a stream with the columns id, n\. Choose"):
        mark_duplicates(stream, products, on="id", name="n", **BUFFERED)
    with pytest.raises(InvalidInputError, match="'x' must be one of them"):
        find_new(stream, products, on="x", **BUFFERED)
    with pytest.raises(InvalidInputError, match="Give a number of bytes"):
        mark_duplicates(stream, products, on="id", memory="lots")
    with pytest.raises(TypeError, match="how"):
        find_new(stream, products, on="id", how="inner", **BUFFERED)


@pytest.mark.parametrize("memory", ["lots", 5000])
def test_budgets_are_checked_before_the_first_batch_where_keys_repeat(memory, tmp_path):
    master = ss.build_master(pa.table({"k": [1, 1]}), tmp_path / "m", key="k")
    with pytest.raises(InvalidInputError, match=r"Give a number of bytes|Raise memory="):
        mark_duplicates(pa.table({"k": [1]}), master, on="k", memory=memory)


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda _: pa.array([1]), r"for 0 rows: found 1 values\. Give one value for each row"),
        (
            lambda batch: pa.nulls(len(batch) // 2),
            r"for 2 rows: found 1 values\. Give one value for each row",
        ),
        (lambda _: 7, r"found int\. Give a pyarrow Array"),
        (pa.array([1, 2]), r"found Int64Array to compute it\. Pass a function"),
        (lambda batch: pa.array(batch["n"].to_pylist()), r"of type null.*: found type int64\. Give the same"),
    ],
)
def test_columns_that_do_not_fit_are_explained(compute, message, products):
    joined = ss.join(pa.table({"id": ["a", "b"], "n": [1, 2]}), products, on="id", **BUFFERED)
    with pytest.raises(InvalidInputError, match=r"a computed column 'x' .*" + message):
        list(with_columns(joined, {"x": compute}))


def test_a_computed_column_takes_no_name_that_is_taken(products):
    joined = ss.join(pa.table({"id": ["a"]}), products, on="id", **BUFFERED)
    with pytest.raises(
        InvalidInputError, match=r"column 'price': found columns id, skey, price\. Choose a name"
    ):
        with_columns(joined, {"price": pc.field("skey")})


def test_a_function_that_fails_without_rows_is_told_why_it_got_none(products):
    joined = ss.join(pa.table({"id": ["a"]}), products, on="id", **BUFFERED)
    with pytest.raises(IndexError) as caught:
        with_columns(joined, {"x": lambda batch: pa.array([batch["price"][0]] * len(batch))})
    assert "a batch without rows, to learn its type" in caught.value.__notes__[0]
