"""The non-clustered index of layout "frequency": which pages hold a key, itself kept in sorted pages.

It is a small master of its own, (key, page) sorted by key, so a look-up costs one read of an index page found through
its sparse index, as in X-HYBRID's B-tree whose inner nodes are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.master.keys import KeyCodec
from semistream.master.manifest import PageSetRecord
from semistream.master.operation import Operation
from semistream.master.pageset import PageSet, save_page_set
from semistream.master.part import PartWriter, key_codes, page_table
from semistream.master.schema import MasterSchema
from semistream.master.sort import ExternalSort
from semistream.master.sources import ArrowSource, SortBy


def key_index_schema(schema: MasterSchema) -> MasterSchema:
    """The columns of the index: the key, and the page that holds a row with it."""
    page = "page"
    while page in schema.key:
        page += "_"
    fields = [schema.arrow.field(name) for name in schema.key]
    return MasterSchema(
        arrow=pa.schema([*fields, pa.field(page, pa.int64(), nullable=False)]), key=schema.key
    )


@dataclass(frozen=True)
class KeyIndex:
    """An index as the manifest refers to it, and what was learnt about the keys on the way."""

    record: PageSetRecord
    distinct_keys: int
    max_rows_per_key: int


def build_key_index(op: Operation, schema: MasterSchema, data: PageSet, *, page_bytes: int) -> KeyIndex:
    """Index the keys of these pages."""
    columns = key_index_schema(schema)
    codec = KeyCodec(schema.key_types)
    source = ArrowSource(columns.arrow, lambda: _entries(data, columns), None)
    writer = PartWriter(op.storage, columns, page_bytes, ordered=True, folder=op.folder)
    (part,) = source.write(writer, sort_by=SortBy(schema.key), scratch=op.scratch, progress=None)
    table, files = page_table([part], codec, ordered=True)
    record = save_page_set(op.storage, table, files, folder=op.folder)
    return KeyIndex(record, part.distinct_keys or 0, part.max_rows_per_key or 0)


def count_distinct_keys(op: Operation, schema: MasterSchema, data: PageSet) -> int:
    """How many keys these pages have, in any order: their keys are sorted outside memory."""
    columns = key_index_schema(schema)
    codec = KeyCodec(schema.key_types)
    sorter = ExternalSort(codec, lambda batch: key_codes(batch, schema.key, codec), op.scratch)
    count, last = 0, None
    for batch in sorter.ranges(_entries(data, columns)):
        keys = key_codes(batch, schema.key, codec)
        if not len(keys):
            continue
        known = keys if last is None else codec.concat([last, keys])
        count += int(np.count_nonzero(known.starts())) - (0 if last is None else 1)
        last = keys.take(np.array([len(keys) - 1]))
    return count


def _entries(data: PageSet, columns: MasterSchema) -> Iterator[pa.RecordBatch]:
    page = 0
    with data.open_disk("buffered") as disk:
        for batches in data.scan(disk):
            rows = [len(batch) for batch in batches]
            keys = pa.concat_batches([batch.select(list(columns.key)) for batch in batches])
            pages = np.repeat(np.arange(page, page + len(batches), dtype=np.int64), rows)
            page += len(batches)
            entries = pa.RecordBatch.from_arrays([*keys.columns, pa.array(pages)], schema=columns.arrow)
            yield entries.take(
                pa.array(np.arange(len(entries)))
            )  # the disk buffer is about to be overwritten
