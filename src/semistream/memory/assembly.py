"""Rows put together as Arrow columns, in one block of memory: from records in slots, or from columns of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.address import address_of, copy_short, load8, load32, load64, prefetch, store32, store64
from semistream.columnblock import (
    ANY_TEXT,
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
from semistream.master.keys import WideKeys
from semistream.memory.leaves import Leaf, Rows

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
_BLOCK = 256  # rows copied column by column while they stay in the cache


@dataclass(frozen=True)
class Assembled:
    """Some rows of some leaves."""

    count: int
    leaves: tuple[Leaf, ...]
    block: U8
    text: U8
    places: I64

    @property
    def is_too_long(self) -> bool:
        """Whether the strings are more than a batch can hold, or than were asked for; they were left out then."""
        return not len(self.text) and bool(self.places[:, -1].any())

    def columns(self, builders: Sequence[ColumnBuilder]) -> list[pa.Array]:
        """As columns."""
        parts = Parts(self.count, pa.py_buffer(self.block), pa.py_buffer(self.text), self.places.tolist())
        return [build(parts) for build in builders]

    def rows(self) -> Rows:
        """As rows to be kept."""
        addresses = np.zeros((len(self.leaves), 3), dtype=np.int64)
        owners: list[object] = [self.block, self.text]
        block, text = address_of(self.block), address_of(self.text)
        addresses[:, 0] = block + self.places[:, 0]
        for i, leaf in enumerate(self.leaves):
            if leaf.kind == STRING:
                addresses[i, 0], addresses[i, 1] = text + self.places[i, 3], addresses[i, 0]
            elif leaf.kind == BITS:
                addresses[i, 0] = self._unpacked(int(self.places[i, 0]), owners)
            if self.places[i, 2]:
                addresses[i, 2] = self._unpacked(int(self.places[i, 1]), owners)
        return Rows(self.count, addresses, tuple(owners))

    def without_key(self) -> Assembled:
        """All leaves but the first, which is the bytes of a wide key."""
        return Assembled(self.count, self.leaves[1:], self.block, self.text, self.places[1:])

    def key(self) -> WideKeys:
        """The first leaf as keys."""
        start, _, _, text, length = self.places[0].tolist()
        offsets = self.block[start : start + 4 * (self.count + 1)].view(np.int32)
        return WideKeys(offsets.astype(np.int64), self.text[text : text + length])

    def _unpacked(self, start: int, owners: list[object]) -> int:
        bits = self.block[start : start + (self.count + 7) // 8]
        values = np.unpackbits(bits, count=self.count, bitorder="little")
        owners.append(values)
        return address_of(values)


@dataclass(frozen=True)
class Parts:
    """What columns are made of."""

    count: int
    block: pa.Buffer
    text: pa.Buffer
    places: list[list[int]]


ColumnBuilder = Callable[[Parts], pa.Array]


def column_builders(schema: pa.Schema) -> list[ColumnBuilder]:
    """How to make each column, found out once."""
    leaves = itertools.count()
    return [_builder(field.type, leaves) for field in schema]


def _builder(kind: pa.DataType, leaves: Iterator[int]) -> ColumnBuilder:
    leaf, make = next(leaves), pa.Array.from_buffers
    if pat.is_null(kind):
        return lambda parts: pa.nulls(parts.count)
    if pat.is_struct(kind):
        children = [_builder(field.type, leaves) for field in kind]
        return lambda parts: make(
            kind,
            parts.count,
            [_bitmap(parts, leaf)],
            parts.places[leaf][2],
            children=[build(parts) for build in children],
        )
    if pat.is_string(kind) or pat.is_binary(kind):
        return lambda parts: make(
            kind,
            parts.count,
            [_bitmap(parts, leaf), _data(parts, leaf), _text(parts, leaf)],
            parts.places[leaf][2],
        )
    return lambda parts: make(
        kind, parts.count, [_bitmap(parts, leaf), _data(parts, leaf)], parts.places[leaf][2]
    )


def _data(parts: Parts, leaf: int) -> pa.Buffer:
    return parts.block.slice(parts.places[leaf][0])


def _text(parts: Parts, leaf: int) -> pa.Buffer:
    return parts.text.slice(parts.places[leaf][3], parts.places[leaf][4])


def _bitmap(parts: Parts, leaf: int) -> pa.Buffer | None:
    return parts.block.slice(parts.places[leaf][1], (parts.count + 7) // 8) if parts.places[leaf][2] else None


@dataclass(frozen=True)
class ColumnSource:
    """Columns of rows as they came, from which some are taken."""

    leaves: tuple[Leaf, ...]

    @cached_property
    def plan(self) -> I64:
        """A row a leaf: width and kind."""
        return np.array([(leaf.width, leaf.kind) for leaf in self.leaves], dtype=np.int64).reshape(-1, 2)

    def take(self, rows: Rows, at: I64, most_text: int = ANY_TEXT) -> Assembled:
        """Rows at these positions."""
        return Assembled(len(at), self.leaves, *_from_columns(rows.addresses, self.plan, at, most_text))


@kernel
def _from_columns(addresses: I64, plan: I64, at: I64, most_text: int) -> Made:
    count = len(at)
    places = np.empty((len(plan), PLACES), dtype=np.int64)
    widths, kinds = plan[:, 0], plan[:, 1]
    block = np.empty(place_parts(kinds, widths, addresses[:, 2] != 0, count, places), dtype=np.uint8)
    base = block.ctypes.data
    first_offsets(kinds, base, places)
    for c in range(len(plan)):
        width, kind = widths[c], kinds[c]
        source, offsets, valid = addresses[c, 0], addresses[c, 1], addresses[c, 2]
        to = base + places[c, 0]
        if kind == FIXED:
            if width == 8:
                for i in range(count):
                    store64(to + 8 * i, load64(source + 8 * at[i]))
            else:
                for i in range(count):
                    copy_value(to + width * i, source + width * at[i], width)
        elif kind == BITS:
            for i in range(count):
                put_bit(to, i, load8(source + at[i]))
        elif kind == STRING:
            total = 0
            for i in range(count):
                total += load32(offsets + 4 * at[i] + 4) - load32(offsets + 4 * at[i])
                store32(to + 4 * i + 4, total)
            places[c, 4] = total
        if valid != 0:
            nulls = 0
            for i in range(count):
                bit = load8(valid + at[i])
                put_bit(base + places[c, 1], i, bit)
                nulls += 1 - bit
            places[c, 2] = nulls
    text = np.empty(place_text(kinds, places, most_text), dtype=np.uint8)
    for c in range(len(plan)):
        if kinds[c] == STRING and len(text):
            source, offsets = addresses[c, 0], addresses[c, 1]
            to = text.ctypes.data + places[c, 3]
            for i in range(count):
                start = load32(offsets + 4 * at[i])
                length = load32(offsets + 4 * at[i] + 4) - start
                copy_short(to, source + start, length)
                to += length
    return block, text, places


@kernel
def from_records(
    records: int,
    stride: int,
    nulls_at: int,
    heap: int,
    heap_at: int,
    plan: I64,
    nullable: NDArray[np.bool_],
    slots: I64,
    most_text: int,
) -> Made:
    """Put rows together from records; `plan` has a row a leaf: its offset, width and kind."""
    count = len(slots)
    places = np.empty((len(plan), PLACES), dtype=np.int64)
    widths, kinds = plan[:, 1], plan[:, 2]
    block = np.empty(place_parts(kinds, widths, nullable, count, places), dtype=np.uint8)
    base = block.ctypes.data
    first_offsets(kinds, base, places)
    for begin in range(0, count, _BLOCK):
        end = min(begin + _BLOCK, count)
        for i in range(begin, end):
            line = records + slots[i] * stride
            prefetch(line)
            prefetch(line + stride - 1)
        for c in range(len(plan)):
            width, kind, source = widths[c], kinds[c], records + plan[c, 0]
            to = base + places[c, 0]
            if kind == FIXED:
                if width == 8:
                    for i in range(begin, end):
                        store64(to + 8 * i, load64(source + slots[i] * stride))
                elif width == 4:
                    for i in range(begin, end):
                        store32(to + 4 * i, load32(source + slots[i] * stride))
                else:
                    for i in range(begin, end):
                        copy_value(to + width * i, source + slots[i] * stride, width)
            elif kind == BITS:
                for i in range(begin, end):
                    put_bit(to, i, load8(source + slots[i] * stride))
            elif kind == STRING:
                total = places[c, 4]
                for i in range(begin, end):
                    total += load32(source + slots[i] * stride)
                    store32(to + 4 * i + 4, total)
                places[c, 4] = total
            if nullable[c]:
                byte, shift, nulls = records + nulls_at + (c >> 3), c & 7, 0
                for i in range(begin, end):
                    bit = 1 - ((load8(byte + slots[i] * stride) >> shift) & 1)
                    put_bit(base + places[c, 1], i, bit)
                    nulls += 1 - bit
                places[c, 2] += nulls
    text = np.empty(place_text(kinds, places, most_text), dtype=np.uint8)
    if len(text):
        _texts_of_records(records, stride, heap, heap_at, kinds, base, text.ctypes.data, places, slots)
    return block, text, places


@inlined
def _texts_of_records(
    records: int,
    stride: int,
    heap: int,
    heap_at: int,
    kinds: I64,
    block: int,
    text: int,
    places: I64,
    slots: I64,
) -> None:
    count = len(slots)
    for i in range(count):
        # The records and heap places of rows to come are on their way while this one is copied.
        if i + 32 < count:
            prefetch(records + slots[i + 32] * stride + heap_at)
        if i + 16 < count:
            there = heap + load64(records + slots[i + 16] * stride + heap_at)
            prefetch(there)
            prefetch(there + 64)
        start = heap + load64(records + slots[i] * stride + heap_at)
        for c in range(len(kinds)):
            if kinds[c] == STRING:
                offsets = block + places[c, 0] + 4 * i
                begin = load32(offsets)
                length = load32(offsets + 4) - begin
                copy_short(text + places[c, 3] + begin, start, length)
                start += length
