"""The external sort against sorted(): with so little memory that every few rows are spilled."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.master import sort, sources
from semistream.master.keys import KeyCodec
from semistream.master.part import key_codes
from semistream.master.sort import ExternalSort

SCHEMAS = {
    "narrow": (pa.int64(), st.integers(-20, 20)),
    "wide": (pa.string(), st.text(alphabet="\0ab", max_size=4)),
    "long": (pa.binary(), st.integers(0, 30).map(lambda n: b"prefix " * 30 + b"\0" * n)),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of five rows: runs then have many, as they do when there are millions of rows."""
    monkeypatch.setattr(sort, "_BLOCK_ROWS", 5)


def sorter_of(kind: pa.DataType, scratch, memory_bytes: int) -> ExternalSort:
    codec = KeyCodec((kind,))
    return ExternalSort(codec, lambda batch: key_codes(batch, ["k"], codec), scratch, memory_bytes)


def batches_of(rows: list[tuple], kind: pa.DataType, size: int) -> list[pa.RecordBatch]:
    schema = pa.schema({"k": kind, "at": pa.int64()})
    return [
        pa.RecordBatch.from_pylist([{"k": k, "at": at} for k, at in rows[i : i + size]], schema=schema)
        for i in range(0, len(rows), size)
    ]


@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_rows_come_out_sorted_and_stable(tmp_path_factory, small_blocks, name, data):
    kind, keys = SCHEMAS[name]
    rows = [(key, at) for at, key in enumerate(data.draw(st.lists(keys, max_size=150)))]
    batches = batches_of(rows, kind, data.draw(st.integers(1, 40)))
    scratch = tmp_path_factory.mktemp("sort") / "scratch"
    sorter = sorter_of(kind, scratch, data.draw(st.sampled_from([1, 200, 2_000, 1 << 20])))

    ranges = list(sorter.ranges(batches))

    found = [(row["k"], row["at"]) for batch in ranges for row in batch.to_pylist()]
    assert found == sorted(rows, key=lambda row: row[0])
    # A key goes on in the next batch only if it has both to itself: there it was not merged.
    for one, other in itertools.pairwise(batch.column("k").to_pylist() for batch in ranges):
        assert one[-1] < other[0] or set(one) == set(other)
    assert not scratch.exists()


def test_a_tiny_memory_spills_many_runs_and_hands_on_small_ranges(tmp_path, small_blocks):
    rows = [((i * 7919) % 5003, i) for i in range(5003)]
    sorter = sorter_of(pa.int64(), tmp_path / "scratch", memory_bytes=6_000)
    sizes = [len(batch) for batch in sorter.ranges(batches_of(rows, pa.int64(), 100))]
    assert len(sorter._runs) >= 10
    assert sum(sizes) == 5003
    assert max(sizes) * 16 < 6_000, "a range of 16-byte rows fits in the memory given"


def test_what_fits_in_memory_is_not_spilled(tmp_path):
    sorter = sorter_of(pa.int64(), tmp_path / "scratch", memory_bytes=1 << 20)
    assert len(list(sorter.ranges(batches_of([(2, 0), (1, 1)], pa.int64(), 1)))) == 1
    assert sorter._runs == []
    assert list(sorter.ranges([])) == []


def test_one_key_for_all_rows(tmp_path, small_blocks):
    rows = [(4, at) for at in range(500)]
    sorter = sorter_of(pa.int64(), tmp_path / "scratch", memory_bytes=100)
    batches = sorter.ranges(batches_of(rows, pa.int64(), 10))
    assert [at for batch in batches for at in batch.column("at").to_pylist()] == list(range(500))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_scratch_goes_when_the_source_fails(tmp_path, small_blocks, error):
    def failing():
        yield from batches_of([(i, i) for i in range(100)], pa.int64(), 10)
        raise error("midway")

    with pytest.raises(error, match="midway"):
        list(sorter_of(pa.int64(), tmp_path / "scratch", 100).ranges(failing()))
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_goes_when_the_reader_stops(tmp_path, small_blocks):
    ranges = sorter_of(pa.int64(), tmp_path / "scratch", 100).ranges(
        batches_of([(i, i) for i in range(100)], pa.int64(), 10)
    )
    next(ranges)
    assert (tmp_path / "scratch").exists()
    ranges.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", ["key", "frequency"])
def test_a_build_that_spills(tmp_path, small_blocks, monkeypatch, rows_of, layout):
    spilled = []
    sorting = ExternalSort

    def small(codec, codes_of, scratch):
        spilled.append(sorting(codec, codes_of, scratch, memory_bytes=2_000))
        return spilled[-1]

    monkeypatch.setattr(sources, "ExternalSort", small)
    rows = [{"k": (i * 37) % 101, "n": i % 5, "v": f"{i}"} for i in range(1000)]
    master = ss.build_master(
        pa.Table.from_batches(pa.Table.from_pylist(rows).to_batches(max_chunksize=50)),
        tmp_path / "m",
        key="k",
        layout=layout,
        frequency="n" if layout == "frequency" else None,
        page_bytes=4096,
    )
    assert len(spilled[0]._runs) > 5
    by = (lambda row: row["k"]) if layout == "key" else (lambda row: -row["n"])
    assert rows_of(master) == sorted(rows, key=by)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "pages",
        "semistream-master.json",
        "versions",
    ]


@pytest.mark.parametrize("hot_share", [0.5, 1.0])
def test_a_key_that_fills_many_runs_is_handed_on_in_pieces(tmp_path, monkeypatch, hot_share):
    """Most rows share one key: they come out in the order they came, and never as one batch."""
    monkeypatch.setattr(sort, "_BLOCK_ROWS", 64)
    generator = np.random.default_rng(1)
    keys = np.where(generator.random(20_000) < hot_share, 7, generator.integers(0, 15, 20_000))
    table = pa.table({"k": keys, "n": np.arange(20_000)})
    codec = KeyCodec((pa.int64(),))
    sorter = sort.ExternalSort(
        codec, lambda b: codec.encode([b.column(0)]), tmp_path / "runs", memory_bytes=60_000
    )
    batches = list(sorter.ranges(table.to_batches(max_chunksize=500)))
    got = pa.Table.from_batches(batches).to_pydict()
    order = sorted(range(20_000), key=lambda i: (keys[i], i))
    assert got["n"] == order
    assert max(map(len, batches)) < 5_000
