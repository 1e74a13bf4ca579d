"""A set of pages of one schema, as a version refers to it: saved, opened, read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import StoreError
from semistream.master.disk import ALIGNMENT, Disk, Extents, aligned_buffer, checksum, open_disk
from semistream.master.index import PageIndex, PageTable
from semistream.master.keys import KeyCodec
from semistream.master.manifest import PageSetRecord
from semistream.master.page import read_page
from semistream.master.pagefile import page_seed
from semistream.master.storage import Storage

SCAN_BYTES = 4 << 20  # four calls of a megabyte: enough to keep a disk busy while pages are checked


@dataclass(frozen=True)
class PageSet:
    """Pages that can be read: what the manifest says of them, and the storage they are in."""

    storage: Storage
    record: PageSetRecord
    schema: pa.Schema
    codec: KeyCodec | None  # of the key the pages are sorted by, if they are

    @cached_property
    def index(self) -> PageIndex:
        """Where keys and pages are, small enough to keep."""
        return PageIndex.of(self.load_table())

    @cached_property
    def seeds(self) -> NDArray[np.uint64]:
        """What the checksums of each file's pages start from."""
        return np.array([page_seed(name) for name in self.record.files], dtype=np.uint64)

    def load_table(self) -> PageTable:
        """The whole page table, verified."""
        name = self.record.table
        asked = f"reading {name} of {self.storage.location}"
        hint = "Restore that file, or open another version."
        try:
            raw = self.storage.get(name)
        except OSError as error:
            raise StoreError(asked, found=str(error), hint=hint) from error
        if checksum(np.frombuffer(raw, dtype=np.uint8), 0) != self.record.table_checksum:
            raise StoreError(asked, found="bytes that are not those written", hint=hint)
        with pa.ipc.open_file(pa.py_buffer(raw)) as file:
            return PageTable.from_arrow(file.read_all(), self.codec)

    def open_disk(self, kind: str = "direct", *, threads: int | None = None) -> Disk:
        """A disk that these pages can be read through."""
        return open_disk(kind, [self.storage.file(name) for name in self.record.files], threads=threads)

    def load(self, pages: NDArray[np.int64], disk: Disk, buffer: NDArray[np.uint8]) -> Extents:
        """Read pages one behind the other into the buffer and verify them; say where each one is."""
        extents = self.index.extents(np.asarray(pages, dtype=np.int64))
        disk.read(extents, buffer, self.seeds[extents.file] ^ extents.offset.astype(np.uint64))
        return extents

    def read(self, pages: NDArray[np.int64], disk: Disk, buffer: NDArray[np.uint8]) -> list[pa.RecordBatch]:
        """Load pages and give their rows as views of the buffer, one batch a page."""
        return self._rows(self.load(pages, disk, buffer), buffer)

    def scan(self, disk: Disk, *, start: int = 0, stop: int | None = None) -> Iterator[list[pa.RecordBatch]]:
        """Read pages in order, some megabytes at a time; what is yielded is valid until the next step.

        The next ones are read while the caller works on these.
        """
        stop = self.index.pages if stop is None else min(stop, self.index.pages)
        size = max(SCAN_BYTES, self.index.max_page_bytes)
        buffers = itertools.cycle((aligned_buffer(size), aligned_buffer(size)))
        with ThreadPoolExecutor(max_workers=1) as ahead:
            coming: tuple[Future[Extents], NDArray[np.uint8]] | None = None
            for pages in self._steps(start, stop, size):
                buffer = next(buffers)
                current, coming = coming, (ahead.submit(self.load, pages, disk, buffer), buffer)
                if current is not None:
                    yield self._rows(current[0].result(), current[1])
            if coming is not None:
                yield self._rows(coming[0].result(), coming[1])

    def _steps(self, start: int, stop: int, size: int) -> Iterator[NDArray[np.int64]]:
        """Consecutive pages that fit into a buffer together."""
        while start < stop:
            pages = np.arange(start, min(stop, start + size // ALIGNMENT), dtype=np.int64)
            count = int(np.searchsorted(np.cumsum(self.index.extents(pages).length), size, side="right"))
            yield pages[:count]
            start += count

    def _rows(self, extents: Extents, buffer: NDArray[np.uint8]) -> list[pa.RecordBatch]:
        ends = extents.target + extents.length
        return [
            read_page(buffer[start:end], self.schema)
            for start, end in zip(extents.target.tolist(), ends.tolist(), strict=True)
        ]


def save_page_set(storage: Storage, table: PageTable, files: Sequence[str], *, folder: str) -> PageSetRecord:
    """Write the page table, leaving out files that no page is in, and give what the manifest says of the set."""
    used, file = np.unique(table.file, return_inverse=True)
    kept = PageTable(**{**vars(table), "file": file.astype(np.int64)})
    sink = pa.BufferOutputStream()
    arrow = kept.to_arrow()
    with pa.ipc.new_file(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    raw = sink.getvalue().to_pybytes()
    name = f"{folder}/table-{uuid.uuid4().hex}.arrow"
    upload = storage.upload(name)
    try:
        upload.write(raw)
        upload.close()
    except BaseException:
        upload.abort()
        raise
    return PageSetRecord(
        files=tuple(files[i] for i in used.tolist()),
        table=name,
        table_checksum=checksum(np.frombuffer(raw, dtype=np.uint8), 0),
        pages=len(table),
        rows=int(table.rows.sum()),
        bytes=int(table.length.sum()),
    )
