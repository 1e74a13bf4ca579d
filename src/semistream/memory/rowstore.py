"""Rows kept in slots: the memory that waiting tuples and cached master rows live in.

A row is one record of fixed size, so storing or fetching it touches one place, and, where it has strings, one run of
bytes in a heap beside it:

    records   | nulls | 16-byte values | 8-byte | 4-byte | 2-byte | 1-byte | lengths of strings | place in heap |
    heap      ... | string bytes of one row, end to end | ...

Freed heap bytes are won back by moving what is left together, when the end of the heap is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel, load_number, store_number
from semistream.memory.budget import Budget
from semistream.memory.leaves import Leaf, Rows, Values

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
HEAP_SLACK = 1.25  # room so that compacting is rare: it moves every live byte once per quarter of the heap


@dataclass(frozen=True)
class RecordLayout:
    """Where in a record each leaf is."""

    leaves: tuple[Leaf, ...]
    offsets: tuple[int, ...]  # of each leaf's value, or of its length if that varies
    null_bytes: int  # at the front, one bit a leaf
    heap_at: int  # of the place in the heap; -1 without strings
    stride: int

    @staticmethod
    def of(leaves: Sequence[Leaf]) -> RecordLayout:
        """Place wide values first, so that every one is aligned."""
        null_bytes = -(-len(leaves) // 8)
        at = -(-null_bytes // 8) * 8
        sizes = [4 if leaf.is_varying else leaf.width for leaf in leaves]
        varying = any(leaf.is_varying for leaf in leaves)
        heap_at = at if varying else -1
        at += 8 if varying else 0
        offsets = [0] * len(leaves)
        for i in sorted(range(len(leaves)), key=lambda i: (-(sizes[i] & -sizes[i]), -sizes[i])):
            offsets[i] = at
            at += sizes[i]
        return RecordLayout(tuple(leaves), tuple(offsets), null_bytes, heap_at, -(-at // 8) * 8)

    @property
    def has_heap(self) -> bool:
        """Whether rows have bytes of varying length."""
        return self.heap_at >= 0


@dataclass
class RowStore:
    """`slots` rows of one layout, with `heap_bytes` for their strings, all allocated at once."""

    layout: RecordLayout
    records: U8
    heap: U8
    heap_end: int = 0
    heap_live: int = 0
    live: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @staticmethod
    def allocate(
        budget: Budget, name: str, layout: RecordLayout, slots: int, heap_bytes: int, *, who: str
    ) -> RowStore:
        """A store inside the budget."""
        records = budget.array(name, slots * layout.stride, "u1", who=who)
        heap = budget.array(name, heap_bytes if layout.has_heap else 0, "u1", who=who)
        live = budget.array(name, slots if layout.has_heap else 0, "?", who=who)
        return RowStore(layout, records, heap, live=live)  # type: ignore[arg-type]

    def heap_bytes_of(self, rows: Rows, at: I64) -> I64:
        """The heap bytes that each of these rows needs."""
        total = np.zeros(len(at), dtype=np.int64)
        for values in rows.leaves:
            if values.offsets is not None:
                total += values.offsets[at + 1] - values.offsets[at]
        return total

    def put(self, rows: Rows, at: I64, slots: I64) -> None:
        """Store the rows at positions `at` in free slots; there must be room in the heap."""
        layout = self.layout
        if layout.has_heap:
            sizes = self.heap_bytes_of(rows, at)
            need = int(sizes.sum())
            if self.heap_end + need > len(self.heap):
                self._compact()
            starts = self.heap_end + np.cumsum(sizes) - sizes
            self.heap_end += need
            self.heap_live += need
            self.live[slots] = True
            _put_heap_places(self.records, layout.stride, layout.heap_at, slots, starts)
            cursor = starts.copy()
        words = self.records.view(np.int64)
        for i, (leaf, values) in enumerate(zip(layout.leaves, rows.leaves, strict=True)):
            offset = layout.offsets[i]
            if values.offsets is not None:
                _put_varying(
                    self.records,
                    layout.stride,
                    offset,
                    self.heap,
                    cursor,
                    values.data,
                    values.offsets,
                    at,
                    slots,
                )
            elif leaf.width == 8:
                _put_words(words, layout.stride // 8, offset // 8, _as_words(values.data), at, slots)
            elif leaf.width:
                _put_bytes(self.records, layout.stride, offset, leaf.width, values.data, at, slots)
            _put_valid(
                self.records, layout.stride, i, values.valid if values.valid is not None else _NONE, at, slots
            )

    def get(self, slots: I64) -> Rows:
        """The rows in these slots."""
        layout = self.layout
        count = len(slots)
        words = self.records.view(np.int64)
        cursor = np.empty(count if layout.has_heap else 0, dtype=np.int64)
        if layout.has_heap:
            _get_heap_places(self.records, layout.stride, layout.heap_at, slots, cursor)
        found = []
        for i, leaf in enumerate(layout.leaves):
            valid = np.empty(count, dtype=np.uint8)
            nulls = _get_valid(self.records, layout.stride, i, slots, valid)
            offset, offsets = layout.offsets[i], None
            if leaf.is_varying:
                offsets = np.zeros(count + 1, dtype=np.int64)
                _get_lengths(self.records, layout.stride, offset, slots, offsets)
                data = np.empty(int(offsets[-1]), dtype=np.uint8)
                _get_varying(self.heap, cursor, offsets, data)
            elif leaf.width == 8:
                values = np.empty(count, dtype=np.int64)
                _get_words(words, layout.stride // 8, offset // 8, slots, values)
                data = values.view(np.uint8)
            else:
                data = np.empty(count * leaf.width, dtype=np.uint8)
                _get_bytes(self.records, layout.stride, offset, leaf.width, slots, data)
            found.append(Values(data, offsets, valid if nulls else None))
        return Rows(count, tuple(found))

    def free(self, slots: I64) -> None:
        """Give the heap bytes of these rows back."""
        if self.layout.has_heap and len(slots):
            self.heap_live -= int(
                _row_heap_bytes(self.records, self.layout.stride, self._length_offsets(), slots)
            )
            self.live[slots] = False

    @property
    def heap_room(self) -> int:
        """Heap bytes that rows put next may take."""
        return len(self.heap) - self.heap_live

    def _length_offsets(self) -> I64:
        pairs = zip(self.layout.leaves, self.layout.offsets, strict=True)
        return np.array([offset for leaf, offset in pairs if leaf.is_varying], dtype=np.int64)

    def _compact(self) -> None:
        slots = np.flatnonzero(self.live)
        starts = np.empty(len(slots), dtype=np.int64)
        _get_heap_places(self.records, self.layout.stride, self.layout.heap_at, slots, starts)
        order = np.argsort(starts)
        self.heap_end = int(
            _move_together(
                self.records,
                self.layout.stride,
                self.layout.heap_at,
                self._length_offsets(),
                self.heap,
                slots[order],
            )
        )


_NONE = np.empty(0, dtype=np.uint8)


def _as_words(data: U8) -> I64:
    # A slice of a batch may begin anywhere; only whole words can be viewed as such.
    return data.view(np.int64) if data.ctypes.data % 8 == 0 else data.copy().view(np.int64)


@kernel
def _put_words(words: I64, stride: int, offset: int, source: I64, at: I64, slots: I64) -> None:
    for i in range(len(at)):
        words[slots[i] * stride + offset] = source[at[i]]


@kernel
def _get_words(words: I64, stride: int, offset: int, slots: I64, out: I64) -> None:
    for i in range(len(slots)):
        out[i] = words[slots[i] * stride + offset]


@kernel
def _put_bytes(records: U8, stride: int, offset: int, width: int, source: U8, at: I64, slots: I64) -> None:
    for i in range(len(at)):
        to, start = slots[i] * stride + offset, at[i] * width
        for j in range(width):
            records[to + j] = source[start + j]


@kernel
def _get_bytes(records: U8, stride: int, offset: int, width: int, slots: I64, out: U8) -> None:
    for i in range(len(slots)):
        start = slots[i] * stride + offset
        for j in range(width):
            out[i * width + j] = records[start + j]


@kernel
def _put_valid(records: U8, stride: int, leaf: int, valid: U8, at: I64, slots: I64) -> None:
    byte, bit = leaf >> 3, np.uint8(1 << (leaf & 7))
    for i in range(len(at)):
        place = slots[i] * stride + byte
        if len(valid) == 0 or valid[at[i]]:
            records[place] |= bit
        else:
            records[place] &= ~bit


@kernel
def _get_valid(records: U8, stride: int, leaf: int, slots: I64, out: U8) -> int:
    byte, shift = leaf >> 3, leaf & 7
    nulls = 0
    for i in range(len(slots)):
        out[i] = (records[slots[i] * stride + byte] >> shift) & 1
        nulls += 1 - out[i]
    return nulls


@kernel
def _put_heap_places(records: U8, stride: int, heap_at: int, slots: I64, starts: I64) -> None:
    for i in range(len(slots)):
        store_number(records, slots[i] * stride + heap_at, 8, starts[i])


@kernel
def _get_heap_places(records: U8, stride: int, heap_at: int, slots: I64, starts: I64) -> None:
    for i in range(len(slots)):
        starts[i] = load_number(records, slots[i] * stride + heap_at, 8)


@kernel
def _put_varying(
    records: U8, stride: int, offset: int, heap: U8, cursor: I64, data: U8, offsets: I64, at: I64, slots: I64
) -> None:
    for i in range(len(at)):
        start, length = offsets[at[i]], offsets[at[i] + 1] - offsets[at[i]]
        for j in range(length):
            heap[cursor[i] + j] = data[start + j]
        cursor[i] += length
        store_number(records, slots[i] * stride + offset, 4, length)


@kernel
def _get_lengths(records: U8, stride: int, offset: int, slots: I64, offsets: I64) -> None:
    for i in range(len(slots)):
        offsets[i + 1] = offsets[i] + load_number(records, slots[i] * stride + offset, 4)


@kernel
def _get_varying(heap: U8, cursor: I64, offsets: I64, out: U8) -> None:
    for i in range(len(cursor)):
        start, to = cursor[i], offsets[i]
        length = offsets[i + 1] - to
        for j in range(length):
            out[to + j] = heap[start + j]
        cursor[i] += length


@kernel
def _row_heap_bytes(records: U8, stride: int, length_offsets: I64, slots: I64) -> int:
    total = 0
    for i in range(len(slots)):
        for offset in length_offsets:
            total += load_number(records, slots[i] * stride + offset, 4)
    return total


@kernel
def _move_together(records: U8, stride: int, heap_at: int, length_offsets: I64, heap: U8, slots: I64) -> int:
    """Close the gaps between live rows; `slots` are in the order of their places."""
    end = 0
    for i in range(len(slots)):
        length = 0
        for offset in length_offsets:
            length += load_number(records, slots[i] * stride + offset, 4)
        start = load_number(records, slots[i] * stride + heap_at, 8)
        for j in range(length):
            heap[end + j] = heap[start + j]
        store_number(records, slots[i] * stride + heap_at, 8, end)
        end += length
    return end
