"""What the joins that let tuples wait have in common: admitting, matching, answering, letting go."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.joins.base import Answers, JoinStats, Observer, Snapshot
from semistream.joins.condition import PAIRS_AT_ONCE, Between, in_ranges
from semistream.joins.met import MetRows, MetTuples
from semistream.joins.reader import Loaded, MasterReader
from semistream.joins.sides import JoinShape, Tuples
from semistream.master.keys import Keys, NarrowKeys, WideKeys, pairwise_equal
from semistream.memory.budget import Budget
from semistream.memory.rowstore import string_bytes
from semistream.memory.table import Probes
from semistream.memory.window import Window
from semistream.ranges import spread

I64 = NDArray[np.int64]
_LONGER = 1.5  # times: strings so much longer than expected are worth another division of the window
AT_ONCE = 1 << 15  # tuples that leave together: bounds the memory of what is put out
_NOBODY = np.empty(0, dtype=np.int64)


@dataclass
class Waiting:
    """The window of a join and everything that goes in and out of it."""

    shape: JoinShape
    reader: MasterReader
    window: Window
    stats: JoinStats
    window_bytes: int
    first_heap_bytes: float  # that the window was made for, of the strings of a tuple
    heap_bytes: float  # that it is made for now
    observer: Observer | None = None
    wanted_heap_bytes: float | None = None  # once strings turn out longer or shorter: who waits leaves first

    @staticmethod
    def open(
        shape: JoinShape,
        reader: MasterReader,
        budget: Budget,
        stats: JoinStats,
        *,
        heap_bytes: float,
        who: str,
    ) -> Waiting:
        """Give all that is left of the budget to the window."""
        layout, nbytes = Window.layout(shape.window_leaves), max(budget.left_bytes, 0)
        capacity = Window.capacity_for(layout, nbytes, heap_bytes)
        window = Window.allocate(budget, layout, max(capacity, 1), heap_bytes, wide=shape.wide, who=who)
        return Waiting(shape, reader, window, stats, nbytes, heap_bytes, heap_bytes)

    @property
    def room(self) -> int:
        """Free places; none as long as somebody waits in a window that is to be divided anew."""
        return 0 if self.wanted_heap_bytes is not None and self.window.waiting else self.window.room

    def admit(self, tuples: Tuples, most: int) -> int:
        """Let tuples wait, from the first on, as many as there is room for; give how many."""
        at = tuples.at[:most]
        if len(at) and (self.wanted_heap_bytes is not None or self.heap_bytes != self.first_heap_bytes):
            self._divide_if_wanted(tuples, at)
        count = self.window.fits(tuples.rows, at)
        if count < min(len(at), self.window.room):
            count = self._longer_strings(tuples, at, count)
        if not count and most > 0 and len(at) and not self.window.waiting:
            raise InvalidInputError(
                "a stream tuple in the window",
                found=f"one of {string_bytes(tuples.rows, at[:1])[0]:,} bytes of strings",
                hint="Raise memory=: the empty window has no room for it.",
            )
        if count:
            self.window.admit(tuples.rows, at[:count], tuples.codes[:count])
            self.stats.admitted += count
        return count

    def _longer_strings(self, tuples: Tuples, at: I64, count: int) -> int:
        """The window is out of bytes, not of places: divide it anew, at once or when it is empty; how many fit then."""
        wanted = typical_bytes(string_bytes(tuples.rows, at))
        waiting = self.window.waiting
        is_stuck = not waiting and not count
        if is_stuck or (wanted > _LONGER * self.heap_bytes and waiting + count < self.window.capacity // 4):
            self.wanted_heap_bytes = max(wanted, self.wanted_heap_bytes or 0.0)
            self._divide_if_wanted(tuples, at, least=count)
        return self.window.fits(tuples.rows, at)

    def _divide_if_wanted(self, tuples: Tuples, at: I64, least: int = 0) -> None:
        """Divide the window for what comes now, once it is empty; not where fewer than `least` of these would fit then."""
        sizes = string_bytes(tuples.rows, at)
        if self.wanted_heap_bytes is None:  # it was divided for longer strings than come now
            shorter = max(typical_bytes(sizes), self.first_heap_bytes)
            if self.heap_bytes <= _LONGER * shorter:
                return
            self.wanted_heap_bytes = shorter
        if self.window.waiting:
            return
        heap_bytes, self.wanted_heap_bytes = self.wanted_heap_bytes, None
        layout, released = self.window.store.layout, self.window.released
        capacity, heap_bytes = self._division(heap_bytes, int(sizes[0]))
        fitting = int(
            np.searchsorted(np.cumsum(sizes), layout.heap_bytes(capacity, heap_bytes), side="right")
        )
        if not capacity or min(fitting, capacity) < least:
            return
        budget, self.heap_bytes = Budget(self.window_bytes), heap_bytes
        del self.window  # its memory is needed
        self.window = Window.allocate(
            budget, layout, capacity, heap_bytes, wide=self.shape.wide, who="a window divided anew"
        )
        self.window.released = released
        self.stats.used["window"] = budget.taken["window"]

    def _division(self, heap_bytes: float, longest: int) -> tuple[int, float]:
        """Places and bytes for each within the window's memory, so that a string of this length fits; no place if none does."""
        layout = self.window.store.layout
        while capacity := Window.capacity_for(layout, self.window_bytes, heap_bytes):
            if layout.heap_bytes(capacity, heap_bytes) >= longest:
                return capacity, heap_bytes
            heap_bytes *= _LONGER
        alone = layout.for_one_of(longest)
        return Window.capacity_for(layout, self.window_bytes, alone), alone

    def match(self, loaded: Loaded, rows: I64 | None = None) -> Generator[pa.RecordBatch, None, I64]:
        """Join loaded rows, or some of them, with the waiting tuples.

        Gives the output and, at its end, the slots of the tuples that met something: of one key oldest first, perhaps
        repeated.
        """
        met, joined = MetTuples(), MetRows()
        for slots, found in self._pairs(loaded, rows):
            met.add((yield from self.put_out(loaded, slots, found)))
            if self.observer is not None:
                joined.add(found)
        if (
            self.observer is not None and met.parts
        ):  # told once, of all: it must see every row of a key together
            self.observer(loaded, joined.rows())
        return met.slots()

    def match_once(self, loaded: Loaded) -> Answers:
        """Join loaded rows with the waiting tuples, who leave: no key has another row anywhere."""
        joined = MetRows()
        probes, row = loaded.probes, 0
        self.stats.probes += len(probes.codes)
        while row < len(probes.codes):
            slots, found, row = self.window.take_out(probes, row)
            if len(slots):
                self.stats.answered += len(slots)
                if self.observer is not None:
                    joined.add(found)
                yield from self.put_out(loaded, slots, found)
        if self.observer is not None and joined.parts:
            self.observer(loaded, joined.rows())

    def _pairs(self, loaded: Loaded, rows: I64 | None) -> Iterator[tuple[I64, I64]]:
        """Candidates: slots and loaded rows, some at a time, valid until the next ones."""
        condition = self.shape.condition
        if not self.shape.is_keyed and isinstance(condition, Between):
            yield from self._in_ranges(loaded, condition)
            return
        probes = loaded.probes
        if not self.shape.is_keyed:
            probes = Probes(np.zeros(loaded.found.rows, dtype=np.uint64), probes.offsets, probes.data)
        elif rows is not None:
            probes = _some(probes, rows, wide=self.shape.wide)
        self.stats.probes += len(probes.codes)
        following = (0, 0)
        while following[0] < len(probes.codes):
            slots, found, following = self.window.match(probes, following, mark=condition is None)
            if len(slots):
                yield slots, found if rows is None else rows[found]

    def _in_ranges(self, loaded: Loaded, condition: Between) -> Iterator[tuple[I64, I64]]:
        """Each loaded row with the tuples in its range: found in the window's values, sorted."""
        slots = self.window.oldest(self.window.capacity)
        everything = np.arange(loaded.found.rows, dtype=np.int64)
        tuples = self.shape.tuples_of(self.window.store.get(slots))
        master = dict(
            zip(
                self.shape.master_output.names,
                loaded.rows(everything).columns(self.shape.master_builders),
                strict=True,
            )
        )
        order, first, last = in_ranges(
            tuples.column(condition.stream), master[condition.low], master[condition.high]
        )
        self.stats.probes += len(everything)
        counts = last - first
        ends = np.cumsum(counts)
        for start in range(0, int(ends[-1]) if len(ends) else 0, PAIRS_AT_ONCE):
            pair = np.arange(start, min(start + PAIRS_AT_ONCE, int(ends[-1])))
            row = np.searchsorted(ends, pair, side="right")
            yield slots[order[first[row] + pair - (ends[row] - counts[row])]], row

    def own_rows(self, loaded: Loaded, slots: I64, first: I64, last: I64) -> tuple[I64, I64]:
        """Pair each tuple with the rows first .. last that have its key, and with no others."""
        counts = last - first
        rows = spread(first, counts)
        owner = np.repeat(np.arange(len(slots)), counts)
        keys = self.keys(slots)
        self.stats.probes += len(rows)
        hit = np.flatnonzero(loaded.probes.codes[rows] == self.window.codes(slots)[owner])
        if self.shape.wide:
            hit = hit[pairwise_equal(keys.take(owner[hit]), loaded.keys.take(rows[hit]))]
        return slots[owner[hit]], rows[hit]

    def put_out(self, loaded: Loaded, slots: I64, rows: I64) -> Generator[pa.RecordBatch, None, I64]:
        """Join tuples with loaded rows, side by side; at the end, the slots of those that passed the condition."""
        met: list[I64] = []
        for batch, passed in self.shape.joined(
            lambda part, most: self.window.store.get(slots[part], most),
            lambda part, most: loaded.rows(rows[part], most),
            len(slots),
        ):
            if passed is not None:
                met.append(slots[passed])
            self.stats.rows += len(batch)
            yield batch
        if self.shape.condition is None:
            return slots.copy()
        kept = np.concatenate(met) if met else _NOBODY
        self.window.mark(kept, np.ones(len(kept), dtype=np.bool_))
        return kept

    def answer(self, slots: I64) -> None:
        """Tuples that met all they can meet leave; slots may repeat, and of one key come oldest first."""
        before = self.window.waiting
        self.window.release(slots)
        self.stats.answered += before - self.window.waiting

    def leave(self, slots: I64, met: NDArray[np.bool_]) -> Answers:
        """Tuples that are done leave, of one key oldest first; those that met nothing are put out as misses."""
        missed = self.shape.missed(lambda: self.shape.tuples_of(self.window.store.get(slots[~met])))
        self.stats.misses += int(np.count_nonzero(~met))
        if missed is not None:
            self.stats.rows += len(missed)
            yield missed
        self.answer(slots)

    def miss(self, slots: I64) -> Answers:
        """Tuples that met nothing leave, some at a time."""
        for start in range(0, len(slots), AT_ONCE):
            some = slots[start : start + AT_ONCE]
            yield from self.leave(some, np.zeros(len(some), dtype=np.bool_))

    def let_go(self, count: int) -> pa.RecordBatch:
        """Tuples leave unanswered, the oldest first, as they came."""
        slots = self.window.oldest(min(count, AT_ONCE))
        tuples = self.shape.tuples_of(self.window.store.get(slots))
        self.window.release(slots)
        return tuples

    def keys(self, slots: I64) -> Keys:
        """The keys of waiting tuples."""
        if not self.shape.wide:
            return NarrowKeys(self.window.codes(slots))
        return self.window.store.get(slots).key()

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first, as if they had met nothing."""
        oldest = self.window.oldest(self.window.capacity if limit is None else limit)
        return Snapshot.untouched(
            self.shape.tuples_of(self.window.store.get(oldest)), self.reader.master.version
        )


def typical_bytes(sizes: I64) -> float:
    """What the strings of a tuple take, a little more: the next may have longer ones."""
    return 1.1 * float(sizes.mean()) + 1


def _some(probes: Probes, rows: I64, *, wide: bool) -> Probes:
    if not wide:
        return Probes(probes.codes[rows], probes.offsets, probes.data)
    keys = WideKeys(probes.offsets, probes.data).take(rows)
    return Probes(probes.codes[rows], keys.offsets, keys.data)
