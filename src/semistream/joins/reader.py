"""The master as a join reads it: pages into the disk buffer, their keys as codes, their rows as leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.joins.sides import JoinShape, probes_of
from semistream.master import Master
from semistream.master import pagecolumns as columns
from semistream.master.disk import Disk, aligned_buffer
from semistream.master.keys import KeyCodec, Keys, NarrowKeys
from semistream.master.page import read_page
from semistream.master.pagecolumns import LoadedPages, first_buffer, locate
from semistream.memory.budget import Budget
from semistream.memory.leaves import Leaf, Rows, Values
from semistream.memory.table import Probes

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


@dataclass(frozen=True)
class Loaded:
    """What one disk access brought: the pages, and the keys of all their rows."""

    reader: MasterReader
    pages: I64
    found: LoadedPages
    probes: Probes
    keys: Keys

    def rows(self, at: I64) -> Rows:
        """The output columns of loaded rows."""
        return self.reader.rows(self.found, at)


@dataclass
class MasterReader:
    """One version of a master behind a disk buffer of `buffer_bytes`."""

    master: Master
    shape: JoinShape
    disk: Disk
    buffer: U8
    codes: NDArray[np.uint64]

    @staticmethod
    def open(
        master: Master, shape: JoinShape, disk: Disk, budget: Budget, buffer_bytes: int, *, who: str
    ) -> MasterReader:
        """Take the index and the disk buffer out of the budget."""
        budget.take("index", index_bytes(master), who=who)
        size = max(buffer_bytes, master.index.max_page_bytes)
        budget.take("disk buffer", size, who=who)
        rows = max(1, size // max(master.page_bytes, 1)) * master.index.max_page_rows
        codes = budget.array("disk buffer", rows, "u8", who=who)
        return MasterReader(master, shape, disk, aligned_buffer(max(size, 4096))[:size], codes)  # type: ignore[arg-type]

    @property
    def pages_at_once(self) -> int:
        """How many pages of the usual size fit into the disk buffer."""
        return max(1, len(self.buffer) // self.master.page_bytes)

    def load(self, pages: I64) -> Loaded:
        """Read pages, which must fit into the disk buffer; what was loaded before is gone."""
        extents = self.master.data.load(pages, self.disk, self.buffer)
        found = locate(self.buffer, extents.target, self.master.schema)
        keys = self._keys(found, extents.target, extents.length)
        return Loaded(self, pages, found, probes_of(keys), keys)

    def fitting(self, pages: I64) -> int:
        """How many of these pages, from the first on, fit into the disk buffer together."""
        lengths = np.cumsum(self.master.index.extents(pages).length)
        return int(np.searchsorted(lengths, len(self.buffer), side="right"))

    def rows(self, found: LoadedPages, at: I64) -> Rows:
        """The output columns of rows in the disk buffer."""
        pages = found.pages_of(at)
        inside = at - found.first_row[pages]
        return Rows(
            len(at), tuple(self._values(found, leaf, pages, inside) for leaf in self.shape.master_leaves)
        )

    def _values(self, found: LoadedPages, leaf: Leaf, pages: I64, rows: I64) -> Values:
        column = self.master.schema.get_field_index(self.shape.master_columns[leaf.path[0]])
        if (
            pat.is_null(leaf.type)
            and len(leaf.path) == 1
            and pat.is_null(self.master.schema.field(column).type)
        ):
            return Values(np.empty(0, dtype=np.uint8), None, np.zeros(len(rows), dtype=np.uint8))
        first = first_buffer(self.master.schema, (column, *leaf.path[1:]))
        valid = np.empty(len(rows), dtype=np.uint8)
        nulls = columns.take_bits(found.buffer, found.address[:, first], pages, rows, valid)
        kept = valid if nulls else None
        if pat.is_null(leaf.type):
            return Values(np.empty(0, dtype=np.uint8), None, kept)
        address = found.address[:, first + 1]
        if leaf.is_varying:
            offsets = np.zeros(len(rows) + 1, dtype=np.int64)
            columns.take_lengths(found.buffer, address, pages, rows, offsets)
            data = np.empty(int(offsets[-1]), dtype=np.uint8)
            columns.take_varying(
                found.buffer, address, found.address[:, first + 2], pages, rows, offsets, data
            )
            return Values(data, offsets, kept)
        if pat.is_boolean(leaf.type):
            bits = np.empty(len(rows), dtype=np.uint8)
            columns.take_bits(found.buffer, address, pages, rows, bits)
            return Values(bits, None, kept)
        if leaf.width == 8:
            words = np.empty(len(rows), dtype=np.int64)
            columns.take_words(found.buffer.view(np.int64), address, pages, rows, words)
            return Values(words.view(np.uint8), None, kept)
        data = np.empty(len(rows) * leaf.width, dtype=np.uint8)
        columns.take_bytes(found.buffer, address, leaf.width, pages, rows, data)
        return Values(data, None, kept)

    def _keys(self, found: LoadedPages, starts: I64, lengths: I64) -> Keys:
        codec = self.master.codec
        if not codec.is_narrow:
            return wide_keys(self.buffer, starts, lengths, self.master.schema, self.master.key, codec)
        codes = (
            self.codes[: found.rows]
            if found.rows <= len(self.codes)
            else np.empty(found.rows, dtype=np.uint64)
        )
        codes.fill(0)
        narrow_codes(found, self.master.schema, self.master.key, codec, codes)
        return NarrowKeys(codes)


def index_bytes(master: Master) -> int:
    """Memory of the indexes a reader keeps."""
    return master.index.nbytes + (master.key_index.index.nbytes if master.key_index else 0)


def narrow_codes(
    found: LoadedPages, schema: pa.Schema, key: Sequence[str], codec: KeyCodec, codes: NDArray[np.uint64]
) -> None:
    """The codes of all loaded rows, read where they lie."""
    shift = 0
    for name, kind in reversed(list(zip(key, codec.types, strict=True))):
        decimal = pat.is_decimal(kind)
        width = 8 if decimal else kind.bit_width // 8
        step = kind.bit_width // 8
        data = first_buffer(schema, (schema.get_field_index(name),)) + 1
        signed = not pat.is_unsigned_integer(kind)
        columns.narrow_codes(
            found.buffer, found.first_row, found.address[:, data], width, signed, step, shift, codes
        )
        shift += 8 * width


def wide_keys(
    buffer: U8, starts: I64, lengths: I64, schema: pa.Schema, key: Sequence[str], codec: KeyCodec
) -> Keys:
    """The keys of all loaded rows, through Arrow: bytes outside the budget, fewer than the disk buffer has."""
    batches = [
        read_page(buffer[start : start + length], schema).select(list(key))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    if not batches:
        return codec.concat([])
    whole = pa.concat_batches(batches)
    return codec.encode(whole.columns)
