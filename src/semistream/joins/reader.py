"""The master as a join reads it: pages into the disk buffer, their keys as codes, their rows as leaves."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.address import address_of
from semistream.joins.sides import JoinShape, probes_of
from semistream.master import Master
from semistream.master import pagecolumns as pages_
from semistream.master.disk import Disk, Extents, aligned_buffer
from semistream.master.keys import KeyCodec, Keys, NarrowKeys
from semistream.master.pagecolumns import LoadedPages
from semistream.memory.budget import Budget
from semistream.memory.leaves import Assembly, Leaf, LeafPlan, Rows, batch_of, leaves_of
from semistream.memory.table import Probes

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


@dataclass(frozen=True)
class ColumnPlan:
    """Some leaves of a schema, and where pages have them."""

    leaves: LeafPlan
    table: I64  # for the kernels: first buffer, kind, width

    @staticmethod
    def of(schema: pa.Schema, columns: tuple[str, ...], leaves: tuple[Leaf, ...]) -> ColumnPlan:
        """`leaves` are those of the schema's `columns`, in their order."""
        rows = []
        for leaf in leaves:
            column = schema.get_field_index(columns[leaf.path[0]])
            absent = pat.is_null(schema.field(column).type)
            first = 0 if absent else pages_.first_buffer(schema, (column, *leaf.path[1:]))
            rows.append((first, _kind(leaf), leaf.width))
        return ColumnPlan(LeafPlan(leaves), np.array(rows, dtype=np.int64).reshape(-1, 3))

    def take(self, found: LoadedPages, at: I64) -> Rows:
        """These leaves of loaded rows."""
        pages, inside = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.int64)
        pages_.split_rows(found.first_row, at, pages, inside)
        # A leaf may have nulls where a page has a bitmap for it.
        nullable = (found.address[:, self.table[:, 0]] != pages_.ABSENT).any(axis=0)
        out = Assembly.of(self.leaves, len(at), nullable)
        given = (address_of(found.buffer), found.address, self.table, out.addresses, pages, inside)
        pages_.take_values(*given)
        if len(self.leaves.varying):
            out.add_strings()
            pages_.take_strings(*given)
        return out.rows()


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
        return self.reader.output.take(self.found, at)


@dataclass
class MasterReader:
    """One version of a master behind a disk buffer.

    With two halves the next pages can be read while those of the other half are joined: `load(pages, then=...)`.
    """

    master: Master
    disk: Disk
    halves: tuple[U8, ...]
    codes: NDArray[np.uint64]
    output: ColumnPlan
    key: ColumnPlan
    buffers: int
    _ahead: ThreadPoolExecutor | None = None
    _coming: tuple[I64, Future[Extents]] | None = None
    _next_half: int = field(default=0)

    @staticmethod
    def open(
        master: Master,
        shape: JoinShape,
        disk: Disk,
        budget: Budget,
        buffer_bytes: int,
        *,
        who: str,
        halves: int = 1,
        name: str = "disk buffer",
    ) -> MasterReader:
        """Take the disk buffer, of so many bytes in all, out of the budget."""
        pages = max(1, buffer_bytes // halves // max(master.page_bytes, 1))
        size = max(pages * master.page_bytes, master.index.max_page_bytes)
        budget.take(name, halves * size, who=who)
        rows = max(1, size // master.page_bytes) * master.index.max_page_rows
        codes = budget.array(name, rows, "u8", who=who)
        key = pa.schema([master.schema.field(column) for column in master.key])
        return MasterReader(
            master=master,
            disk=disk,
            halves=tuple(aligned_buffer(max(size, 4096))[:size] for _ in range(halves)),
            codes=codes,  # type: ignore[arg-type]
            output=ColumnPlan.of(master.schema, shape.master_columns, shape.master_leaves),
            key=ColumnPlan.of(master.schema, master.key, leaves_of(key)),
            buffers=pages_.buffers_of(master.schema),
            _ahead=ThreadPoolExecutor(max_workers=1) if halves > 1 else None,
        )

    @property
    def half_bytes(self) -> int:
        """Bytes that one access may bring."""
        return len(self.halves[0])

    @property
    def pages_at_once(self) -> int:
        """How many pages of the usual size one access may bring."""
        return max(1, self.half_bytes // self.master.page_bytes)

    def load(self, pages: I64, then: I64 | None = None) -> Loaded:
        """Read pages, which must fit; what was loaded before is gone. `then` are read meanwhile, to be loaded next."""
        extents = self._landed(pages)
        buffer = self.halves[self._next_half]
        self._next_half = (self._next_half + 1) % len(self.halves)
        if then is not None and len(then) and self._ahead is not None:
            coming = self._ahead.submit(self.master.data.load, then, self.disk, self.halves[self._next_half])
            self._coming = (then, coming)
        found = pages_.locate(buffer, extents.target, self.buffers)
        keys = self._keys(found)
        return Loaded(self, pages, found, probes_of(keys), keys)

    def _landed(self, pages: I64) -> Extents:
        if self._coming is not None:
            expected, coming = self._coming
            self._coming = None
            extents = coming.result()
            if np.array_equal(expected, pages):
                return extents
        return self.master.data.load(pages, self.disk, self.halves[self._next_half])

    def fitting(self, pages: I64) -> int:
        """How many of these pages, from the first on, one access may bring."""
        lengths = np.cumsum(self.master.index.extents(pages).length)
        return int(np.searchsorted(lengths, self.half_bytes, side="right"))

    def close(self) -> None:
        """Let what is being read land, and give the thread back; the disk is another's."""
        if self._ahead is not None:
            self._ahead.shutdown()

    def _keys(self, found: LoadedPages) -> Keys:
        codec = self.master.codec
        if not codec.is_narrow:
            everything = np.arange(found.rows, dtype=np.int64)
            schema = pa.schema([self.master.schema.field(column) for column in self.master.key])
            batch = batch_of(self.key.take(found, everything), self.key.leaves.leaves, schema)
            return codec.encode(batch.columns)
        codes = (
            self.codes[: found.rows]
            if found.rows <= len(self.codes)
            else np.empty(found.rows, dtype=np.uint64)
        )
        narrow_codes(found, self.key, codec, codes)
        return NarrowKeys(codes)


def index_bytes(master: Master) -> int:
    """Memory of the indexes a reader keeps."""
    return master.index.nbytes + (master.key_index.index.nbytes if master.key_index else 0)


def narrow_codes(found: LoadedPages, key: ColumnPlan, codec: KeyCodec, codes: NDArray[np.uint64]) -> None:
    """The codes of all loaded rows, read where they lie."""
    codes.fill(0)
    shift, buffer = 0, address_of(found.buffer)
    for first, kind in reversed(list(zip(key.table[:, 0].tolist(), codec.types, strict=True))):
        step = kind.bit_width // 8
        width = 8 if pat.is_decimal(kind) else step
        signed = not pat.is_unsigned_integer(kind)
        pages_.narrow_codes(
            buffer, found.first_row, found.address[:, first + 1], width, signed, step, shift, codes
        )
        shift += 8 * width


def _kind(leaf: Leaf) -> int:
    if pat.is_null(leaf.type):
        return pages_.NONE
    if leaf.is_varying:
        return pages_.STRING
    return pages_.BITS if pat.is_boolean(leaf.type) else pages_.FIXED
