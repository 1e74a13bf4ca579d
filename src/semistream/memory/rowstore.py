"""Rows kept in slots: the memory that waiting tuples and cached master rows live in.

A row is one record of fixed size, so storing or fetching it touches one place, and, where it has strings, one run of
bytes in a heap beside it:

    records   | header | place in heap | 16-byte values | 8-byte | 4-byte, lengths of strings | 2-byte | 1-byte | nulls |
    heap      ... | string bytes of one row, end to end | ...

The header is for who keeps the rows: all that is known of a slot is then on the same cache line.
Freed heap bytes are won back by moving what is left together, when the end of the heap is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semistream.address import (
    address_of,
    copy_bytes,
    copy_short,
    load8,
    load32,
    load64,
    prefetch,
    store8,
    store32,
    store64,
)
from semistream.columnblock import ANY_TEXT, STRING, copy_value
from semistream.kernel import kernel
from semistream.memory.assembly import Assembled, from_records
from semistream.memory.budget import Budget
from semistream.memory.leaves import Leaf, Rows

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
_HEAP_SLACK = 1.25  # room so that compacting is rare: it moves every live byte once per quarter of the heap
_FEW = 64  # rows that are put in order by insertion
_BLOCK = 256  # rows copied column by column while their records stay in the cache


@dataclass(frozen=True)
class RecordLayout:
    """Where in a record each leaf is."""

    leaves: tuple[Leaf, ...]
    offsets: tuple[int, ...]  # of each leaf's value, or of its length if that varies
    heap_at: int  # of the place in the heap; -1 without strings
    nulls_at: int  # one bit a leaf, set where it is null
    stride: int

    @staticmethod
    def of(leaves: Sequence[Leaf], header: int = 0) -> RecordLayout:
        """Place wide values first, so that few of them lie across two cache lines."""
        sizes = [4 if leaf.is_varying else leaf.width for leaf in leaves]
        varying = any(leaf.is_varying for leaf in leaves)
        at = header + (8 if varying else 0)
        offsets = [0] * len(leaves)
        for i in sorted(range(len(leaves)), key=lambda i: (-(sizes[i] & -sizes[i]), -sizes[i])):
            offsets[i] = at
            at += sizes[i]
        stride = -(-(at + -(-len(leaves) // 8)) // 4) * 4
        return RecordLayout(tuple(leaves), tuple(offsets), header if varying else -1, at, stride)

    @property
    def has_heap(self) -> bool:
        """Whether rows have bytes of varying length."""
        return self.heap_at >= 0

    def bytes_for(self, slots: int, heap_bytes_per_row: float) -> int:
        """Bytes of a store of so many rows."""
        return slots * self.stride + (self.heap_bytes(slots, heap_bytes_per_row) + slots) * self.has_heap

    def heap_bytes(self, slots: int, heap_bytes_per_row: float) -> int:
        """Heap for so many rows."""
        return int(_HEAP_SLACK * heap_bytes_per_row * slots) + 1

    def for_one_of(self, nbytes: int) -> float:
        """`heap_bytes_per_row` of a store in which a row with so many bytes of strings fits, if only alone."""
        return nbytes / _HEAP_SLACK

    @cached_property
    def plan(self) -> I64:
        """A row a leaf for the kernels: its offset, width and kind."""
        widths = [leaf.width for leaf in self.leaves]
        kinds = [leaf.kind for leaf in self.leaves]
        return np.array([self.offsets, widths, kinds], dtype=np.int64).T.reshape(-1, 3).copy()

    @cached_property
    def length_offsets(self) -> I64:
        """Where the lengths of strings are."""
        offsets: I64 = self.plan[self.plan[:, 2] == STRING, 0].copy()
        return offsets


@dataclass
class RowStore:
    """Rows of one layout in slots, with a heap for their strings, all allocated at once."""

    layout: RecordLayout
    records: U8
    heap: U8
    live: NDArray[np.bool_]
    heap_end: int = 0
    heap_live: int = 0
    nullable: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @staticmethod
    def allocate(
        budget: Budget, name: str, layout: RecordLayout, slots: int, heap_bytes_per_row: float, *, who: str
    ) -> RowStore:
        """A store inside the budget."""
        records = budget.array(name, slots * layout.stride, "u1", who=who)
        heap_bytes = layout.heap_bytes(slots, heap_bytes_per_row) if layout.has_heap else 0
        heap = budget.array(name, heap_bytes, "u1", who=who)
        live = budget.array(name, slots if layout.has_heap else 0, "?", who=who)
        seen = np.zeros(len(layout.leaves), dtype=np.bool_)
        return RowStore(layout, records, heap, live, nullable=seen)  # type: ignore[arg-type]

    def on(
        self, records: NDArray[np.generic], heap: NDArray[np.generic], live: NDArray[np.generic]
    ) -> RowStore:
        """A store of the same layout in other memory."""
        return RowStore(self.layout, records, heap, live, nullable=self.nullable.copy())  # type: ignore[arg-type]

    def put(self, rows: Rows, at: I64, slots: I64) -> None:
        """Store the rows at positions `at` in free slots; there must be room in the heap."""
        layout, starts = self.layout, at
        if layout.has_heap:
            sizes = string_bytes(rows, at)
            need = int(sizes.sum())
            if self.heap_end + need > len(self.heap):
                self._compact()
            starts = self.heap_end + np.cumsum(sizes) - sizes
            self.heap_end += need
            self.heap_live += need
            self.live[slots] = True
        self.nullable |= rows.addresses[:, 2] != 0
        _put(
            self.records_at,
            layout.stride,
            self.heap_at,
            layout.heap_at,
            layout.nulls_at,
            layout.plan,
            self.nullable,
            rows.addresses,
            at,
            slots,
            starts,
        )

    def get(self, slots: I64, most_text: int = ANY_TEXT) -> Assembled:
        """The rows in these slots."""
        layout = self.layout
        made = from_records(
            self.records_at,
            layout.stride,
            layout.nulls_at,
            self.heap_at,
            layout.heap_at,
            layout.plan,
            self.nullable,
            slots,
            most_text,
        )
        return Assembled(len(slots), layout.leaves, *made)

    def free(self, slots: I64) -> None:
        """Give the heap bytes of these rows back."""
        if self.layout.has_heap and len(slots):
            self.heap_live -= int(
                _heap_bytes(self.records_at, self.layout.stride, self.layout.length_offsets, self.live, slots)
            )

    @cached_property
    def records_at(self) -> int:
        """The address of the records."""
        return address_of(self.records)

    @cached_property
    def heap_at(self) -> int:
        """The address of the heap."""
        return address_of(self.heap)

    @property
    def heap_room(self) -> int:
        """Heap bytes that rows put next may take."""
        return len(self.heap) - self.heap_live

    def _compact(self) -> None:
        slots = np.empty(int(np.count_nonzero(self.live)), dtype=np.int32)
        _by_place(self.records_at, self.layout.stride, self.layout.heap_at, self.live, self.heap_end, slots)
        self.heap_end = int(
            _move_together(
                self.records_at,
                self.layout.stride,
                self.layout.heap_at,
                self.layout.length_offsets,
                self.heap_at,
                slots,
            )
        )


def string_bytes(rows: Rows, at: I64) -> I64:
    """The heap bytes that each of these rows needs."""
    total = np.zeros(len(at), dtype=np.int64)
    _string_bytes(rows.addresses, at, total)
    return total


@kernel
def _string_bytes(addresses: I64, at: I64, total: I64) -> None:
    for c in range(len(addresses)):
        offsets = addresses[c, 1]
        if offsets != 0:
            for i in range(len(at)):
                total[i] += load32(offsets + 4 * at[i] + 4) - load32(offsets + 4 * at[i])


@kernel
def _put(
    records: int,
    stride: int,
    heap: int,
    heap_at: int,
    nulls_at: int,
    plan: I64,
    nullable: NDArray[np.bool_],
    addresses: I64,
    at: I64,
    slots: I64,
    starts: I64,
) -> None:
    cursor = np.empty(_BLOCK, dtype=np.int64)
    for begin in range(0, len(at), _BLOCK):
        end = min(begin + _BLOCK, len(at))
        for i in range(begin, end):
            record = records + slots[i] * stride
            prefetch(record)
            prefetch(record + stride - 1)
        if heap_at >= 0:
            for i in range(begin, end):
                cursor[i - begin] = starts[i]
                store64(records + slots[i] * stride + heap_at, starts[i])
        for c in range(len(plan)):
            base, width, kind, data = records + plan[c, 0], plan[c, 1], plan[c, 2], addresses[c, 0]
            if kind == STRING:
                offsets = addresses[c, 1]
                for i in range(begin, end):
                    start = load32(offsets + 4 * at[i])
                    length = load32(offsets + 4 * at[i] + 4) - start
                    copy_short(heap + cursor[i - begin], data + start, length)
                    cursor[i - begin] += length
                    store32(base + slots[i] * stride, length)
            elif width == 8:
                for i in range(begin, end):
                    store64(base + slots[i] * stride, load64(data + 8 * at[i]))
            elif width > 0:
                for i in range(begin, end):
                    copy_value(base + slots[i] * stride, data + width * at[i], width)
            if nullable[c]:
                byte, bit, valid = records + nulls_at + (c >> 3), 1 << (c & 7), addresses[c, 2]
                for i in range(begin, end):
                    place = byte + slots[i] * stride
                    if valid != 0 and load8(valid + at[i]) == 0:
                        store8(place, load8(place) | bit)
                    else:
                        store8(place, load8(place) & ~bit)


@kernel
def _heap_bytes(records: int, stride: int, length_offsets: I64, live: NDArray[np.bool_], slots: I64) -> int:
    """What these rows take; they are live no longer."""
    total = 0
    for i in range(len(slots)):
        live[slots[i]] = False
        for offset in length_offsets:
            total += load32(records + slots[i] * stride + offset)
    return total


@kernel
def _by_place(
    records: int, stride: int, heap_at: int, live: NDArray[np.bool_], heap_end: int, slots: I32
) -> None:
    """Fill in the live slots in the order of their places in the heap.

    They are dealt out to about as many parts of the heap as there are of them, and put in order there: sorting them would
    take several times the memory, and the time.
    """
    parts = max(len(slots), 1)
    part_bytes = heap_end // parts + 1
    begins = np.zeros(parts + 1, dtype=np.int32)
    for slot in range(len(live)):
        if live[slot]:
            begins[load64(records + slot * stride + heap_at) // part_bytes + 1] += 1
    for part in range(parts):
        begins[part + 1] += begins[part]
    for slot in range(len(live)):
        if live[slot]:
            part = load64(records + slot * stride + heap_at) // part_bytes
            slots[begins[part]] = slot
            begins[part] += 1  # in the end where the next part began
    begin = 0
    for part in range(parts):
        end = begins[part]
        if end - begin > _FEW:
            places = np.empty(end - begin, dtype=np.int64)
            for i in range(begin, end):
                places[i - begin] = load64(records + slots[i] * stride + heap_at)
            slots[begin:end] = slots[begin:end][np.argsort(places)]
        else:
            for i in range(begin + 1, end):
                slot, at = slots[i], i
                place = load64(records + slot * stride + heap_at)
                while at > begin and load64(records + slots[at - 1] * stride + heap_at) > place:
                    slots[at] = slots[at - 1]
                    at -= 1
                slots[at] = slot
        begin = end


@kernel
def _move_together(
    records: int, stride: int, heap_at: int, length_offsets: I64, heap: int, slots: I32
) -> int:
    """Close the gaps between live rows; `slots` are in the order of their places."""
    end = 0
    for i in range(len(slots)):
        record = records + slots[i] * stride
        length = 0
        for offset in length_offsets:
            length += load32(record + offset)
        copy_bytes(heap + end, heap + load64(record + heap_at), length)
        store64(record + heap_at, end)
        end += length
    return end
