"""What must not be touched, and what must not be believed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import SemistreamError, StoreError
from semistream.master import operation

TABLE = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


def test_a_listing_that_fails_is_not_an_empty_store(tmp_path, monkeypatch):
    master = ss.build_master(TABLE, tmp_path / "s", key="id").upsert(pa.table({"id": [1], "v": ["z"]}))
    real = os.scandir

    def failing(path="."):
        if str(path).endswith("versions"):
            raise OSError(errno.EMFILE, "Too many open files", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(StoreError, match="Too many open files"):
        master.vacuum(keep_for=timedelta(0))
    monkeypatch.undo()
    assert ss.open_master(tmp_path / "s").verify().damaged == ()


def test_vacuum_leaves_what_is_not_the_stores(tmp_path):
    master = ss.build_master(TABLE, tmp_path / "s", key="id")
    (tmp_path / "s" / "NOTES.md").write_text("mine")
    nested = ss.build_master(TABLE, tmp_path / "s" / "nested", key="id")
    master.upsert(pa.table({"id": [1], "v": ["z"]})).vacuum(keep_for=timedelta(0))
    assert (tmp_path / "s" / "NOTES.md").read_text() == "mine"
    assert nested.verify().damaged == ()


def test_a_version_whose_files_are_elsewhere_is_not_made(tmp_path, monkeypatch):
    """As when executors see another disk, or a vacuum came too early."""
    commit = operation.Operation.commit

    def after_the_files_went(self, manifest):
        for stored in self.storage.list(self.folder):
            self.storage.delete(stored.name)
        commit(self, manifest)

    monkeypatch.setattr(operation.Operation, "commit", after_the_files_went)
    with pytest.raises(StoreError, match=r"are not there.*share"):
        ss.build_master(TABLE, tmp_path / "s", key="id")
    monkeypatch.undo()
    assert not (tmp_path / "s").exists()


def test_a_file_that_a_late_task_left_does_not_block_the_path(tmp_path):
    late = tmp_path / "s" / "pages" / ("0" * 32)
    late.mkdir(parents=True)
    (late / "late.arrow").write_bytes(b"written after the build was given up")
    master = ss.build_master(TABLE, tmp_path / "s", key="id")
    assert master.verify().rows == 3
    master.vacuum(keep_for=timedelta(0))
    assert not late.exists()


def test_partition_columns_of_a_directory_are_kept(tmp_path):
    table = pa.table({"id": [1, 2, 3], "country": ["de", "nz", "de"]})
    pq.write_to_dataset(table, tmp_path / "p", partition_cols=["country"])
    master = ss.build_master(str(tmp_path / "p"), tmp_path / "s", key="id")
    assert pa.Table.from_batches(master.scan()).to_pydict() == table.to_pydict()


def test_nulls_in_a_column_declared_not_null_are_refused(tmp_path):
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([None], pa.int64())], schema=schema)
    with pytest.raises(SemistreamError, match="declared not null: found 1 nulls"):
        ss.build_master(batch, tmp_path / "s", key="id")
    assert not (tmp_path / "s").exists()


def test_the_package_works_where_nothing_can_be_cached():
    """Read-only site-packages and no home, as on many executors."""
    code = (
        "import numba.core.caching as c\n"
        "c.CacheImpl._locator_classes = []\n"
        "c.FunctionCache._impl_class._locator_classes = []\n"
        "import pyarrow as pa, semistream as ss, tempfile\n"
        "with tempfile.TemporaryDirectory() as d:\n"
        "    m = ss.build_master(pa.table({'id': [1]}), d + '/s', key='id')\n"
        "    print(m.verify().rows)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_files_with_different_columns_give_all_of_them(tmp_path):
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "v": ["x"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": ["three"], "v": ["x"]}), tmp_path / "c.parquet")
    files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet", "c.parquet")]
    master = ss.build_master(files[:2], tmp_path / "s", key="id")
    assert pa.Table.from_batches(master.scan()).to_pydict() == {"id": [1, 2], "v": [None, "x"]}
    with pytest.raises(SemistreamError, match="the Parquet files of"):
        ss.build_master(files, tmp_path / "t", key="id")
