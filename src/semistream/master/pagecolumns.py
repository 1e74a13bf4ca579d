"""The columns of pages where they lie in a disk buffer, found and read by kernels.

`pa.ipc.read_record_batch` takes some ten microseconds a page of eleven columns, more than reading the page. A kernel
needs no objects: it walks the message's flatbuffer to the list of buffers and reads values at their addresses.

    page  | FFFFFFFF | n | flatbuffer: Message -> RecordBatch -> length, buffers[(offset, length)] | body ... |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.kernel import kernel, load_number

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
ABSENT = -1


@dataclass(frozen=True)
class LoadedPages:
    """Pages in a buffer: the rows of each, and the address of each of its buffers (ABSENT where there is none)."""

    buffer: U8
    first_row: I64  # of each page, counted over all of them; the number of rows as a last entry
    address: I64  # pages x buffers

    @property
    def rows(self) -> int:
        """Rows in all pages."""
        return int(self.first_row[-1])

    def pages_of(self, rows: I64) -> I64:
        """The page that each row is in."""
        return np.searchsorted(self.first_row, rows, side="right").astype(np.int64) - 1


def buffer_count(kind: pa.DataType) -> int:
    """How many buffers a column of this type has in a message, with all that is inside it."""
    if pat.is_null(kind):
        return 0
    if pat.is_struct(kind):
        return 1 + sum(buffer_count(child.type) for child in kind)
    if pat.is_string(kind) or pat.is_binary(kind):
        return 3
    if pat.is_map(kind):
        return 3 + buffer_count(kind.key_type) + buffer_count(kind.item_type)
    if pat.is_list(kind):
        return 2 + buffer_count(kind.value_type)
    return 2


def first_buffer(schema: pa.Schema, path: Sequence[int]) -> int:
    """The position of a column's first buffer; `path` is the column, then the fields of structs inside it."""
    position = sum(buffer_count(schema.field(i).type) for i in range(path[0]))
    kind = schema.field(path[0]).type
    for index in path[1:]:
        position += 1 + sum(buffer_count(kind.field(i).type) for i in range(index))
        kind = kind.field(index).type
    return position


def locate(buffer: U8, starts: I64, schema: pa.Schema) -> LoadedPages:
    """Find the columns of the pages that begin at `starts` in the buffer."""
    buffers = sum(buffer_count(field.type) for field in schema)
    first_row = np.zeros(len(starts) + 1, dtype=np.int64)
    address = np.empty((len(starts), max(buffers, 1)), dtype=np.int64)
    if not _locate(buffer, starts, buffers, first_row, address):
        raise AssertionError("a page that verified is not of the store's schema")
    return LoadedPages(buffer, first_row, address)


@kernel
def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= (1 << 31) else value


@kernel
def _field(buffer: U8, table: int, index: int) -> int:
    """The position of a field of a flatbuffer's table; 0 where it is left out."""
    vtable = table - _signed32(load_number(buffer, table, 4))
    if 4 + 2 * index >= load_number(buffer, vtable, 2):
        return 0
    offset = load_number(buffer, vtable + 4 + 2 * index, 2)
    return table + offset if offset else 0


@kernel
def _locate(buffer: U8, starts: I64, buffers: int, first_row: I64, address: I64) -> bool:
    for page in range(len(starts)):
        message = starts[page] + 8
        body = message + load_number(buffer, starts[page] + 4, 4)
        root = message + load_number(buffer, message, 4)
        header = _field(buffer, root, 2)
        batch = header + load_number(buffer, header, 4)
        length = _field(buffer, batch, 0)
        first_row[page + 1] = first_row[page] + (load_number(buffer, length, 8) if length else 0)
        vector = _field(buffer, batch, 2)
        vector += load_number(buffer, vector, 4)
        if load_number(buffer, vector, 4) != buffers:
            return False
        for i in range(buffers):
            entry = vector + 4 + 16 * i
            present = load_number(buffer, entry + 8, 8) > 0
            address[page, i] = body + load_number(buffer, entry, 8) if present else ABSENT
    return True


@kernel
def narrow_codes(
    loaded: U8,
    first_row: I64,
    address: I64,
    width: int,
    signed: bool,
    step: int,
    shift: int,
    codes: NDArray[np.uint64],
) -> None:
    """Put the ordered form of a key column, shifted, into the codes; `step` is the distance between values."""
    flip = np.uint64(1) << np.uint64(8 * width - 1)
    for page in range(len(first_row) - 1):
        at = address[page]
        for row in range(first_row[page], first_row[page + 1]):
            value = np.uint64(load_number(loaded, at, width))
            if signed:
                value ^= flip
            codes[row] |= value << np.uint64(shift)
            at += step


@kernel
def take_words(words: I64, address: I64, pages: I64, rows: I64, out: I64) -> None:
    """Eight-byte values of rows of pages."""
    for i in range(len(rows)):
        start = address[pages[i]]
        out[i] = (
            words[(start >> 3) + rows[i]] if start >= 0 else 0
        )  # a column of nulls may have no values at all


@kernel
def take_bytes(buffer: U8, address: I64, width: int, pages: I64, rows: I64, out: U8) -> None:
    """Values of any fixed width."""
    for i in range(len(rows)):
        start = address[pages[i]] + rows[i] * width
        for j in range(width):
            out[i * width + j] = buffer[start + j] if address[pages[i]] >= 0 else 0


@kernel
def take_bits(buffer: U8, address: I64, pages: I64, rows: I64, out: U8) -> int:
    """Bits as bytes; where there is no bitmap every bit is set. Gives how many are not."""
    zeros = 0
    for i in range(len(rows)):
        start = address[pages[i]]
        out[i] = 1 if start < 0 else (buffer[start + (rows[i] >> 3)] >> (rows[i] & 7)) & 1
        zeros += 1 - out[i]
    return zeros


@kernel
def take_lengths(buffer: U8, address: I64, pages: I64, rows: I64, offsets: I64) -> None:
    """Where each string will be once they lie end to end."""
    for i in range(len(rows)):
        length = 0
        if address[pages[i]] >= 0:
            at = address[pages[i]] + 4 * rows[i]
            length = load_number(buffer, at + 4, 4) - load_number(buffer, at, 4)
        offsets[i + 1] = offsets[i] + length


@kernel
def take_varying(buffer: U8, starts: I64, address: I64, pages: I64, rows: I64, offsets: I64, out: U8) -> None:
    """The strings' bytes; `starts` are the addresses of their offsets."""
    for i in range(len(rows)):
        length = offsets[i + 1] - offsets[i]
        if length:
            at = address[pages[i]] + load_number(buffer, starts[pages[i]] + 4 * rows[i], 4)
            for j in range(length):
                out[offsets[i] + j] = buffer[at + j]
