"""Master rows in memory by key, probed by the stream: what the front stage and the in-memory join are made of.

All rows of a key are kept together: a key is in the table with all of them or not at all. A key is known by the slot of
its last row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.memory import table as tables
from semistream.memory.budget import Budget, capacity_within
from semistream.memory.leaves import Leaf, Rows
from semistream.memory.rowstore import RecordLayout, RowStore
from semistream.memory.table import (
    Probes,
    Table,
    find,
    find_slot,
    insert,
    is_cached,
    last_narrow,
    last_of,
    look_ahead,
    look_near,
    next_of,
    remove_first,
)
from semistream.ranges import MOST_PAIRS

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


@dataclass
class RowTable:
    """Room for `capacity` rows; for wide keys the first leaf of the layout is the key's bytes."""

    store: RowStore
    table: Table
    capacity: int
    repeats: bool = False  # whether a key ever had several rows

    @staticmethod
    def layout(leaves: Sequence[Leaf]) -> RecordLayout:
        """The records of rows of these leaves."""
        return RecordLayout.of(leaves, tables.HEADER_BYTES)

    @staticmethod
    def bytes_for(layout: RecordLayout, capacity: int, heap_bytes_per_row: float) -> int:
        """Bytes of a table of this capacity."""
        return layout.bytes_for(capacity, heap_bytes_per_row) + tables.bytes_for(capacity)

    @staticmethod
    def capacity_for(layout: RecordLayout, nbytes: int, heap_bytes_per_row: float) -> int:
        """The most rows whose table takes at most `nbytes`."""
        return capacity_within(nbytes, lambda slots: RowTable.bytes_for(layout, slots, heap_bytes_per_row))

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
        store = RowStore.allocate(budget, name, layout, capacity, heap_bytes_per_row, who=who)
        return RowTable(store, tables.allocate(budget, name, store, capacity, wide=wide, who=who), capacity)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All it consists of, to be kept elsewhere; `adopt` takes it back."""
        store = self.store
        return {
            "records": store.records,
            "heap": store.heap,
            "live": store.live,
            "entries": self.table.entries,
            "state": self.table.state,
            "ends": np.array([store.heap_end, store.heap_live, self.repeats], dtype=np.int64),
            "nullable": store.nullable,
        }

    def adopt(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on with what a table of the same layout and capacity gave; the arrays are this table's own from now on."""
        self.store = self.store.on(arrays["records"], arrays["heap"], arrays["live"])
        self.store.heap_end, self.store.heap_live, repeats = (int(value) for value in arrays["ends"])
        self.repeats = bool(repeats)
        self.store.nullable[:] = arrays["nullable"]
        self.table.state[:] = arrays["state"]
        self.table = tables.over(arrays["entries"], self.table.state, self.store, wide=self.table.wide != 0)

    @property
    def room(self) -> int:
        """How many more rows there is room for, strings aside."""
        return int(self.table.state[tables.FREE])

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.capacity - self.room

    def add(self, rows: Rows, at: I64, codes: U64) -> I64:
        """Keep the rows at positions `at`; there must be room. Gives their slots."""
        slots = tables.take_free(self.table, len(at))
        self.store.put(rows, at, slots)
        self.repeats |= bool(_insert_all(self.table, codes, slots))
        return slots

    def find(self, probes: Probes) -> I64:
        """For each probe the last row of its key, or -1."""
        out = np.empty(len(probes.codes), dtype=np.int64)
        _find_all(self.table, probes, out)
        return out

    def codes(self, slots: I64) -> U64:
        """The codes of kept rows."""
        return tables.codes_of(self.table, slots)

    def absent_often(self, probes: Probes, rows: I64, times: int) -> tuple[I64, I64]:
        """Which probes are in `rows` so many times, in one run each, and not in the table; and how often they are."""
        found, counts = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.int64)
        count = _absent_often(self.table, probes, rows, times, found, counts)
        return found[:count], counts[:count]

    def pairs(self, last: I64) -> Iterator[tuple[I64, I64]]:
        """Every probe with every row of its key, for what `find` gave: positions of probes, and slots; some at a time."""
        if not self.repeats:
            known = np.flatnonzero(last >= 0)
            for begin in range(0, len(known), MOST_PAIRS):
                some = known[begin : begin + MOST_PAIRS]
                yield some, last[some]
            return
        room = min(int(_count_pairs(self.table, last)), MOST_PAIRS)
        probe, slot = 0, -1
        while room and probe < len(last):
            probes, slots = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
            count, probe, slot = _pair_some(self.table, last, probe, slot, probes, slots)
            yield probes[:count], slots[:count]

    def remove(self, last: I64) -> int:
        """Drop the keys known by these slots, with all their rows; gives how many rows went."""
        gone = np.empty(int(_count_pairs(self.table, last)), dtype=np.int64)
        count = int(_remove_keys(self.table, last, gone))
        self.store.free(gone[:count])
        return count


@kernel
def _insert_all(table: Table, codes: U64, slots: I64) -> bool:
    """Whether one of them has a key that was there already."""
    repeats = False
    for i in range(len(slots)):
        insert(table, codes[i], slots[i])
        repeats |= next_of(table, slots[i]) != slots[i]
    return repeats


@kernel
def _find_all(table: Table, probes: Probes, out: I64) -> None:
    # A loop each: what a probe takes is a few nanoseconds, and every question asked again is one of them.
    if table.wide != 0:
        data = probes.data.ctypes.data
        for i in range(len(probes.codes)):
            look_ahead(table, probes.codes, i)
            begin = probes.offsets[i]
            at = find(table, probes.codes[i], data + begin, probes.offsets[i + 1] - begin)
            out[i] = last_of(table, at) if at >= 0 else -1
    elif is_cached(table):
        for i in range(len(probes.codes)):
            look_near(table, probes.codes, i)
            out[i] = last_narrow(table, probes.codes[i])
    else:
        for i in range(len(probes.codes)):
            look_ahead(table, probes.codes, i)
            out[i] = last_narrow(table, probes.codes[i])


@kernel
def _absent_often(table: Table, probes: Probes, rows: I64, times: int, found: I64, counts: I64) -> int:
    data = probes.data.ctypes.data
    count, begin = 0, 0
    while begin < len(rows):
        row, end = rows[begin], begin + 1
        while end < len(rows) and rows[end] == row:
            end += 1
        if end - begin >= times:
            key, length = 0, 0
            if table.wide != 0:
                key = data + probes.offsets[row]
                length = probes.offsets[row + 1] - probes.offsets[row]
            if find(table, probes.codes[row], key, length) < 0:
                found[count] = row
                counts[count] = end - begin
                count += 1
        begin = end
    return count


@kernel
def _count_pairs(table: Table, last: I64) -> int:
    total = 0
    for i in range(len(last)):
        slot = last[i]
        while slot >= 0:
            total += 1
            slot = next_of(table, slot)
            if slot == last[i]:
                break
    return total


@kernel
def _pair_some(
    table: Table, last: I64, begin: int, before: int, probes: I64, slots: I64
) -> tuple[int, int, int]:
    """Fill the pairs, from those of probe `begin` after the row `before` on (-1: from its first); gives how many, and where to go on."""
    count = 0
    for i in range(begin, len(last)):
        slot = last[i] if before < 0 else before
        before = -1
        while slot >= 0:
            if count == len(probes):
                return count, i, slot
            slot = next_of(table, slot)
            probes[count] = i
            slots[count] = slot
            count += 1
            if slot == last[i]:
                break
    return count, len(last), -1


@kernel
def _remove_keys(table: Table, last: I64, gone: I64) -> int:
    count = 0
    for i in range(len(last)):
        at = find_slot(table, last[i])
        while True:
            first = next_of(table, last[i])
            remove_first(table, at)
            gone[count] = first
            count += 1
            if first == last[i]:
                break
    return count
