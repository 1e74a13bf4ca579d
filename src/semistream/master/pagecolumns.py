"""The columns of pages where they lie in a disk buffer, found and read by kernels.

`pa.ipc.read_record_batch` takes some ten microseconds a page of eleven columns, more than reading the page. A kernel
needs no objects: it walks the message's flatbuffer to the list of buffers and reads values at their addresses.

    page  | FFFFFFFF | n | flatbuffer: Message -> RecordBatch -> length, buffers[(offset, length)] | body ... |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.address import copy_short, load8, load16, load32, load64, prefetch, store8, store32, store64
from semistream.columnblock import (
    BITS,
    FIXED,
    PLACES,
    STRING,
    Made,
    copy_value,
    first_offsets,
    place_parts,
    place_text,
    put_bit,
)
from semistream.kernel import inlined, kernel

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
ABSENT = -1
_PAGES_AHEAD = 2
_ROWS_AHEAD = 12
_HEAD_BYTES = 128  # of a message, with the list of columns about as long as half that of their buffers
_BLOCK = 64  # rows copied column by column


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
    for depth, index in enumerate(path[1:], start=1):
        kind = type_at(schema, path[:depth])
        position += 1 + sum(buffer_count(kind.field(i).type) for i in range(index))
    return position


def type_at(schema: pa.Schema, path: Sequence[int]) -> pa.DataType:
    """The type of a column, or of a field inside it."""
    kind = schema.field(path[0]).type
    for index in path[1:]:
        kind = kind.field(index).type
    return kind


def buffers_of(schema: pa.Schema) -> int:
    """How many buffers a page of this schema has."""
    return sum(buffer_count(field.type) for field in schema)


def locate(buffer: U8, starts: I64, buffers: int) -> LoadedPages:
    """Find the columns of the pages that begin at `starts` in the buffer; a page has so many buffers."""
    first_row = np.zeros(len(starts) + 1, dtype=np.int64)
    address = np.empty((len(starts), max(buffers, 1)), dtype=np.int64)
    if not _locate(buffer, starts, buffers, first_row, address):
        raise AssertionError("a page that verified is not of the store's schema")
    return LoadedPages(buffer, first_row, address)


@inlined
def _field(table: int, index: int) -> int:
    """The address of a field of a flatbuffer's table; 0 where it is left out."""
    back = load32(table)
    vtable = table - (back - (1 << 32) if back >= (1 << 31) else back)
    offset = load16(vtable + 4 + 2 * index) if 4 + 2 * index < load16(vtable) else 0
    return table + offset if offset else 0


@kernel
def _locate(buffer: U8, starts: I64, buffers: int, first_row: I64, address: I64) -> bool:
    base, pages = buffer.ctypes.data, len(starts)
    lists = address.ctypes.data
    for page in range(pages):
        if page + _PAGES_AHEAD < pages:  # they have left the nearest cache since they were verified
            coming = base + starts[page + _PAGES_AHEAD]
            for line in range(0, _HEAD_BYTES + 16 * buffers, 64):
                prefetch(coming + line)
        start = base + starts[page]
        message = start + 8
        body = starts[page] + 8 + load32(start + 4)
        header = _field(message + load32(message), 2)
        batch = header + load32(header)
        length, vector = _field(batch, 0), _field(batch, 2)
        first_row[page + 1] = first_row[page] + (load64(length) if length else 0)
        vector += load32(vector)
        if load32(vector) != buffers:
            return False
        for i in range(buffers):
            entry = vector + 4 + 16 * i
            store64(lists, body + load64(entry) if load64(entry + 8) > 0 else ABSENT)
            lists += 8
    return True


@kernel
def present(address: I64, plan: I64, out: NDArray[np.bool_]) -> None:
    """Which leaves have their first buffer on some page."""
    for c in range(len(plan)):
        for page in range(len(address)):
            if address[page, plan[c, 0]] != ABSENT:
                out[c] = True
                break


class CodePart(NamedTuple):
    """What a key column gives to the codes."""

    buffer: int  # of a page, with the column's values
    width: int  # bytes in the code
    signed: bool
    step: int  # from value to value
    shift: int  # of its place in the code


@inlined
def _code(place: int, part: CodePart) -> np.uint64:
    """The ordered form of a value. Reading eight bytes of fewer is safe: a page ends in a checksum of eight."""
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * part.width)
    flip = np.uint64(1) << np.uint64(8 * part.width - 1) if part.signed else np.uint64(0)
    return (np.uint64(load64(place)) & mask) ^ flip


@kernel
def narrow_codes(
    buffer: int, first_row: I64, address: I64, part: CodePart, codes: NDArray[np.uint64]
) -> None:
    """Put what a key column gives into the codes of all rows."""
    shift, step = np.uint64(part.shift), part.step
    pages = len(first_row) - 1
    for page in range(pages):
        if page + _PAGES_AHEAD < pages:  # straight from the disk, they are in no cache yet
            coming = buffer + address[page + _PAGES_AHEAD, part.buffer]
            for line in range(0, (first_row[page + 1] - first_row[page]) * step, 64):
                prefetch(coming + line)
        at = buffer + address[page, part.buffer]
        for row in range(first_row[page], first_row[page + 1]):
            codes[row] |= _code(at, part) << shift
            at += step


@kernel
def codes_at(
    buffer: int, first_row: I64, address: I64, part: CodePart, at: I64, codes: NDArray[np.uint64]
) -> None:
    """Put what a key column gives into the codes of some rows."""
    pages, inside = np.empty(len(at), dtype=np.int64), np.empty(len(at), dtype=np.int64)
    _split(first_row, at, pages, inside)
    for i in range(len(at)):
        place = buffer + address[pages[i], part.buffer] + part.step * inside[i]
        codes[i] |= _code(place, part) << np.uint64(part.shift)


@kernel
def find_codes(
    buffer: int,
    first_row: I64,
    address: I64,
    part: CodePart,
    pages: I64,
    codes: NDArray[np.uint64],
    out: I64,
) -> None:
    """The row with each code, or -1, on the page given for it, whose rows are in the order of a key of this one column."""
    count = len(codes)
    for i in range(count):
        if i + _ROWS_AHEAD < count:
            ahead = pages[i + _ROWS_AHEAD]
            middle = (first_row[ahead + 1] - first_row[ahead]) >> 1
            prefetch(buffer + address[ahead, part.buffer] + part.step * middle)
        page = pages[i]
        begin = buffer + address[page, part.buffer]
        low, rows = 0, first_row[page + 1] - first_row[page]
        high = rows
        while low < high:
            middle = (low + high) >> 1
            if _code(begin + part.step * middle, part) < codes[i]:
                low = middle + 1
            else:
                high = middle
        is_there = low < rows and _code(begin + part.step * low, part) == codes[i]
        out[i] = first_row[page] + low if is_there else -1


@kernel
def from_pages(
    buffer: int,
    first_row: I64,
    address: I64,
    plan: I64,
    nullable: NDArray[np.bool_],
    at: I64,
    most_text: int,
) -> Made:
    """Put loaded rows together as columns; `plan` has a row a leaf: its first buffer, width and kind."""
    count = len(at)
    buffers, inside = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    _split(first_row, at, buffers, inside)
    lists, step = address.ctypes.data, 8 * address.shape[1]
    for i in range(count):  # from the number of a row's page to the address of its list of buffers
        buffers[i] = lists + step * buffers[i]
    places = np.empty((len(plan), PLACES), dtype=np.int64)
    widths, kinds = plan[:, 1], plan[:, 2]
    block = np.empty(place_parts(kinds, widths, nullable, count, places), dtype=np.uint8)
    base = block.ctypes.data
    first_offsets(kinds, base, places)
    for begin in range(0, count, _BLOCK):
        end = min(begin + _BLOCK, count)
        for c in range(len(plan)):  # every row is somewhere else: ask for all before waiting for any
            values, kind, width = 8 * plan[c, 0] + 8, kinds[c], 4 if kinds[c] == STRING else widths[c]
            if kind in (FIXED, STRING):
                for i in range(begin, end):
                    prefetch(buffer + load64(buffers[i] + values) + width * inside[i])
        for c in range(len(plan)):
            values, width, kind = 8 * plan[c, 0] + 8, widths[c], kinds[c]
            to = base + places[c, 0]
            if kind == FIXED:
                if width == 8:
                    for i in range(begin, end):
                        start = load64(buffers[i] + values)
                        store64(to + 8 * i, load64(buffer + start + 8 * inside[i]) if start >= 0 else 0)
                elif width == 4:
                    for i in range(begin, end):
                        start = load64(buffers[i] + values)
                        store32(to + 4 * i, load32(buffer + start + 4 * inside[i]) if start >= 0 else 0)
                else:
                    for i in range(begin, end):
                        start = load64(buffers[i] + values)
                        if start < 0:  # a column of nulls may have no values at all
                            for j in range(width):
                                store8(to + width * i + j, 0)
                        else:
                            copy_value(to + width * i, buffer + start + width * inside[i], width)
            elif kind == STRING:
                total = places[c, 4]
                for i in range(begin, end):
                    start = load64(buffers[i] + values)
                    if start >= 0:
                        start += buffer + 4 * inside[i]
                        total += load32(start + 4) - load32(start)
                    store32(to + 4 * i + 4, total)
                places[c, 4] = total
            elif kind == BITS:
                for i in range(begin, end):
                    put_bit(to, i, _bit(buffer, load64(buffers[i] + values), inside[i], 0))
            if nullable[c]:
                nulls = 0
                for i in range(begin, end):
                    bit = _bit(buffer, load64(buffers[i] + values - 8), inside[i], 1)
                    put_bit(base + places[c, 1], i, bit)
                    nulls += 1 - bit
                places[c, 2] += nulls
    text = np.empty(place_text(kinds, places, most_text), dtype=np.uint8)
    for c in range(len(plan)):
        if kinds[c] == STRING and len(text):
            values, offsets, to = 8 * plan[c, 0] + 8, base + places[c, 0], text.ctypes.data + places[c, 3]
            for i in range(count):
                if i + _ROWS_AHEAD < count:
                    ahead = buffers[i + _ROWS_AHEAD] + values
                    if load64(ahead) >= 0:
                        start = load32(buffer + load64(ahead) + 4 * inside[i + _ROWS_AHEAD])
                        prefetch(buffer + load64(ahead + 8) + start)
                begin = load32(offsets + 4 * i)
                length = load32(offsets + 4 * i + 4) - begin
                if length > 0:
                    start = load32(buffer + load64(buffers[i] + values) + 4 * inside[i])
                    copy_short(to + begin, buffer + load64(buffers[i] + values + 8) + start, length)
    return block, text, places


@inlined
def _bit(buffer: int, start: int, row: int, absent: int) -> int:
    return absent if start < 0 else (load8(buffer + start + (row >> 3)) >> (row & 7)) & 1


@inlined
def _split(first_row: I64, at: I64, pages: I64, inside: I64) -> None:
    """The page that each row is in, and its place there; rows mostly come in order."""
    page = 0
    for i in range(len(at)):
        row = at[i]
        if row < first_row[page] or row >= first_row[page + 1]:
            page = np.searchsorted(first_row, row, side="right") - 1
        pages[i] = page
        inside[i] = row - first_row[page]
