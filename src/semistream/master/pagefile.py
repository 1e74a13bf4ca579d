"""A file of pages: an Arrow IPC file whose record batches all begin on a disk block.

    | ARROW1 | schema, padded | page | page | page | ... | end | footer: where each page is | ARROW1 |

pyarrow, polars, pandas and DuckDB open it as the Arrow file it is; a join reads single pages by offset and never
needs the footer. pyarrow's own writer cannot place batches, so the few bytes around the pages are made here from what
it writes for an empty file.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.master.disk import ALIGNMENT, seal_pages
from semistream.master.page import PlannedPage, plan_pages, write_page
from semistream.master.storage import Storage, Upload

_MAGIC = b"ARROW1"
_END = struct.pack("<Ii", 0xFFFFFFFF, 0)
_RECORD_BATCHES_FIELD = 3  # of the flatbuffer table Footer: version, schema, dictionaries, recordBatches
_CHUNK_BYTES = 1 << 20  # pages are sealed and written while they are in the cache


@dataclass(frozen=True)
class PageFile:
    """A finished file of pages: its name in the store, its size, and where its pages are."""

    name: str
    bytes: int
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    rows: NDArray[np.int64]


def page_seed(file_name: str) -> int:
    """What the checksums of a file's pages start from, besides their offset: a page of another file does not fit."""
    stem = file_name.rsplit("/", 1)[-1].split(".", 1)[0]
    return int(uuid.UUID(stem).int & 0xFFFFFFFFFFFFFFFF)


@dataclass
class PageFileWriter:
    """Writes pages one after the other; call `write` with batches, then `close`, or `abort`."""

    storage: Storage
    folder: str
    schema: pa.Schema
    page_bytes: int
    name: str = field(init=False)
    _upload: Upload = field(init=False)
    _position: int = field(init=False, default=0)
    _offsets: list[NDArray[np.int64]] = field(init=False, default_factory=list)
    _lengths: list[NDArray[np.int64]] = field(init=False, default_factory=list)
    _rows: list[NDArray[np.int64]] = field(init=False, default_factory=list)
    _metadata: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.name = f"{self.folder}/{uuid.uuid4().hex}.arrow"
        self._upload = self.storage.upload(self.name)
        try:
            self._put(_header(self.schema))
        except BaseException:
            self.abort()
            raise

    def write(self, batch: pa.RecordBatch, *, keep_tail: bool = False) -> NDArray[np.int64]:
        """Write the rows of a batch as pages; give the row at which each page begins, and the end of the last.

        With `keep_tail` the rows of the last page, which may not be full, are left to be written with what follows.
        """
        rows = [0]
        chunk: list[PlannedPage] = []
        for page in plan_pages(batch, self.page_bytes):
            if page.stop == len(batch) and keep_tail:
                break
            rows.append(page.stop)
            chunk.append(page)
            if len(chunk) * self.page_bytes >= _CHUNK_BYTES:
                self._put(self._pages(chunk))
                chunk = []
        if chunk:
            self._put(self._pages(chunk))
        self._rows.append(np.diff(rows))
        return np.array(rows, dtype=np.int64)

    def _pages(self, pages: list[PlannedPage]) -> memoryview:
        lengths = np.array([page.bytes for page in pages], dtype=np.int64)
        at = np.concatenate([[0], np.cumsum(lengths)])
        buffer = np.empty(int(at[-1]), dtype=np.uint8)
        for page, start, end in zip(pages, at[:-1].tolist(), at[1:].tolist(), strict=True):
            self._metadata.append(write_page(page.message, buffer[start:end]))
        offsets = self._position + at[:-1]
        self._offsets.append(offsets)
        self._lengths.append(lengths)
        seal_pages(buffer, at[:-1], lengths, offsets.astype(np.uint64) ^ np.uint64(page_seed(self.name)))
        return buffer.data

    @property
    def count(self) -> int:
        """Pages written so far."""
        return len(self._metadata)

    def close(self) -> PageFile:
        """Finish the file and make it durable."""
        offsets, lengths, rows = (_joined(parts) for parts in (self._offsets, self._lengths, self._rows))
        self._put(_END + _footer(self.schema, offsets, lengths, np.array(self._metadata, dtype=np.int64)))
        self._upload.close()
        return PageFile(name=self.name, bytes=self._position, offsets=offsets, lengths=lengths, rows=rows)

    def abort(self) -> None:
        """Leave nothing behind."""
        self._upload.abort()

    def _put(self, data: bytes | memoryview) -> None:
        self._upload.write(data)
        self._position += len(data)


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _header(schema: pa.Schema) -> bytes:
    message: bytes = schema.serialize().to_pybytes()
    (size,) = struct.unpack_from("<i", message, 4)
    body = message[8 : 8 + size]
    total = -(-(16 + len(body)) // ALIGNMENT) * ALIGNMENT
    padded = total - 16
    return _MAGIC + b"\0\0" + struct.pack("<Ii", 0xFFFFFFFF, padded) + body.ljust(padded, b"\0")


def _footer(
    schema: pa.Schema, offsets: NDArray[np.int64], lengths: NDArray[np.int64], metadata: NDArray[np.int64]
) -> bytes:
    """The footer of an empty file, its list of batches replaced by ours.

    A flatbuffer refers forward to its vectors, so a new vector can be put at the end and the one reference changed.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema):
        pass
    empty = sink.getvalue().to_pybytes()
    (size,) = struct.unpack_from("<i", empty, len(empty) - len(_MAGIC) - 4)
    footer = bytearray(empty[len(empty) - len(_MAGIC) - 4 - size : len(empty) - len(_MAGIC) - 4])
    footer += b"\0" * (-len(footer) % 8 + 4)  # the vector's count ends where its eight-byte blocks begin
    table = struct.unpack_from("<I", footer, 0)[0]
    vtable = table - struct.unpack_from("<i", footer, table)[0]
    reference = table + struct.unpack_from("<H", footer, vtable + 4 + 2 * _RECORD_BATCHES_FIELD)[0]
    struct.pack_into("<I", footer, reference, len(footer) - reference)
    blocks = np.zeros(
        len(offsets), dtype=[("offset", "<i8"), ("metadata", "<i4"), ("pad", "<i4"), ("body", "<i8")]
    )
    blocks["offset"], blocks["metadata"], blocks["body"] = offsets, metadata, lengths - metadata
    footer += struct.pack("<I", len(offsets)) + blocks.tobytes()
    return bytes(footer) + struct.pack("<i", len(footer)) + _MAGIC
