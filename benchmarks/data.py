"""The data the benchmarks share, made once per machine below SEMISTREAM_BENCH_DIR (default: ./artifacts)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq

from semistream.master import Master, build_master, open_master
from semistream.workload import EveryKey, retail

ROOT = Path(os.environ.get("SEMISTREAM_BENCH_DIR", "artifacts")).resolve()
ROWS = 10_000_000
SEED = 1
_FILE_ROWS = 1_000_000


def products_parquet(rows: int = ROWS) -> Path:
    """A directory of Parquet files with products in no order of their key."""
    folder = ROOT / f"products-{rows}"
    if not (folder / "_DONE").exists():
        print(f"making {rows:,} products as Parquet in {folder} (once)", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        products = retail.Products(rows, SEED, keys=EveryKey(rows, popularity="scattered"))
        for start in range(0, rows, _FILE_ROWS):
            with pq.ParquetWriter(
                folder / f"part-{start // _FILE_ROWS:04d}.parquet", products.schema
            ) as file:
                stop = min(start + _FILE_ROWS, rows)
                for first in range(start, stop, 1 << 16):
                    file.write_batch(products.slice(first, min(first + (1 << 16), stop)))
        (folder / "_DONE").touch()
    return folder


def products_store(rows: int = ROWS) -> Master:
    """The same products as a master store of 16 KiB pages."""
    path = ROOT / f"store-{rows}"
    if not path.exists():
        print(f"building the store of {rows:,} products in {path} (once)", file=sys.stderr)
        build_master(str(products_parquet(rows)), path, key="product_id")
    return open_master(path)
