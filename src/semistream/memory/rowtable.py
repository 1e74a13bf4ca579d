"""Master rows in memory by key, probed by the stream: what the front stage and the in-memory join are made of.

All rows of a key are kept together: a key is in the table with all of them or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.memory import table as tables
from semistream.memory.budget import Budget
from semistream.memory.leaves import Rows
from semistream.memory.rowstore import HEAP_SLACK, RecordLayout, RowStore
from semistream.memory.table import KeyBytes, Probes, Table, find, find_slot, insert, remove_first

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_SLOT_BYTES = 8 + 4 + 4  # code, chain, free


@dataclass
class RowTable:
    """Room for `capacity` rows; for wide keys the first leaf of the layout is the key's bytes."""

    store: RowStore
    table: Table
    stored_keys: KeyBytes
    codes: U64
    chain: I32
    free: I32
    capacity: int
    room: int

    @staticmethod
    def bytes_for(layout: RecordLayout, capacity: int, heap_bytes_per_row: float) -> int:
        """Bytes of a table of this capacity."""
        heap = (int(HEAP_SLACK * heap_bytes_per_row * capacity) + 1 + capacity) if layout.has_heap else 0
        return (
            (layout.stride + _SLOT_BYTES) * capacity
            + heap
            + tables.entries_for(capacity) * tables.ENTRY_BYTES
        )

    @staticmethod
    def capacity_for(layout: RecordLayout, nbytes: int, heap_bytes_per_row: float) -> int:
        """The most rows whose table takes at most `nbytes`."""
        low, high = 0, max(nbytes // max(layout.stride, 1), 1)
        while low < high:
            middle = (low + high + 1) // 2
            if RowTable.bytes_for(layout, middle, heap_bytes_per_row) <= nbytes:
                low = middle
            else:
                high = middle - 1
        return low

    @staticmethod
    def allocate(
        budget: Budget,
        name: str,
        layout: RecordLayout,
        capacity: int,
        heap_bytes_per_row: float,
        *,
        wide: bool,
        who: str,
    ) -> RowTable:
        """A table inside the budget."""
        heap = int(HEAP_SLACK * heap_bytes_per_row * capacity) + 1
        store = RowStore.allocate(budget, name, layout, capacity, heap, who=who)
        table = tables.allocate(budget, name, capacity, who=who)
        codes = budget.array(name, capacity, "u8", who=who)
        chain = budget.array(name, capacity, "i4", who=who)
        free = budget.array(name, capacity, "i4", who=who)
        free[:] = np.arange(capacity)[::-1]
        keys = KeyBytes(store.records, layout.stride, layout.heap_at, layout.offsets[0], store.heap)
        return RowTable(
            store=store,
            table=table,
            stored_keys=keys if wide else KeyBytes(store.records, 0, 0, 0, store.heap),
            codes=codes,  # type: ignore[arg-type]
            chain=chain,  # type: ignore[arg-type]
            free=free,  # type: ignore[arg-type]
            capacity=capacity,
            room=capacity,
        )

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.capacity - self.room

    def add(self, rows: Rows, at: I64, codes: U64) -> I64:
        """Keep the rows at positions `at`; there must be room. Gives their slots."""
        slots = self.free[self.room - len(at) : self.room][::-1].astype(np.int64)
        self.store.put(rows, at, slots)
        self.codes[slots] = codes
        _insert_all(self.table, self.stored_keys, self.chain, self.codes, slots)
        self.room -= len(at)
        return slots

    def find(self, probes: Probes) -> I64:
        """For each probe the first row of its key, or -1."""
        out = np.empty(len(probes.codes), dtype=np.int64)
        _find_all(self.table, self.stored_keys, probes, out)
        return out

    def pairs(self, first: I64) -> tuple[I64, I64]:
        """Every probe with every row of its key, for what `find` gave: positions of probes, and slots."""
        total = int(_count_pairs(self.table, self.stored_keys, self.codes, first))
        probes, slots = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
        _pair_all(self.chain, first, probes, slots)
        return probes, slots

    def remove(self, first: I64) -> int:
        """Drop the keys that these rows are the first of, with all their rows; gives how many rows went."""
        gone = np.empty(self.rows, dtype=np.int64)
        count = int(_remove_keys(self.table, self.stored_keys, self.chain, self.codes, first, gone))
        self.free[self.room : self.room + count] = gone[:count]
        self.room += count
        self.store.free(gone[:count])
        return count


@kernel
def _insert_all(table: Table, stored: KeyBytes, chain: I32, codes: U64, slots: I64) -> None:
    for slot in slots:
        insert(table, stored, chain, codes[slot], slot)


@kernel
def _find_all(table: Table, stored: KeyBytes, probes: Probes, out: I64) -> None:
    for i in range(len(probes.codes)):
        begin, length = 0, 0
        if stored.stride:
            begin = probes.offsets[i]
            length = probes.offsets[i + 1] - begin
        at = find(table, stored, probes.codes[i], probes.data, begin, length)
        out[i] = table.first[at] if at >= 0 else -1


@kernel
def _count_pairs(table: Table, stored: KeyBytes, codes: U64, first: I64) -> int:
    total = 0
    for i in range(len(first)):
        if first[i] >= 0:
            total += table.tally[find_slot(table, stored, codes[first[i]], first[i])]
    return total


@kernel
def _pair_all(chain: I32, first: I64, probes: I64, slots: I64) -> None:
    count = 0
    for i in range(len(first)):
        slot = first[i]
        while slot >= 0:
            probes[count] = i
            slots[count] = slot
            count += 1
            slot = chain[slot]


@kernel
def _remove_keys(table: Table, stored: KeyBytes, chain: I32, codes: U64, first: I64, gone: I64) -> int:
    count = 0
    for i in range(len(first)):
        slot = first[i]
        while slot >= 0:
            at = find_slot(table, stored, codes[slot], slot)
            following = chain[slot]
            remove_first(table, chain, at)
            gone[count] = slot
            count += 1
            slot = following
    return count
