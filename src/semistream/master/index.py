"""From keys to pages, with no I/O: the sparse index, and where each page is.

For layout "key" the index keeps one code per page, the shortest that separates it from the page before: 8 bytes a page
for narrow keys, so 6 MB for a 12 GB master in 16 KiB pages. Pages that follow each other in one file are kept as one
run, so locations cost next to nothing until changes scatter them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.arrow import from_numpy, to_numpy
from semistream.master.disk import Extents
from semistream.master.keys import KeyCodec, Keys, pairwise_equal, positions_of

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class PageTable:
    """Every page of one version, in order: where it is, how many rows it has and, with keys, where its keys begin.

    This is the form the index file has; `PageIndex` is the smaller one that a join keeps.
    """

    file: I64
    offset: I64
    length: I64
    rows: I64
    separators: Keys | None  # code i: above every key of page i - 1, not above the first of page i
    continues: NDArray[np.bool_]  # page i begins with the key that page i - 1 ended with

    def __len__(self) -> int:
        return len(self.file)

    def select(self, pages: I64) -> PageTable:
        """The table of these pages only."""
        return PageTable(
            file=self.file[pages],
            offset=self.offset[pages],
            length=self.length[pages],
            rows=self.rows[pages],
            separators=None if self.separators is None else self.separators.take(pages),
            continues=self.continues[pages],
        )

    def to_arrow(self) -> pa.Table:
        """As it is kept in the store."""
        columns = {
            "file": from_numpy(self.file.astype(np.int32, copy=False)),
            "offset": from_numpy(self.offset.astype(np.int64, copy=False)),
            "length": from_numpy(self.length.astype(np.int32, copy=False)),
            "rows": from_numpy(self.rows.astype(np.int32, copy=False)),
            "continues": from_numpy(self.continues),
        }
        if self.separators is not None:
            columns["separator"] = self.separators.to_arrow()
        return pa.table(columns)

    @staticmethod
    def from_arrow(table: pa.Table, codec: KeyCodec | None) -> PageTable:
        """What `to_arrow` gave."""

        def column(name: str) -> I64:
            values: NDArray[np.integer[Any]] = to_numpy(table.column(name))
            return values.astype(np.int64)

        separators = None
        if codec is not None:
            separators = codec.concat([codec.from_arrow(chunk) for chunk in table.column("separator").chunks])
        return PageTable(
            file=column("file"),
            offset=column("offset"),
            length=column("length"),
            rows=column("rows"),
            separators=separators,
            continues=to_numpy(table.column("continues")),
        )


@dataclass(frozen=True)
class PageRange:
    """For each key asked for the pages that may hold it: first .. last, none where last < first."""

    first: I64
    last: I64


@dataclass(frozen=True)
class PageIndex:
    """What a reader keeps in memory of a version: separators and runs of pages."""

    pages: int
    max_page_rows: int
    separators: Keys | None
    continues: NDArray[np.uint8]  # bits, one a page
    run_page: I64  # the first page of each run, and the number of pages as a last entry
    run_file: I64
    run_offset: I64
    run_length: I64  # of each page of the run

    @staticmethod
    def of(table: PageTable) -> PageIndex:
        """The smallest form of a page table."""
        count = len(table)
        begins = np.ones(count, dtype=np.bool_)
        if count > 1:
            begins[1:] = (
                (table.file[1:] != table.file[:-1])
                | (table.length[1:] != table.length[:-1])
                | (table.offset[1:] != table.offset[:-1] + table.length[:-1])
            )
        heads = np.flatnonzero(begins)
        return PageIndex(
            pages=count,
            max_page_rows=int(table.rows.max()) if count else 0,
            separators=table.separators,
            continues=np.packbits(table.continues, bitorder="little"),
            run_page=np.append(heads, count).astype(np.int64),
            run_file=table.file[heads],
            run_offset=table.offset[heads],
            run_length=table.length[heads],
        )

    @cached_property
    def nbytes(self) -> int:
        """Bytes of memory that count against a budget."""
        arrays = (self.continues, self.run_page, self.run_file, self.run_offset, self.run_length)
        return sum(array.nbytes for array in arrays) + (
            self.separators.nbytes if self.separators is not None else 0
        )

    @cached_property
    def max_page_bytes(self) -> int:
        """Bytes of the longest page."""
        return int(self.run_length.max()) if len(self.run_length) else 0

    def find(self, keys: Keys) -> PageRange:
        """The pages that may hold each key. A key of two neighbouring pages is in both; most are in one."""
        if self.separators is None:
            raise AssertionError("only layout 'key' has separators")
        last = positions_of(keys, self.separators, side="right") - 1
        first = last + 1
        # Few keys are separators, and only for those the first page is another than the one after the last.
        inside = np.flatnonzero(last >= 0)
        edge = inside[pairwise_equal(keys.take(inside), self.separators.take(last[inside]))]
        first[edge] = positions_of(keys.take(edge), self.separators, side="left")
        # first <= last: page `first` begins with the key itself (or its separator equals it); the page before holds
        # the key too only if it goes on over the edge. Otherwise the key is inside page `last`, or nowhere.
        exact = first <= last
        capped = np.minimum(first, max(self.pages - 1, 0))
        before = exact & self._continues(capped)
        return PageRange(first=np.where(exact, first - before, np.maximum(last, 0)), last=last)

    def goes_on(self, page: int) -> bool:
        """Whether a page begins with the key that the page before it ended with."""
        return page < self.pages and bool(self._continues(np.array([page]))[0])

    def extents(self, pages: I64) -> Extents:
        """How to read these pages one behind the other into a buffer."""
        run = np.searchsorted(self.run_page, pages, side="right") - 1
        length = self.run_length[run]
        target = np.zeros(len(pages), dtype=np.int64)
        np.cumsum(length[:-1], out=target[1:])
        offset = self.run_offset[run] + (pages - self.run_page[run]) * length
        return Extents(file=self.run_file[run], offset=offset, length=length, target=target)

    def _continues(self, pages: I64) -> NDArray[np.bool_]:
        if not len(self.continues):
            return np.zeros(len(pages), dtype=np.bool_)
        bits: NDArray[np.uint8] = (self.continues[pages >> 3] >> (pages & 7).astype(np.uint8)) & 1
        return bits.astype(np.bool_)
