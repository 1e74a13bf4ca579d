"""Whatever rows come in, the same master comes out."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import MissingDependencyError
from semistream.master import LAYOUTS, sources

ROWS = [{"id": (i * 7) % 50, "v": None if i % 5 == 0 else f"row {i}", "n": i % 3} for i in range(50)]
TABLE = pa.Table.from_pylist(ROWS)


class Frame:
    """A data frame of another library: all it offers is the Arrow stream protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def parquet_file(folder):
    pq.write_table(TABLE, folder / "rows.parquet", row_group_size=13)
    return folder / "rows.parquet"


def parquet_folder(folder):
    (folder / "many").mkdir()
    for i in range(4):
        pq.write_table(TABLE.slice(i * 13, 13), folder / "many" / f"part-{i}.parquet")
    (folder / "many" / "_SUCCESS").touch()
    return folder / "many"


SOURCES = {
    "table": lambda _: TABLE,
    "table of many chunks": lambda _: pa.concat_tables([TABLE.slice(i, 7) for i in range(0, 50, 7)]),
    "batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda _: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=9)),
    "dataset in memory": lambda _: pads.dataset(TABLE),
    "dataset of files": lambda folder: pads.dataset(parquet_folder(folder)),
    "filtered dataset": lambda _: pads.dataset(
        pa.concat_tables([TABLE, TABLE.set_column(0, "id", pa.array([-1] * 50))])
    ).filter(pads.field("id") >= 0),
    "Parquet file": parquet_file,
    "name of a Parquet file": lambda folder: str(parquet_file(folder)),
    "Parquet folder": parquet_folder,
    "list of Parquet files": lambda folder: sorted(parquet_folder(folder).glob("part-*.parquet")),
    "list of names": lambda folder: [str(p) for p in sorted(parquet_folder(folder).glob("part-*.parquet"))],
    "stream protocol": lambda _: Frame(TABLE),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", SOURCES)
def test_the_same_rows_from_every_source(tmp_path, rows_of, name, layout):
    master = ss.build_master(SOURCES[name](tmp_path), tmp_path / "m", key="id", layout=layout)
    assert rows_of(master) == (sorted(ROWS, key=lambda row: row["id"]) if layout == "key" else ROWS)
    assert master.schema == TABLE.schema


@pytest.mark.parametrize("name", SOURCES)
def test_changes_from_every_source(tmp_path, rows_of, name):
    old = pa.table({"id": [3, 100], "v": ["old", "old"], "n": [0, 0]})
    master = ss.build_master(old, tmp_path / "m", key="id")
    changed = master.upsert(SOURCES[name](tmp_path))
    assert rows_of(changed) == [*sorted(ROWS, key=lambda row: row["id"]), {"id": 100, "v": "old", "n": 0}]
    # The key alone decides what is deleted; the other columns are not looked at.
    assert [row["id"] for row in rows_of(changed.delete(Frame(TABLE)))] == [100]


@pytest.mark.parametrize("name", SOURCES)
def test_the_number_of_rows_is_known_where_it_costs_nothing(tmp_path, name):
    known = sources.open_source(SOURCES[name](tmp_path)).rows
    assert known == (None if name in ("reader", "stream protocol") else 50)


def test_files_of_one_folder_may_differ_in_form(tmp_path, rows_of):
    """One file has strings, another the same strings as a dictionary."""
    encoded = TABLE.slice(20).set_column(1, "v", TABLE.slice(20).column("v").dictionary_encode())
    master = ss.build_master(
        Frame(pa.concat_tables([TABLE.slice(0, 20), encoded.cast(TABLE.schema)])), tmp_path / "m", key="id"
    )
    assert rows_of(master) == sorted(ROWS, key=lambda row: row["id"])


def test_an_empty_reader(tmp_path, rows_of):
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, [])
    master = ss.build_master(reader, tmp_path / "m", key="id")
    assert rows_of(master) == []
    assert master.schema == TABLE.schema


def test_a_source_whose_engine_is_not_installed(tmp_path, monkeypatch):
    """Only where Spark is missing; with it, tests/spark builds from a DataFrame."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe"})()
    monkeypatch.setitem(sources._ENGINES, "pyspark", "semistream.no_such_engine")
    with pytest.raises(
        MissingDependencyError, match=r"a source of pyspark: found .*pip install 'semistream\[spark\]'"
    ):
        ss.build_master(frame, tmp_path / "m", key="id")
    assert list(tmp_path.iterdir()) == []
