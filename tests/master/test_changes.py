"""Appends, upserts and deletes in any order against plain Python lists, in every layout, version after version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.master import LAYOUTS, Layout, Master, change

Row = dict[str, Any]


@dataclass
class Oracle:
    """What a master should hold: a list of rows, changed as the documentation says."""

    layout: Layout
    key: list[str]
    rows: list[Row] = field(default_factory=list)
    null_keys: int = 0

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def apply(self, kind: str, given_rows: list[Row]) -> None:
        new = [row for row in given_rows if None not in self.key_of(row)]
        self.null_keys += len(given_rows) - len(new) if kind != "delete" else 0
        changed = {self.key_of(row) for row in new}
        if kind == "append":
            self.rows = [*self.rows, *new]
        if kind == "delete":
            self.rows = [row for row in self.rows if self.key_of(row) not in changed]
        if kind == "upsert":
            kept: list[Row] = []
            placed = set()
            for row in self.rows:
                key = self.key_of(row)
                if key not in changed:
                    kept.append(row)
                elif key not in placed:  # at the first place of the key
                    placed.add(key)
                    kept += [other for other in new if self.key_of(other) == key]
            self.rows = kept + [row for row in new if self.key_of(row) not in placed]
        if self.layout == "key":
            self.rows.sort(key=self.key_of)


WORDS = st.sampled_from(["", "\0", "a", "a\0", "aa" * 30, "aa" * 30 + "b", "b", "zz"])
KINDS: dict[str, tuple[pa.Schema, st.SearchStrategy[tuple[Any, ...]]]] = {
    "int": (pa.schema({"k0": pa.int32()}), st.tuples(st.integers(-15, 15))),
    "string": (
        pa.schema({"k0": pa.string()}),
        st.tuples(st.builds(lambda w, n: w + "x" * n, WORDS, st.integers(0, 3))),
    ),
    "string+int": (pa.schema({"k0": pa.string(), "k1": pa.int8()}), st.tuples(WORDS, st.integers(-2, 2))),
}
LENGTHS = st.sampled_from([0, 10, 500, 1500, 3000, 6000])


@st.composite
def rows_for(draw: st.DrawFn, kind: str, max_size: int) -> list[Row]:
    schema, keys = KINDS[kind]
    nothing = st.just((None,) * len(schema))
    drawn = draw(st.lists(st.tuples(st.one_of(keys, keys, keys, nothing), LENGTHS), max_size=max_size))
    mark = draw(st.integers(0, 10**9))  # tells the rows of one change from those of another
    return [
        dict(zip(schema.names, key, strict=True)) | {"v": f"{mark}/{i}/" + "p" * length}
        for i, (key, length) in enumerate(drawn)
    ]


def check(
    master: Master, oracle: Oracle, pages: list[list[Row]], index_pages: list[list[Row]] | None
) -> None:
    """Everything that must hold of a version, whatever happened before."""
    assert [row for page in pages for row in page] == oracle.rows
    assert all(pages), "no page is empty"
    statistics = master.statistics
    assert (master.rows, statistics.rows, statistics.null_keys) == (len(oracle.rows),) * 2 + (
        oracle.null_keys,
    )
    holding: dict[tuple[Any, ...], list[int]] = {}
    for number, page in enumerate(pages):
        for key in {oracle.key_of(row) for row in page}:
            holding.setdefault(key, []).append(number)
    keys = sorted(holding)
    if oracle.layout == "key":
        assert statistics.distinct_keys == len(keys)
        ends = (
            [None if not keys else ", ".join(map(str, key)) for key in (keys[0], keys[-1])]
            if keys
            else [None] * 2
        )
        assert [statistics.min_key, statistics.max_key] == ends
        assert find(master, master.index, keys) == [holding[key] for key in keys]
    elif statistics.distinct_keys is not None:
        assert statistics.distinct_keys == len(keys)
    if oracle.layout == "frequency":
        entries = [row for page in index_pages or [] for row in page]
        assert [oracle.key_of(row) for row in entries] == sorted(oracle.key_of(row) for row in oracle.rows)
        found: dict[tuple[Any, ...], set[int]] = {}
        for entry in entries:
            found.setdefault(oracle.key_of(entry), set()).add(entry["page"])
        assert found == {key: set(numbers) for key, numbers in holding.items()}


def find(master: Master, index: Any, keys: list[tuple[Any, ...]]) -> list[list[int]]:
    columns = [pa.array([k[i] for k in keys], kind) for i, kind in enumerate(master.master_schema.key_types)]
    found = index.find(master.codec.encode(columns))
    return [[*range(f, u + 1)] for f, u in zip(found.first.tolist(), found.last.tolist(), strict=True)]


CHANGES = st.sampled_from(["append", "upsert", "upsert", "delete"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), group_bytes=st.sampled_from([1, 3 * 4096, 32 << 20]))
def test_any_changes_in_any_order(
    tmp_path_factory, monkeypatch, rows_of, pages_of, layout, kind, data, group_bytes
):
    """Small groups make a change of neighbouring pages in several steps, as one of gigabytes is made."""
    monkeypatch.setattr(change, "_GROUP_BYTES", group_bytes)
    key_schema, _ = KINDS[kind]
    schema = key_schema.append(pa.field("v", pa.string()))
    oracle = Oracle(layout, key_schema.names)
    rows = data.draw(rows_for(kind, 40))
    oracle.apply("append", rows)
    path = tmp_path_factory.mktemp("changes") / "m"
    master = ss.build_master(
        pa.Table.from_pylist(rows, schema=schema), path, key=key_schema.names, layout=layout, page_bytes=4096
    )
    history = [(master, oracle.rows)]
    for _ in range(data.draw(st.integers(1, 5))):
        operation = data.draw(CHANGES)
        rows = data.draw(rows_for(kind, 12))
        columns = key_schema if operation == "delete" else schema
        oracle.apply(operation, rows)
        master = getattr(master, operation)(pa.Table.from_pylist(rows, schema=columns))
        index_pages = pages_of(master.key_index) if master.key_index else None
        check(master, oracle, pages_of(master.data), index_pages)
        history.append((master, oracle.rows))
    for i, (old, expected) in enumerate(history, start=1):
        assert old.version == i
        assert rows_of(old.at_version(i)) == expected, "an old version does not change"
    assert rows_of(ss.open_master(path)) == oracle.rows
    assert master.verify().damaged == ()


def numbered(ids: list[int], mark: str, length: int = 700) -> pa.Table:
    return pa.table({"id": ids, "v": [mark + "." * length] * len(ids)})


def marks(rows: list[Row]) -> list[tuple[int, str]]:
    return [(row["id"], row["v"].rstrip(".")) for row in rows]


@pytest.mark.parametrize("layout", ["frequency", "heap"])
def test_a_replaced_row_keeps_its_place_and_new_ones_come_as_given(tmp_path, rows_of, layout):
    master = ss.build_master(numbered([5, 1, 4, 1, 3], "old"), tmp_path / "m", key="id", layout=layout)
    master = master.upsert(numbered([9, 1, 8, 3, 9, 1, 1], "new"))
    assert marks(rows_of(master)) == [
        (5, "old"),
        *[(1, "new")] * 3,
        (4, "old"),
        (3, "new"),
        *[(9, "new"), (8, "new"), (9, "new")],
    ]
    assert marks(rows_of(master.append(numbered([7, 2, 6], "more"))))[-3:] == [
        (7, "more"),
        (2, "more"),
        (6, "more"),
    ]


def test_appended_rows_follow_those_of_their_key(tmp_path, rows_of):
    master = ss.build_master(numbered([1, 2, 2, 3], "old"), tmp_path / "m", key="id", page_bytes=4096)
    master = master.append(numbered([3, 2, 0], "new"))
    assert marks(rows_of(master)) == [
        (0, "new"),
        (1, "old"),
        (2, "old"),
        (2, "old"),
        (2, "new"),
        (3, "old"),
        (3, "new"),
    ]


def test_only_the_pages_touched_are_written_again(tmp_path, rows_of):
    master = ss.build_master(numbered(list(range(1000)), "old"), tmp_path / "m", key="id", page_bytes=4096)
    before = master.data.load_table()
    changed = master.upsert(numbered([500], "new"))
    after = changed.data.load_table()
    moved = [page for page in range(len(after)) if after.file[page] != 0]
    assert len(before) == len(after) > 100
    assert len(moved) == 1
    assert changed.manifest.data.files[0] == master.manifest.data.files[0]
    assert marks(rows_of(changed)) == [(i, "new" if i == 500 else "old") for i in range(1000)]


def test_pages_split_and_vanish(tmp_path, rows_of):
    master = ss.build_master(
        numbered(list(range(0, 100, 2)), "old"), tmp_path / "m", key="id", page_bytes=4096
    )
    pages = master.pages
    grown = master.append(numbered(list(range(1, 100, 2)), "new"))
    assert grown.pages > pages
    shrunk = grown.delete(pa.table({"id": range(10, 90)}))
    assert shrunk.pages < pages
    assert [row["id"] for row in rows_of(shrunk)] == [*range(10), *range(90, 100)]
    gone = shrunk.delete(pa.table({"id": range(100)}))
    assert (gone.rows, gone.pages, gone.manifest.data.files) == (0, 0, ())
    back = gone.upsert(numbered([3], "back"))
    assert marks(rows_of(back)) == [(3, "back")]
    assert (back.statistics.distinct_keys, back.statistics.min_key) == (1, "3")


def test_a_key_over_the_edge_of_two_groups(tmp_path, monkeypatch, rows_of, pages_of):
    """Pages 0 .. n all hold one key and are rewritten one by one; what is before the last of them vanishes."""
    monkeypatch.setattr(change, "_GROUP_BYTES", 1)
    ids = [1] * 3 + [2] * 40 + [3] * 3
    master = ss.build_master(numbered(ids, "old"), tmp_path / "m", key="id", page_bytes=4096)
    master = master.delete(pa.table({"id": [1]}))
    gone = master.delete(pa.table({"id": [2]}))
    pages = pages_of(gone.data)
    assert [row["id"] for page in pages for row in page] == [3] * 3
    assert find(gone, gone.index, [(3,)]) == [[*range(len(pages))]]
    found = gone.index.find(gone.codec.encode([pa.array([2])]))
    assert found.first[0] >= 0, "there is no page before the first"
    assert marks(rows_of(gone.append(numbered([2], "new")))) == [(2, "new"), *[(3, "old")] * 3]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", ["append", "upsert", "delete"])
def test_no_rows_make_a_version_with_the_same_rows(tmp_path, rows_of, layout, operation):
    master = ss.build_master(numbered([2, 1], "old"), tmp_path / "m", key="id", layout=layout)
    changed = getattr(master, operation)(numbered([], "new"))
    assert changed.version == 2
    assert rows_of(changed) == rows_of(master)
    only_nulls = getattr(changed, operation)(pa.table({"id": pa.nulls(2, pa.int64()), "v": ["x", "y"]}))
    assert rows_of(only_nulls) == rows_of(master)
    assert only_nulls.statistics.null_keys == (0 if operation == "delete" else 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_master_can_be_changed(tmp_path, rows_of, layout):
    master = ss.build_master(
        numbered([], "old").cast(numbered([1], "").schema), tmp_path / "m", key="id", layout=layout
    )
    assert rows_of(master.delete(pa.table({"id": [1]}))) == []
    filled = master.append(numbered([3, 1, 3], "new"))
    order = [1, 3, 3] if layout == "key" else [3, 1, 3]
    assert [row["id"] for row in rows_of(filled)] == order
    assert filled.version == 3, "a change applies to what is current, not to what was opened"


def test_a_delete_looks_at_the_key_only(tmp_path, rows_of):
    master = ss.build_master(numbered([1, 2, 3], "old"), tmp_path / "m", key="id")
    gone = master.delete(pa.table({"other": ["?"], "id": pa.array([2], pa.int8())}))
    assert [row["id"] for row in rows_of(gone)] == [1, 3]


def test_a_change_with_columns_in_another_order_and_more_of_them(tmp_path, rows_of):
    master = ss.build_master(numbered([1], "old", 0), tmp_path / "m", key="id")
    changed = master.append(pa.table({"extra": [0], "v": ["new"], "id": [2]}))
    assert rows_of(changed) == [{"id": 1, "v": "old"}, {"id": 2, "v": "new"}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pa.table({"id": [1]}), r"columns id, v.*found columns id\. Add v"),
        (pa.table({"id": ["x"], "v": ["y"]}), r"column 'id' as int64.*found string.*Cast it first"),
        (pa.table({"id": [1.5], "v": ["y"]}), r"column 'id' as int64.*found double.*Cast it first"),
    ],
    ids=["missing column", "wrong type", "loses digits"],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_change_that_does_not_fit_changes_nothing(tmp_path, tree_of, layout, rows, message):
    master = ss.build_master(numbered([1], "old"), tmp_path / "m", key="id", layout=layout)
    before = tree_of(tmp_path)
    for operation in (master.append, master.upsert):
        with pytest.raises(InvalidInputError, match=message):
            operation(rows)
    assert tree_of(tmp_path) == before


def test_a_column_named_like_the_page_number(tmp_path, pages_of):
    table = pa.table({"page": [3, 1], "page_": [7, 8]})
    master = ss.build_master(table, tmp_path / "m", key=["page", "page_"], layout="frequency")
    entries = [entry for page in pages_of(master.key_index) for entry in page]
    assert entries == [{"page": 1, "page_": 8, "page__": 0}, {"page": 3, "page_": 7, "page__": 0}]
