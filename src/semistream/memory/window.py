"""The window: stream tuples that wait for their master rows, in arrival order, removable at random.

The papers' hash table H_S and queue Q as one structure inside the budget: a record a tuple (rowstore.py), a table from
keys to tuples (table.py), and a doubly linked list through the slots that says who came first.

    record    | code | chain | before | after | flags | the tuple |       a slot each
    table     key -> first .. last            all tuples of a key, oldest first
    queue     oldest <-> .. border <-> .. newest    before and after; those behind the border are flagged young
    filter    eight bits a tuple              clear where no waiting tuple can have a key: small enough for the cache
    pairs     slot, row                       what a match found, until it is put out

The loops over these are in windowkernels.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.memory import table as tables
from semistream.memory import windowkernels as kernels
from semistream.memory.budget import Budget, capacity_within
from semistream.memory.leaves import Leaf, Rows
from semistream.memory.rowstore import RecordLayout, RowStore, string_bytes
from semistream.memory.table import Probes, Table

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_PAIRS = 1 << 14  # put out at a time; a small window has no more than it has tuples
_PAIR_BYTES = 16
_SPARE, _SPARE_BYTES = 1 << 13, 4  # places left lately that are known one by one: the next tuples take them
_SPARE_FROM = 1 << 16  # places: a smaller window stays in the cache
_FILTER_BITS = 8  # a tuple, two of them set: one in twenty keys that nobody waits for passes
_STALE = 4  # the filter is made anew when one in so many places was left since: bits are only ever set


@dataclass
class Window:
    """Room for `capacity` tuples; `waiting` of it is taken."""

    store: RowStore
    table: Table
    pair_slots: I64
    pair_rows: I64
    filter: I64
    capacity: int
    left: int = 0  # since the filter was made
    released: int = 0  # ever
    _ends: I64 = field(default_factory=kernels.no_ends)

    @staticmethod
    def layout(leaves: Sequence[Leaf]) -> RecordLayout:
        """The records of tuples of these leaves."""
        return RecordLayout.of(leaves, kernels.HEADER_BYTES)

    @staticmethod
    def bytes_for(layout: RecordLayout, capacity: int, heap_bytes_per_tuple: float) -> int:
        """Bytes of a window of this capacity."""
        return (
            layout.bytes_for(capacity, heap_bytes_per_tuple)
            + tables.bytes_for(capacity)
            + min(capacity, _PAIRS) * _PAIR_BYTES
            + _spare_places(capacity) * _SPARE_BYTES
            + _filter_words(capacity) * 8
        )

    @staticmethod
    def capacity_for(layout: RecordLayout, nbytes: int, heap_bytes_per_tuple: float) -> int:
        """The most tuples whose window takes at most `nbytes`."""
        return capacity_within(nbytes, lambda slots: Window.bytes_for(layout, slots, heap_bytes_per_tuple))

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
        store = RowStore.allocate(budget, "window", layout, capacity, heap_bytes_per_tuple, who=who)
        pairs = min(capacity, _PAIRS)
        return Window(
            store=store,
            table=tables.allocate(
                budget, "window", store, capacity, wide=wide, who=who, spare=_spare_places(capacity)
            ),
            pair_slots=budget.array("window", pairs, "i8", who=who),  # type: ignore[arg-type]
            pair_rows=budget.array("window", pairs, "i8", who=who),  # type: ignore[arg-type]
            filter=budget.array("window", _filter_words(capacity), "i8", who=who),  # type: ignore[arg-type]
            capacity=capacity,
        )

    @property
    def waiting(self) -> int:
        """How many tuples wait."""
        return self.capacity - self.room

    @property
    def room(self) -> int:
        """How many more can wait, strings aside."""
        return int(self.table.state[tables.FREE])

    def codes(self, slots: I64) -> U64:
        """The codes of tuples."""
        return tables.codes_of(self.table, slots)

    def matched(self, slots: I64) -> NDArray[np.bool_]:
        """Which tuples have met a row."""
        out = np.empty(len(slots), dtype=np.bool_)
        kernels.get_matched(self.table, slots, out)
        return out

    def mark(self, slots: I64, matched: NDArray[np.bool_]) -> None:
        """Say which tuples have met a row."""
        kernels.set_matched(self.table, slots, matched)

    def fits(self, rows: Rows, at: I64) -> int:
        """How many of these rows, from the first on, can be admitted now."""
        count = min(self.room, len(at))
        if not self.store.layout.has_heap:
            return count
        sizes = np.cumsum(string_bytes(rows, at[:count]))
        return int(np.searchsorted(sizes, self.store.heap_room, side="right"))

    def admit(self, rows: Rows, at: I64, codes: U64) -> I64:
        """Let the rows at positions `at` wait, in this order; `codes` are theirs and they must fit. Gives their slots."""
        slots = tables.take_free(self.table, len(at))
        self.store.put(rows, at, slots)
        kernels.link(self.table, self.filter, self._ends, codes, slots)
        return slots

    def match(
        self, probes: Probes, start: tuple[int, int], *, mark: bool = True
    ) -> tuple[I64, I64, tuple[int, int]]:
        """Pair master rows with waiting tuples of the same key, and mark these as matched.

        Starts with a row, and with so many of the tuples of its key done already. Gives the slots and the rows of the
        pairs, valid until the next match, and where to go on; the row past the last when all is done.
        """
        pairs, row, done = kernels.match(
            self.table,
            self.filter,
            probes,
            start[0],
            start[1],
            1 if mark else 0,
            self.pair_slots,
            self.pair_rows,
        )
        return self.pair_slots[:pairs], self.pair_rows[:pairs], (int(row), int(done))

    def take_out(self, probes: Probes, start: int) -> tuple[I64, I64, int]:
        """Pair master rows with waiting tuples of the same key, who leave: no other row is for them.

        What they came with stays readable until tuples are admitted again. Gives the pairs, valid until the next match, and the
        row to go on with; the one past the last when all is done.
        """
        pairs, row = kernels.take_out(
            self.table, self.filter, self._ends, probes, start, self.pair_slots, self.pair_rows
        )
        self._freed(self.pair_slots[:pairs])
        return self.pair_slots[:pairs], self.pair_rows[:pairs], int(row)

    def oldest(self, count: int) -> I64:
        """The slots of the oldest tuples, oldest first."""
        out = np.empty(min(count, self.waiting), dtype=np.int64)
        kernels.walk(self.table, int(self._ends[kernels.OLDEST]), out)
        return out

    def behind(self, slot: int, count: int) -> tuple[I64, U64]:
        """The tuples that came next after a waiting one, oldest first, and their codes."""
        slots, codes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint64)
        found = kernels.walk_behind(self.table, slot, slots, codes)
        return slots[:found], codes[:found]

    def at(self, position: float, count: int) -> I64:
        """The slots of the tuple at a position of the queue, 0 the newest and 1 the oldest, and of those before it.

        The border stays where it is asked for, so that finding it again takes as long as it has moved.
        """
        count = min(count, self.waiting)
        kernels.move_border(self.table, self._ends, min(int(position * self.waiting), self.waiting - count))
        out = np.empty(count, dtype=np.int64)
        kernels.walk_back(self.table, int(self._ends[kernels.BORDER]), out)
        return out

    def same_key(self, slots: I64) -> I64:
        """All waiting tuples that have the key of one of these, which have distinct keys."""
        out = np.empty(self.waiting, dtype=np.int64)
        count = kernels.all_of_keys(self.table, slots, out)
        return out[:count]

    def release(self, slots: I64) -> None:
        """Let tuples go; of one key the oldest must come first. Slots may repeat."""
        freed = np.empty(len(slots), dtype=np.int64)
        count = kernels.release(self.table, self._ends, slots, freed)
        self._freed(freed[:count])

    def _freed(self, slots: I64) -> None:
        self.store.free(slots)
        self.left += len(slots)
        self.released += len(slots)
        if self.left * _STALE > self.capacity:
            kernels.fill_filter(self.table, self.filter)
            self.left = 0


def _spare_places(capacity: int) -> int:
    return _SPARE if capacity >= _SPARE_FROM else 0


def _filter_words(capacity: int) -> int:
    return _FILTER_BITS * capacity // 64 + 1
