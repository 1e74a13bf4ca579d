"""The look-up that people write by hand: a least-recently-used dictionary of rows before LMDB.

In a module of its own, so that Spark's workers import it and keep what it opened: a function that is sent to them is made anew
for every task, and with it whatever it keeps.
"""

from __future__ import annotations

import pickle  # of our own rows, written by these benchmarks
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

ROW_BYTES = 600  # of a cached row as Python objects: measured, a tuple of ten with its strings
Cache = OrderedDict[int, tuple[object, ...]]


def enriched(
    batch: pa.RecordBatch, reading: Any, cached: Cache, capacity: int, payload: pa.Schema
) -> pa.RecordBatch:
    """A batch with the rows of its keys, which are its first column."""
    rows = []
    for key in batch.column(0).to_pylist():
        row = cached.get(key)
        if row is None:
            found = reading.get(struct.pack(">q", key))
            if found is None:
                sys.exit(f"product {key} is not in LMDB: remove it and run again")
            row = pickle.loads(found)  # noqa: S301 - our own
            if len(cached) >= capacity:
                cached.popitem(last=False)
            cached[key] = row
        else:
            cached.move_to_end(key)
        rows.append(row)
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), payload, strict=True)]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *payload]))


_kept: dict[str, tuple[Any, Cache]] = {}  # by a worker, from task to task


def in_worker(
    batches: Iterable[pa.RecordBatch], path: str, capacity: int, payload: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The same for the batches of a task."""
    import lmdb

    if path not in _kept:
        _kept[path] = (lmdb.open(path, readonly=True, lock=False), OrderedDict())
    store, cached = _kept[path]
    with store.begin(buffers=True) as reading:
        for batch in batches:
            yield enriched(batch, reading, cached, capacity, payload)
