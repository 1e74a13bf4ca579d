"""The sparse index finds exactly the pages that a scan of all pages finds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.master import LAYOUTS
from semistream.master.index import PageIndex

# Long common beginnings make short separators; repeats make keys go on over the edges of pages.
STEMS = st.sampled_from(["", "a", "aa" * 20, "aa" * 20 + "b", "\0", "b\0", "b\0\0"])
WORDS = st.builds(lambda stem, n: f"{stem}{n:x}" if n else stem, STEMS, st.integers(0, 40))
KINDS = {
    "int64": (st.tuples(st.integers(-60, 60)), [pa.int64()]),
    "string": (st.tuples(WORDS), [pa.string()]),
    "binary": (st.tuples(WORDS.map(str.encode)), [pa.binary()]),
    "string+int32": (st.tuples(WORDS, st.integers(-2, 2)), [pa.string(), pa.int32()]),
    "int16+int16": (st.tuples(st.integers(-6, 6), st.integers(-3, 3)), [pa.int16(), pa.int16()]),
}


def columns_of(keys: list[tuple], types: list[pa.DataType]) -> list[pa.Array]:
    return [pa.array([key[i] for key in keys], kind) for i, kind in enumerate(types)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_find_gives_the_pages_that_hold_a_key(tmp_path_factory, pages_of, kind, data):
    strategy, types = KINDS[kind]
    drawn = data.draw(st.lists(st.tuples(strategy, st.integers(1, 9)), min_size=1, max_size=40))
    keys = [key for key, times in drawn for _ in range(times)]
    names = [f"k{i}" for i in range(len(types))]
    columns = [*columns_of(keys, types), pa.array(["p" * 700] * len(keys))]  # a handful of rows a page
    table = pa.table(columns, names=[*names, "v"])
    path = tmp_path_factory.mktemp("find") / "m"
    master = ss.build_master(table, path, key=names, page_bytes=4096)
    pages = [[tuple(row[name] for name in names) for row in page] for page in pages_of(master.data)]

    probes = sorted(set(keys)) + data.draw(st.lists(strategy, max_size=30))
    found = master.index.find(master.codec.encode(columns_of(probes, types)))

    for probe, first, last in zip(probes, found.first.tolist(), found.last.tolist(), strict=True):
        holding = [i for i, page in enumerate(pages) if probe in page]
        if holding:
            assert list(range(first, last + 1)) == holding, probe
        elif last < first:
            assert probe < pages[0][0], "only a key below all others is known to be nowhere"
        else:
            assert first == last, "an absent key costs one page at most"
            assert all(key < probe for page in pages[:first] for key in page)
            assert all(key > probe for page in pages[first + 1 :] for key in page)


@pytest.mark.parametrize("rows_per_key", [1, 2, 7, 100])
@pytest.mark.parametrize("key", ["narrow", "wide"])
def test_every_key_of_a_larger_master(tmp_path, pages_of, rows_per_key, key):
    values = [i if key == "narrow" else f"customer-{i:09d}" for i in range(0, 6000 // rows_per_key, 2)]
    table = pa.table({"k": [v for v in values for _ in range(rows_per_key)]})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes=4096)
    pages = pages_of(master.data)
    holding: dict[object, list[int]] = {}
    for i, page in enumerate(pages):
        for value in {row["k"] for row in page}:
            holding.setdefault(value, []).append(i)
    assert len(pages) > 3

    found = master.index.find(master.codec.encode([pa.array(values)]))

    assert [[*range(f, u + 1)] for f, u in zip(found.first.tolist(), found.last.tolist(), strict=True)] == [
        holding[value] for value in values
    ]


def test_wide_separators_are_cut_short(tmp_path):
    """Keys of 200 bytes that differ early need a few bytes a page."""
    table = pa.table({"k": [f"{i:05d}" + "x" * 200 for i in range(5000)]})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes=4096)
    assert master.pages > 100
    assert master.index.nbytes < 20 * master.pages


def test_narrow_keys_cost_about_eight_bytes_a_page(tmp_path):
    master = ss.build_master(pa.table({"k": range(100_000)}), tmp_path / "m", key="k", page_bytes=4096)
    assert master.pages > 150
    assert 8 * master.pages <= master.index.nbytes <= 9 * master.pages + 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_small_form_of_the_table_knows_where_every_page_is(tmp_path, layout):
    """Pages of several lengths, over two files, as a change leaves them."""
    rows = [{"id": i, "v": "x" * (9000 if i % 7 == 0 else 300)} for i in range(200)]
    master = ss.build_master(
        pa.Table.from_pylist(rows), tmp_path / "m", key="id", layout=layout, page_bytes=4096
    )
    master = master.upsert(pa.Table.from_pylist([{"id": i, "v": "y" * 5000} for i in (3, 90, 91, 400)]))
    table = master.data.load_table()
    index = PageIndex.of(table)
    everything = index.extents(pa.array(range(len(table))).to_numpy())
    for found, known in (
        (everything.file, table.file),
        (everything.offset, table.offset),
        (everything.length, table.length),
    ):
        assert found.tolist() == known.tolist()
    lengths = table.length.tolist()
    assert everything.target.tolist() == [sum(lengths[:i]) for i in range(len(lengths))]
    assert index.max_page_bytes == max(lengths)
    some = index.extents(pa.array([5, 0, 5]).to_numpy())
    assert some.offset.tolist() == table.offset[[5, 0, 5]].tolist()


def test_only_sorted_pages_have_separators(tmp_path):
    master = ss.build_master(pa.table({"id": [1]}), tmp_path / "m", key="id", layout="heap")
    with pytest.raises(AssertionError, match="only layout 'key'"):
        master.index.find(master.codec.encode([pa.array([1])]))
