"""The window: stream tuples that wait for their master rows, in arrival order, removable at random.

The papers' hash table H_S and queue Q as one structure inside the budget: a record a tuple (rowstore.py), a table from
keys to tuples (table.py), and a doubly linked list through the slots that says who came first.

    slot      0     1     2     3    ...      records, codes, marks
    table     key -> first .. last            all tuples of a key, oldest first
    queue     oldest <-> ... <-> newest       before[], after[]
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
_SLOT_BYTES = 8 + 4 + 4 + 4 + 4 + 8 + 1 + 16  # code, chain, before, after, free, entered, matched, a pair
_OLDEST, _NEWEST, _FREE = 0, 1, 2


@dataclass
class Window:
    """Room for `capacity` tuples; `waiting` of it is taken."""

    store: RowStore
    table: Table
    stored_keys: KeyBytes
    codes: U64
    chain: I32
    before: I32
    after: I32
    free: I32
    entered: I64
    matched: NDArray[np.uint8]
    pair_slots: I64  # what a match found, until it is put out
    pair_rows: I64
    capacity: int
    _state: I64 = field(default_factory=lambda: np.array([-1, -1, 0], dtype=np.int64))

    @staticmethod
    def bytes_for(layout: RecordLayout, capacity: int, heap_bytes_per_tuple: float) -> int:
        """Bytes of a window of this capacity."""
        heap = (int(HEAP_SLACK * heap_bytes_per_tuple * capacity) + 1 + capacity) if layout.has_heap else 0
        return (
            (layout.stride + _SLOT_BYTES) * capacity
            + heap
            + tables.entries_for(capacity) * tables.ENTRY_BYTES
        )

    @staticmethod
    def capacity_for(layout: RecordLayout, nbytes: int, heap_bytes_per_tuple: float) -> int:
        """The most tuples whose window takes at most `nbytes`."""
        low, high = 0, max(nbytes // max(layout.stride, 1), 1)
        while low < high:
            middle = (low + high + 1) // 2
            if Window.bytes_for(layout, middle, heap_bytes_per_tuple) <= nbytes:
                low = middle
            else:
                high = middle - 1
        return low

    @staticmethod
    def allocate(
        budget: Budget,
        layout: RecordLayout,
        capacity: int,
        heap_bytes_per_tuple: float,
        *,
        wide: bool,
        who: str,
    ) -> Window:
        """A window inside the budget. For wide keys the first leaf of the layout is the key's bytes."""
        heap = int(HEAP_SLACK * heap_bytes_per_tuple * capacity) + 1
        store = RowStore.allocate(budget, "window", layout, capacity, heap, who=who)
        table = tables.allocate(budget, "window", capacity, who=who)

        def array(dtype: str) -> NDArray[np.generic]:
            return budget.array("window", capacity, dtype, who=who)

        keys = KeyBytes(store.records, layout.stride, layout.heap_at, layout.offsets[0], store.heap)
        window = Window(
            store=store,
            table=table,
            stored_keys=keys if wide else KeyBytes(store.records, 0, 0, 0, store.heap),
            codes=array("u8"),  # type: ignore[arg-type]
            chain=array("i4"),  # type: ignore[arg-type]
            before=array("i4"),  # type: ignore[arg-type]
            after=array("i4"),  # type: ignore[arg-type]
            free=array("i4"),  # type: ignore[arg-type]
            entered=array("i8"),  # type: ignore[arg-type]
            matched=array("u1"),  # type: ignore[arg-type]
            pair_slots=array("i8"),  # type: ignore[arg-type]
            pair_rows=array("i8"),  # type: ignore[arg-type]
            capacity=capacity,
        )
        window.free[:] = np.arange(capacity, dtype=np.int32)[::-1]
        window._state[_FREE] = capacity
        return window

    @property
    def waiting(self) -> int:
        """How many tuples wait."""
        return self.capacity - int(self._state[_FREE])

    @property
    def room(self) -> int:
        """How many more can wait, strings aside."""
        return int(self._state[_FREE])

    def fits(self, rows: Rows, at: I64) -> int:
        """How many of these rows, from the first on, can be admitted now."""
        count = min(self.room, len(at))
        if not self.store.layout.has_heap:
            return count
        sizes = np.cumsum(self.store.heap_bytes_of(rows, at[:count]))
        return int(np.searchsorted(sizes, self.store.heap_room, side="right"))

    def admit(self, rows: Rows, at: I64, codes: U64, *, entered: int) -> None:
        """Let the rows at positions `at` wait, in this order; `codes` are theirs and they must fit."""
        free = int(self._state[_FREE])
        slots = self.free[free - len(at) : free][::-1].astype(np.int64)
        self.store.put(rows, at, slots)
        self.entered[slots] = entered
        self.matched[slots] = 0
        self.codes[slots] = codes
        _link(
            self.table, self.stored_keys, self.chain, self.before, self.after, self._state, self.codes, slots
        )

    def match(self, probes: Probes, start: int) -> tuple[I64, I64, int]:
        """Pair master rows, from `start` on, with waiting tuples of the same key.

        Gives the slots and the rows of the pairs, valid until the next match, and the row to go on with: there is room
        for as many pairs as the window has tuples, so all tuples of one key fit.
        """
        slots, rows = self.pair_slots, self.pair_rows
        pairs, following = _match(
            self.table, self.stored_keys, self.chain, self.matched, probes, start, slots, rows
        )
        return slots[:pairs], rows[:pairs], int(following)

    def oldest(self, count: int) -> I64:
        """The slots of the oldest tuples, oldest first."""
        out = np.empty(min(count, self.waiting), dtype=np.int64)
        _walk(self.after, int(self._state[_OLDEST]), out)
        return out

    def entered_by(self, bound: int) -> I64:
        """The slots of tuples, oldest first, that entered at `bound` or before it."""
        out = np.empty(self.waiting, dtype=np.int64)
        count = _walk_until(self.after, self.entered, int(self._state[_OLDEST]), bound, out)
        return out[:count]

    def same_key(self, slots: I64) -> I64:
        """All waiting tuples that have the key of one of these, which have distinct keys."""
        out = np.empty(self.waiting, dtype=np.int64)
        count = _all_of_keys(self.table, self.stored_keys, self.chain, self.codes, slots, out)
        return out[:count]

    def release(self, slots: I64) -> None:
        """Let tuples go; of one key the oldest must come first. Slots may repeat."""
        freed = np.empty(len(slots), dtype=np.int64)
        count = _release(
            self.table,
            self.stored_keys,
            self.chain,
            self.before,
            self.after,
            self.free,
            self._state,
            self.codes,
            slots,
            freed,
        )
        self.store.free(freed[:count])

    @property
    def oldest_entered(self) -> int:
        """When the oldest tuple entered."""
        return int(self.entered[self._state[_OLDEST]])


@kernel
def _link(
    table: Table, stored: KeyBytes, chain: I32, before: I32, after: I32, state: I64, codes: U64, slots: I64
) -> None:
    for slot in slots:
        insert(table, stored, chain, codes[slot], slot)
        before[slot] = state[1]
        after[slot] = -1
        if state[1] >= 0:
            after[state[1]] = slot
        else:
            state[0] = slot
        state[1] = slot
    state[2] -= len(slots)


@kernel
def _match(
    table: Table,
    stored: KeyBytes,
    chain: I32,
    matched: NDArray[np.uint8],
    probes: Probes,
    start: int,
    slots: I64,
    rows: I64,
) -> tuple[int, int]:
    pairs = 0
    for row in range(start, len(probes.codes)):
        begin, length = 0, 0
        if stored.stride:
            begin = probes.offsets[row]
            length = probes.offsets[row + 1] - begin
        at = find(table, stored, probes.codes[row], probes.data, begin, length)
        if at < 0:
            continue
        if pairs + table.tally[at] > len(slots):
            return pairs, row
        slot = table.first[at]
        while slot >= 0:
            slots[pairs] = slot
            rows[pairs] = row
            matched[slot] = 1
            pairs += 1
            slot = chain[slot]
    return pairs, len(probes.codes)


@kernel
def _walk(after: I32, slot: int, out: I64) -> None:
    for i in range(len(out)):
        out[i] = slot
        slot = after[slot]


@kernel
def _walk_until(after: I32, entered: I64, slot: int, bound: int, out: I64) -> int:
    count = 0
    while slot >= 0 and entered[slot] <= bound:
        out[count] = slot
        count += 1
        slot = after[slot]
    return count


@kernel
def _all_of_keys(table: Table, stored: KeyBytes, chain: I32, codes: U64, slots: I64, out: I64) -> int:
    count = 0
    for i in range(len(slots)):
        at = find_slot(table, stored, codes[slots[i]], slots[i])
        slot = table.first[at]
        while slot >= 0:
            out[count] = slot
            count += 1
            slot = chain[slot]
    return count


@kernel
def _release(
    table: Table,
    stored: KeyBytes,
    chain: I32,
    before: I32,
    after: I32,
    free: I32,
    state: I64,
    codes: U64,
    slots: I64,
    freed: I64,
) -> int:
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        at = find_slot(table, stored, codes[slot], slot)
        if at < 0 or table.first[at] != slot:
            continue  # gone already: it matched several rows
        remove_first(table, chain, at)
        if before[slot] >= 0:
            after[before[slot]] = after[slot]
        else:
            state[0] = after[slot]
        if after[slot] >= 0:
            before[after[slot]] = before[slot]
        else:
            state[1] = before[slot]
        free[state[2]] = slot
        state[2] += 1
        freed[count] = slot
        count += 1
    return count
