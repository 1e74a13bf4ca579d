"""What goes into a master comes out of it: every type, every layout, rows of every length."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.master import LAYOUTS, pageset

# A type, the values put in, and the type they are counted in where Python's own would lose digits.
INTEGERS = {
    str(kind): (kind, [None, 0, 1, -(2 ** (width - 1)), 2 ** (width - 1) - 1], None)
    for width, kind in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))
} | {
    str(kind): (kind, [None, 0, 1, 2**width - 1], None)
    for width, kind in ((8, pa.uint8()), (16, pa.uint16()), (32, pa.uint32()), (64, pa.uint64()))
}
COUNTED = {
    str(kind): (kind, [None, 0, 1, -1, 86_399, 1_700_000_000_123_456_789 // scale], number)
    for kind, number, scale in (
        (pa.timestamp("s"), pa.int64(), 10**9),
        (pa.timestamp("ms"), pa.int64(), 10**6),
        (pa.timestamp("us"), pa.int64(), 10**3),
        (pa.timestamp("ns"), pa.int64(), 1),
        (pa.timestamp("us", "UTC"), pa.int64(), 10**3),
        (pa.timestamp("ns", "UTC"), pa.int64(), 1),
        (pa.duration("s"), pa.int64(), 10**9),
        (pa.duration("us"), pa.int64(), 10**3),
        (pa.duration("ns"), pa.int64(), 1),
        (pa.date32(), pa.int32(), 10**14),
    )
} | {
    "time32[s]": (pa.time32("s"), [None, 0, 86_399], pa.int32()),
    "time32[ms]": (pa.time32("ms"), [None, 0, 86_399_999], pa.int32()),
    "time64[us]": (pa.time64("us"), [None, 0, 86_399_999_999], pa.int64()),
    "time64[ns]": (pa.time64("ns"), [None, 0, 86_399_999_999_999], pa.int64()),
    "date64": (pa.date64(), [None, 0, 86_400_000, -86_400_000], pa.int64()),
}
PERSON = pa.struct(
    [("name", pa.string()), ("at", pa.struct([("x", pa.int16()), ("tags", pa.list_(pa.string()))]))]
)
OTHERS = {
    "bool": (pa.bool_(), [None, True, False], None),
    "float16": (pa.float16(), [None, 0.0, -1.5, float("inf")], None),
    "float32": (pa.float32(), [None, 0.0, -1.5, float("-inf")], None),
    "float64": (pa.float64(), [None, 0.1, -1e300, 5e-324], None),
    "decimal128(9,2)": (pa.decimal128(9, 2), [None, Decimal("-1234567.89"), Decimal("0.01")], None),
    "decimal128(38,10)": (pa.decimal128(38, 10), [None, Decimal("-9" * 1 + "9" * 27 + ".9999999999")], None),
    "decimal256": (pa.decimal256(60, 0), [None, Decimal("9" * 60), Decimal("-1")], None),
    "string": (pa.string(), [None, "", "a", "\0", "grün", "🦆" * 40], None),
    "binary": (pa.binary(), [None, b"", b"\0\xff", b"x" * 90], None),
    "fixed_size_binary": (pa.binary(5), [None, b"12345", b"\0\0\0\0\0"], None),
    "null": (pa.null(), [None], None),
    "struct": (
        PERSON,
        [
            None,
            {"name": None, "at": None},
            {"name": "a", "at": {"x": 1, "tags": ["p", None, ""]}},
            {"name": "b", "at": {"x": None, "tags": []}},
        ],
        None,
    ),
    "list<int>": (pa.list_(pa.int32()), [None, [], [1], [None, 2, 3] * 9], None),
    "list<list<string>>": (pa.list_(pa.list_(pa.string())), [None, [], [None], [[], ["a" * 30, None]]], None),
    "list<struct>": (pa.list_(PERSON), [None, [], [{"name": "q", "at": {"x": 2, "tags": None}}, None]], None),
    "map": (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1), ("b", None)]], None),
    "map<struct>": (pa.map_(pa.int8(), PERSON), [None, [(1, None)], [(2, {"name": "z", "at": None})]], None),
}
TYPES = INTEGERS | COUNTED | OTHERS


def array_of(kind: pa.DataType, values: list, number: pa.DataType | None) -> pa.Array:
    return pa.array(values, kind) if number is None else pa.array(values, number).cast(kind)


def values_of(column: pa.ChunkedArray, number: pa.DataType | None) -> list:
    return column.to_pylist() if number is None else column.cast(number).to_pylist()


def stored(master: ss.Master) -> pa.Table:
    return pa.Table.from_batches(list(master.scan()), schema=master.schema)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_keeps_its_values_and_nulls(tmp_path, name):
    kind, some, number = TYPES[name]
    rng = random.Random(name)
    keys = rng.sample(range(10_000), 700)
    values = [rng.choice(some) for _ in keys]
    table = pa.table({"v": array_of(kind, values, number), "id": keys})
    # Batches that are views of others, with offsets of their own, are what real sources hand over.
    batches = [
        *table.slice(0, 333).to_batches(),
        *table.slice(333, 1).to_batches(),
        *table.slice(334).to_batches(),
    ]

    for layout in ("key", "heap"):
        master = ss.build_master(
            pa.Table.from_batches(batches), tmp_path / layout, key="id", layout=layout, page_bytes=4096
        )
        order = sorted(range(700), key=keys.__getitem__) if layout == "key" else range(700)
        found = stored(master)
        assert found.schema.field("v").type == kind
        assert found.column("id").to_pylist() == [keys[i] for i in order]
        assert values_of(found.column("v"), number) == [values[i] for i in order]
        assert master.verify().damaged == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_types_side_by_side_in_every_layout(tmp_path, layout):
    rng = random.Random(layout)
    keys = rng.sample(range(500), 300)
    columns = {name: [rng.choice(some) for _ in keys] for name, (_, some, _) in TYPES.items()}
    table = pa.table({"id": keys} | {n: array_of(TYPES[n][0], v, TYPES[n][2]) for n, v in columns.items()})

    master = ss.build_master(table, tmp_path / "m", key="id", layout=layout, page_bytes=16384)

    order = sorted(range(300), key=keys.__getitem__) if layout == "key" else range(300)
    found = stored(master)
    assert found.column("id").to_pylist() == [keys[i] for i in order]
    for name, values in columns.items():
        assert values_of(found.column(name), TYPES[name][2]) == [values[i] for i in order], name
    assert master.pages > 1


def test_a_not_a_number_stays_one(tmp_path):
    master = ss.build_master(pa.table({"id": [1, 2], "v": [float("nan"), 1.0]}), tmp_path / "m", key="id")
    nan, one = stored(master).column("v").to_pylist()
    assert nan != nan, "only a NaN differs from itself"
    assert one == 1.0


WORDS = ["", "a", "b" * 20, None, "\0x"]
FORMS = {
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), pa.string(), WORDS),
    "dictionary<large>": (pa.dictionary(pa.int32(), pa.large_string()), pa.string(), WORDS),
    "large_string": (pa.large_string(), pa.string(), WORDS),
    "string_view": (pa.string_view(), pa.string(), WORDS),
    "large_binary": (pa.large_binary(), pa.binary(), [b"", None, b"\0"]),
    "binary_view": (pa.binary_view(), pa.binary(), [b"", None, b"\0" * 40]),
    "decimal32": (pa.decimal32(5, 2), pa.decimal128(5, 2), [Decimal("-1.25"), None]),
    "decimal64": (pa.decimal64(15, 2), pa.decimal128(15, 2), [Decimal("1234567890123.25"), None]),
    "timestamp of a zone": (
        pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("us", "UTC"),
        [datetime(2024, 7, 1, 12, 30, tzinfo=UTC), None],
    ),
    "large_list": (pa.large_list(pa.large_string()), pa.list_(pa.string()), [[], None, ["a", None]]),
    "struct": (
        pa.struct([("v", pa.dictionary(pa.int8(), pa.string())), ("w", pa.large_list(pa.string_view()))]),
        pa.struct([("v", pa.string()), ("w", pa.list_(pa.string()))]),
        [None, {"v": "a", "w": ["b", None]}, {"v": None, "w": []}],
    ),
    "map": (
        pa.map_(pa.large_string(), pa.large_binary()),
        pa.map_(pa.string(), pa.binary()),
        [None, [], [("k", b"v"), ("l", None)]],
    ),
}


def as_form(kind: pa.DataType, plain: pa.DataType, values: list) -> pa.Array:
    """An array of a form that pyarrow cannot build from Python values, made from one that it can."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return pa.array(values, plain).cast(kind)


@pytest.mark.parametrize("name", FORMS)
def test_other_forms_of_a_type_are_stored_in_one(tmp_path, name):
    kind, plain, some = FORMS[name]
    if name == "struct":
        inner = (
            pa.array(["a", None, None]).dictionary_encode(),
            pa.array([["b", None], [], []]).cast(pa.large_list(pa.string_view())),
        )
        array = pa.StructArray.from_arrays(
            [inner[0].cast(pa.dictionary(pa.int8(), pa.string())), inner[1]],
            names=["v", "w"],
            mask=pa.array([False, False, True]),
        )
        some = [{"v": "a", "w": ["b", None]}, {"v": None, "w": []}, None]
    else:
        array = as_form(kind, plain, some)
    assert array.type == kind
    table = pa.table({"id": range(len(some)), "v": array})

    master = ss.build_master(table, tmp_path / "m", key="id", layout="heap")

    assert master.schema.field("v").type == plain
    assert stored(master).column("v").to_pylist() == some
    # A change may come in yet another form.
    more = master.append(pa.table({"id": [100], "v": pa.array(some[:1], plain)}))
    assert stored(more).column("v").to_pylist() == [*some, some[0]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_longer_than_a_page_have_one_to_themselves(tmp_path, layout, rows_of, pages_of):
    lengths = [0, 100_000, 5, 3_000, 4_096, 70_000, 1, 1, 1, 250_000, 2]
    rows = [{"id": i, "v": "x" * n, "w": None if n % 2 else b"y" * n} for i, n in enumerate(lengths)]

    master = ss.build_master(
        pa.Table.from_pylist(rows), tmp_path / "m", key="id", layout=layout, page_bytes=4096
    )

    assert rows_of(master) == rows
    pages = pages_of(master.data)
    assert [row for page in pages for row in page] == rows
    table = master.data.load_table()
    for page, size in zip(pages, table.length.tolist(), strict=True):
        assert size % 4096 == 0
        assert size == 4096 or len(page) == 1, "only a row that does not fit may have a longer page"
        assert size < 4096 + 2 * max(len(row["v"]) for row in page) + 4096, "a page is no longer than its row"
    assert master.verify().damaged == ()


@pytest.mark.parametrize("nothing", [[], None], ids=["empty", "null"])
@pytest.mark.parametrize("wrap", ["list", "list of list", "map", "struct of list"])
def test_pages_of_nested_columns_hold_only_their_own_rows(tmp_path, nothing, wrap, rows_of):
    """Arrow writes the data of an empty slice whole: such rows must neither fail nor carry that of other rows."""
    element = ["abc" * 50] * 5
    full, bare = {
        "list": (element, nothing),
        "list of list": ([element], [nothing]),
        "map": ([("k" * 100, "v" * 100)], nothing),
        "struct of list": ({"q": element}, {"q": nothing}),
    }[wrap]
    kind = pa.map_(pa.string(), pa.string()) if wrap == "map" else pa.array([full]).type
    values = [full] * 300 + [bare] * 300
    table = pa.table({"id": range(600), "v": pa.array(values, kind)})

    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes=4096)

    assert [row["v"] for row in rows_of(master)] == values
    assert set(master.data.load_table().length.tolist()) == {4096}
    assert master.nbytes < 2 * table.nbytes


def test_more_columns_than_a_page_has_room_for(tmp_path, rows_of):
    """The bookkeeping of 300 columns alone takes more than 4 KiB; each row then has its own, longer page."""
    rows = [{"id": i} | {f"c{j}": i * j for j in range(300)} for i in range(5)]
    master = ss.build_master(pa.Table.from_pylist(rows), tmp_path / "m", key="id", page_bytes=4096)
    assert rows_of(master) == rows


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_master(tmp_path, layout, rows_of):
    table = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})
    master = ss.build_master(table, tmp_path / "m", key="id", layout=layout)
    for opened in (master, ss.open_master(tmp_path / "m")):
        assert rows_of(opened) == []
        assert (opened.rows, opened.pages, opened.nbytes) == (0, 0, 0)
        assert opened.statistics.distinct_keys == 0
        assert (opened.statistics.min_key, opened.statistics.max_key) == (None, None)
        assert opened.verify().damaged == ()
    if layout == "key":
        found = master.index.find(master.codec.encode([pa.array([1, 2], pa.int64())]))
        assert (found.last < found.first).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_master_of_one_row(tmp_path, layout, rows_of):
    master = ss.build_master(pa.table({"id": ["k"], "v": [1.5]}), tmp_path / "m", key="id", layout=layout)
    assert rows_of(ss.open_master(tmp_path / "m")) == [{"id": "k", "v": 1.5}]
    assert (master.rows, master.pages) == (1, 1)
    if layout == "key":
        statistics = master.statistics
        assert (statistics.min_key, statistics.max_key, statistics.max_rows_per_key) == ("k", "k", 1)


def test_a_key_of_many_rows_goes_on_over_pages(tmp_path, rows_of):
    rows = [{"id": key, "v": f"{key}-{i}-" + "z" * 50} for i in range(300) for key in (7, 3, 5)]
    master = ss.build_master(pa.Table.from_pylist(rows), tmp_path / "m", key="id", page_bytes=4096)
    assert rows_of(master) == sorted(rows, key=lambda row: row["id"]), "rows of one key keep their order"
    assert master.statistics.max_rows_per_key == 300
    assert master.statistics.distinct_keys == 3
    found = master.index.find(master.codec.encode([pa.array([3, 5, 7], pa.int64())]))
    assert (found.last - found.first > 3).all()


KEYS = st.one_of(st.none(), st.integers(0, 12))
PAYLOADS = st.one_of(st.none(), st.integers(0, 3), st.sampled_from([60, 900, 9_000]))


@pytest.mark.parametrize("layout", [*LAYOUTS, "by frequency"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn=st.lists(st.tuples(KEYS, PAYLOADS, st.integers(0, 3)), max_size=60),
    cuts=st.sets(st.integers(0, 60)),
)
def test_any_rows_in_any_batches(tmp_path_factory, rows_of, layout, drawn, cuts):
    rows = [
        {"id": key, "v": None if length is None else "p" * length, "n": n, "at": i}
        for i, (key, length, n) in enumerate(drawn)
    ]
    schema = pa.schema({"id": pa.int64(), "v": pa.string(), "n": pa.int16(), "at": pa.int32()})
    table = pa.Table.from_pylist(rows, schema=schema)
    bounds = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    batches = [b for i, j in itertools.pairwise(bounds) for b in table.slice(i, j - i).to_batches()]
    path = tmp_path_factory.mktemp("any") / "m"
    by_frequency = layout == "by frequency"

    master = ss.build_master(
        pa.RecordBatchReader.from_batches(schema, batches),
        path,
        key="id",
        layout="frequency" if by_frequency else layout,
        frequency="n" if by_frequency else None,
        page_bytes=4096,
    )

    expected = [row for row in rows if row["id"] is not None]
    if layout == "key":
        expected.sort(key=lambda row: row["id"])
        counts = [sum(row["id"] == key for row in expected) for key in {row["id"] for row in expected}]
        assert master.statistics.distinct_keys == len(counts)
        assert master.statistics.max_rows_per_key == (max(counts) if counts else None)
        assert master.statistics.min_key == (str(expected[0]["id"]) if expected else None)
        assert master.statistics.max_key == (str(expected[-1]["id"]) if expected else None)
    if by_frequency:
        expected.sort(key=lambda row: -row["n"])
    assert rows_of(master) == expected
    assert master.rows == master.statistics.rows == len(expected)
    assert master.statistics.null_keys == len(rows) - len(expected)
    assert master.verify().rows == len(expected)


def test_a_row_of_unknown_frequency_comes_after_those_that_are_asked_for(tmp_path, rows_of):
    table = pa.table({"id": [1, 2, 3, 4, 5], "n": pa.array([2, None, 9, 1, 2], pa.uint8())})
    master = ss.build_master(table, tmp_path / "m", key="id", layout="frequency", frequency="n")
    assert [row["id"] for row in rows_of(master)] == [3, 1, 5, 4, 2]


def test_a_row_is_left_out_if_any_part_of_its_key_is_null(tmp_path, rows_of):
    table = pa.table({"a": [1, None, 1, None, 2], "b": ["x", "x", None, None, "y"], "v": range(5)})
    for layout in LAYOUTS:
        master = ss.build_master(table, tmp_path / layout, key=["a", "b"], layout=layout)
        assert [row["v"] for row in rows_of(master)] == [0, 4]
        assert master.statistics.null_keys == 3


KEY_COLUMNS = {
    "date": ([date(1969, 12, 31), date(2024, 2, 29), date(1, 1, 1)], pa.date32()),
    "time": ([time(23, 59), time(0), time(12, 30, 1)], pa.time64("us")),
    "timestamp": (
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(1950, 1, 1, tzinfo=UTC)],
        pa.timestamp("us", "UTC"),
    ),
    "decimal": ([Decimal("-0.5"), Decimal("10.25"), Decimal("2")], pa.decimal128(10, 2)),
    "wide decimal": ([Decimal("-1e37"), Decimal("1e37"), Decimal("0")], pa.decimal128(38, 0)),
    "dictionary": (["pear", "apple", "fig"], pa.dictionary(pa.int8(), pa.string())),
    "large_string": (["pear", "apple", "fig"], pa.large_string()),
    "uint64": ([2**64 - 1, 0, 2**63], pa.uint64()),
}


@pytest.mark.parametrize("name", KEY_COLUMNS)
def test_every_type_of_key_sorts_its_rows(tmp_path, rows_of, name):
    values, kind = KEY_COLUMNS[name]
    master = ss.build_master(pa.table({"k": pa.array(values, kind)}), tmp_path / "m", key="k")
    assert [row["k"] for row in rows_of(master)] == sorted(values)


def test_scan_gives_only_the_columns_asked_for_and_its_batches_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(pageset, "SCAN_BYTES", 64 << 10)
    table = pa.table({"id": range(100_000), "v": [str(i) for i in range(100_000)], "w": range(100_000)})
    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes=4096)
    batches = list(master.scan(columns=["w", "id"]))  # kept while the disk buffer is used again
    found = pa.Table.from_batches(batches)
    assert len(batches) > 10
    assert found.column_names == ["w", "id"]
    np.testing.assert_array_equal(found.column("w").to_numpy(), np.arange(100_000))
    assert master.to_reader().read_all().equals(table)
    assert pa.Table.from_batches(master.scan(disk="direct")).equals(table)
    with pytest.raises(ss.SemistreamError, match=r"columns nope.*found columns id, v, w"):
        next(master.scan(columns=["id", "nope"]))


def test_a_scan_may_be_left_early(tmp_path, monkeypatch):
    monkeypatch.setattr(pageset, "SCAN_BYTES", 8 << 10)
    master = ss.build_master(pa.table({"id": range(20_000)}), tmp_path / "m", key="id", page_bytes=4096)
    scan = master.scan()
    assert next(scan).column("id")[0].as_py() == 0
    scan.close()
    assert next(master.scan()).column("id")[0].as_py() == 0


def test_progress_is_told_of_every_row(tmp_path):
    told: list[int] = []
    table = pa.table({"id": pa.array([*range(1000), None], pa.int64())})
    ss.build_master(table, tmp_path / "m", key="id", layout="heap", progress=told.append)
    assert sum(told) == 1001
