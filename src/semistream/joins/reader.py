"""The master as a join reads it: pages into the disk buffer, their keys as codes, their rows as leaves."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.address import address_of
from semistream.columnblock import ANY_TEXT
from semistream.joins.sides import JoinShape, probes_of
from semistream.master import Master
from semistream.master import pagecolumns as pages_
from semistream.master.disk import Disk, aligned_buffer
from semistream.master.keys import KeyCodec, Keys, NarrowKeys
from semistream.master.pagecolumns import CodePart, LoadedPages
from semistream.memory.assembly import Assembled, ColumnBuilder, column_builders
from semistream.memory.budget import Budget
from semistream.memory.leaves import Leaf, leaves_of
from semistream.memory.table import Probes

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


@dataclass(frozen=True)
class PageSource:
    """Some leaves of a schema, and where pages have them."""

    leaves: tuple[Leaf, ...]
    plan: I64  # for the kernels, a row a leaf: first buffer, width, kind

    @staticmethod
    def of(schema: pa.Schema, columns: tuple[str, ...], leaves: tuple[Leaf, ...]) -> PageSource:
        """`leaves` are those of the schema's `columns`, in their order."""
        rows = []
        for leaf in leaves:
            path = (schema.get_field_index(columns[leaf.path[0]]), *leaf.path[1:])
            absent = pat.is_null(pages_.type_at(schema, path))  # nulls have no buffers
            first = 0 if absent else pages_.first_buffer(schema, path)
            rows.append((first, leaf.width, leaf.kind))
        return PageSource(leaves, np.array(rows, dtype=np.int64).reshape(-1, 3))

    def nullable(self, found: LoadedPages) -> NDArray[np.bool_]:
        """Which leaves may have nulls: those that a page has a bitmap for."""
        bitmaps = np.zeros(len(self.plan), dtype=np.bool_)
        pages_.present(found.address, self.plan, bitmaps)
        return bitmaps

    def take(
        self, found: LoadedPages, nullable: NDArray[np.bool_], at: I64, most_text: int = ANY_TEXT
    ) -> Assembled:
        """These leaves of loaded rows."""
        made = pages_.from_pages(
            address_of(found.buffer), found.first_row, found.address, self.plan, nullable, at, most_text
        )
        return Assembled(len(at), self.leaves, *made)


@dataclass(frozen=True)
class Loaded:
    """What one disk access brought: the pages, and the keys of all their rows, which are found when they are asked for."""

    reader: MasterReader
    pages: I64
    found: LoadedPages
    room: NDArray[np.uint64]  # for codes
    nullable: NDArray[np.bool_]  # of the output's leaves

    @cached_property
    def keys(self) -> Keys:
        """Of all rows."""
        codec, key, found = self.reader.master.codec, self.reader.key, self.found
        if not codec.is_narrow:
            everything = np.arange(found.rows, dtype=np.int64)
            return codec.encode(
                key.take(found, key.nullable(found), everything).columns(self.reader.key_builders)
            )
        codes = (
            self.room[: found.rows] if found.rows <= len(self.room) else np.empty(found.rows, dtype=np.uint64)
        )
        narrow_codes(found, key, codec, codes)
        return NarrowKeys(codes)

    @cached_property
    def probes(self) -> Probes:
        """The keys as they are looked for."""
        return probes_of(self.keys)

    def codes(self, at: I64) -> NDArray[np.uint64]:
        """Of some rows."""
        codec = self.reader.master.codec
        if not codec.is_narrow or "keys" in vars(self):
            return self.probes.codes[at]
        codes = np.zeros(len(at), dtype=np.uint64)
        for part in narrow_parts(self.reader.key, codec):
            pages_.codes_at(
                address_of(self.found.buffer), self.found.first_row, self.found.address, part, at, codes
            )
        return codes

    def find(self, codes: NDArray[np.uint64], page: I64) -> I64:
        """The row that has each code, or -1; it can only be on that page of those loaded, in which rows are in order."""
        (part,) = narrow_parts(self.reader.key, self.reader.master.codec)
        out = np.empty(len(codes), dtype=np.int64)
        found = self.found
        pages_.find_codes(address_of(found.buffer), found.first_row, found.address, part, page, codes, out)
        return out

    def rows(self, at: I64, most_text: int = ANY_TEXT) -> Assembled:
        """The output columns of loaded rows."""
        return self.reader.output.take(self.found, self.nullable, at, most_text)


@dataclass
class MasterReader:
    """One version of a master behind a disk buffer.

    With two halves the next pages can be read while those of the other half are joined: `load(pages, then=...)`.
    """

    master: Master
    disk: Disk
    halves: tuple[U8, ...]
    codes: tuple[NDArray[np.uint64], ...]  # of the keys in each half
    output: PageSource
    key: PageSource
    key_builders: list[ColumnBuilder]
    buffers: int
    _ahead: ThreadPoolExecutor | None = None
    _coming: tuple[I64, Future[Loaded]] | None = None
    _half: int = 0  # the next to be read into

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
        size, rows = buffer_sizes(master, buffer_bytes, halves)
        budget.take(name, halves * size, who=who)
        codes = tuple(budget.array(name, rows, "u8", who=who) for _ in range(halves))
        key = pa.schema([master.schema.field(column) for column in master.key])
        return MasterReader(
            master=master,
            disk=disk,
            halves=tuple(aligned_buffer(max(size, 4096))[:size] for _ in range(halves)),
            codes=codes,  # type: ignore[arg-type]
            output=PageSource.of(master.schema, shape.master_columns, shape.master_leaves),
            key=PageSource.of(master.schema, master.key, leaves_of(key)),
            key_builders=column_builders(key),
            buffers=pages_.buffers_of(master.schema),
            _ahead=ThreadPoolExecutor(max_workers=1) if halves > 1 else None,
        )

    @property
    def reads_ahead(self) -> bool:
        """Whether pages can be read while others are joined."""
        return self._ahead is not None

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
        loaded = self._arrived(pages) or self._read(pages, self._half)
        self._half = (self._half + 1) % len(self.halves)
        if then is not None and len(then) and self._ahead is not None:
            self._coming = (then, self._ahead.submit(self._read, then, self._half))
        return loaded

    def _arrived(self, pages: I64) -> Loaded | None:
        """What was read ahead, if it is what is wanted now."""
        if self._coming is None:
            return None
        expected, coming = self._coming
        self._coming = None
        loaded = coming.result()
        return loaded if np.array_equal(expected, pages) else None

    def _read(self, pages: I64, half: int) -> Loaded:
        buffer = self.halves[half]
        extents = self.master.data.load(pages, self.disk, buffer)
        found = pages_.locate(buffer, extents.target, self.buffers)
        loaded = Loaded(self, pages, found, self.codes[half], self.output.nullable(found))
        if self.reads_ahead:
            _ = loaded.probes  # by the thread that reads, while others are joined
        return loaded

    def fitting(self, pages: I64) -> int:
        """How many of these pages, from the first on, one access may bring."""
        if len(pages) <= self.pages_at_once and self.master.index.max_page_bytes <= self.master.page_bytes:
            return len(pages)
        lengths = np.cumsum(self.master.index.extents(pages).length)
        return int(np.searchsorted(lengths, self.half_bytes, side="right"))

    def steps(self) -> Iterator[I64]:
        """All pages in order, as many at a time as one access may bring."""
        start = 0
        while start < self.master.pages:
            pages = np.arange(start, min(start + self.pages_at_once, self.master.pages), dtype=np.int64)
            pages = pages[: max(1, self.fitting(pages))]
            yield pages
            start += len(pages)

    def close(self) -> None:
        """Let what is being read land, and give the thread back; the disk is another's."""
        if self._ahead is not None:
            self._ahead.shutdown()
            self._ahead = self._coming = None

    def let_go(self, master: Master) -> None:
        """Give back the disk buffer, and the version it was for; nothing is read any more."""
        self.master, self.halves, self.codes = master, (), ()

    def has_room_for(self, master: Master) -> bool:
        """Whether another version can be read through this disk buffer."""
        rows = self.pages_at_once * master.index.max_page_rows
        return (
            master.page_bytes == self.master.page_bytes
            and master.layout == self.master.layout
            and master.index.max_page_bytes <= self.half_bytes
            and rows <= len(self.codes[0])
        )

    def move_to(self, master: Master, disk: Disk) -> None:
        """Read another version from now on; the reader must be closed."""
        self.master, self.disk, self._half = master, disk, 0
        self._ahead = ThreadPoolExecutor(max_workers=1) if len(self.halves) > 1 else None


def buffer_sizes(master: Master, buffer_bytes: int, halves: int) -> tuple[int, int]:
    """Of each half of a disk buffer: its bytes, and how many rows their pages may have."""
    pages = max(1, buffer_bytes // halves // max(master.page_bytes, 1))
    size = max(pages * master.page_bytes, master.index.max_page_bytes)
    return size, max(1, size // master.page_bytes) * master.index.max_page_rows


def index_bytes(master: Master) -> int:
    """Memory of the indexes a reader keeps."""
    return master.index.nbytes + (master.key_index.index.nbytes if master.key_index else 0)


def reserve_for(master: Master, memory_bytes: int) -> int:
    """Bytes left free by a join that follows a master, so that it can compare a new version with the one it has.

    None where that would take more than a quarter of the memory: then it lets go of the one before it opens the other.
    """
    needed = index_bytes(master)
    return needed if 4 * needed <= memory_bytes else 0


def narrow_codes(found: LoadedPages, key: PageSource, codec: KeyCodec, codes: NDArray[np.uint64]) -> None:
    """The codes of all loaded rows, read where they lie."""
    codes.fill(0)
    for part in narrow_parts(key, codec):
        pages_.narrow_codes(address_of(found.buffer), found.first_row, found.address, part, codes)


def narrow_parts(key: PageSource, codec: KeyCodec) -> list[CodePart]:
    """What each column of a narrow key gives to its codes."""
    parts, shift = [], 0
    for first, kind in reversed(list(zip(key.plan[:, 0].tolist(), codec.types, strict=True))):
        step = kind.bit_width // 8
        width = 8 if pat.is_decimal(kind) else step
        parts.append(CodePart(first + 1, width, not pat.is_unsigned_integer(kind), step, shift))
        shift += 8 * width
    return parts
