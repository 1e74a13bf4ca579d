"""Index nested loop join (MESH section 2, CACHING section 3.3): the baseline.

Every tuple looks its key up through the index and reads the pages it is sent to, shared with nobody. The look-ups of as
many tuples as the disk buffer has pages for are given to the disk together, which is all the help a baseline gets; two
tuples of one key still read its page twice.

Cost: c_IO(1) + (1 + d_T) c_H + c_S + c_A + c_O + c_E per tuple.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.pagefinder import Found, PageFinder
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples
from semistream.joins.waiting import Waiting
from semistream.master.keys import is_in
from semistream.ranges import spread

I64 = NDArray[np.int64]


@dataclass
class IndexNestedLoopJoin:
    """A queue of tuples, and a look-up for each."""

    waiting: Waiting
    finder: PageFinder

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.waiting.stats

    @property
    def room(self) -> int:
        """Free places in the queue."""
        return self.waiting.room

    @property
    def pending(self) -> int:
        """How many tuples wait."""
        return self.waiting.window.waiting

    @property
    def bound(self) -> int:
        """Every advance answers at least the oldest tuple."""
        return self.pending

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Queue the tuples."""
        return iter(()), self.waiting.admit(tuples, self.room)

    def advance(self) -> Answers:
        """Look up as many of the oldest tuples as the disk buffer has room for."""
        if not self.pending:
            return
        oldest = self.waiting.window.oldest(self.waiting.reader.pages_at_once)
        keys = self.waiting.keys(oldest)
        order = keys.argsort()
        starts = keys.take(order).starts()
        distinct = self.finder.find(keys.take(order[starts]))
        found = _repeated(distinct, order, starts)
        count = self._fitting(found)
        if count == 0:
            yield from self._long(oldest[:1], found.pages_of(0))
            return
        yield from self._looked_up(
            oldest[:count], found.pages[: found.starts[count]], np.diff(found.starts[: count + 1])
        )

    def _fitting(self, found: Found) -> int:
        """How many tuples' pages fit into the disk buffer."""
        lengths = np.concatenate(
            [[0], np.cumsum(self.waiting.reader.master.index.extents(found.pages).length)]
        )
        ends = lengths[found.starts[1:]]
        return int(np.searchsorted(ends, self.waiting.reader.half_bytes, side="right"))

    def _looked_up(self, slots: I64, pages: I64, counts: I64) -> Answers:
        waiting = self.waiting
        found_slots, found_rows = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if len(pages):
            loaded = waiting.reader.load(pages)
            self.stats.advances += 1
            self.stats.pages += len(pages)
            self.stats.probes += len(slots)
            first = loaded.found.first_row
            ends = np.cumsum(counts)
            found_slots, found_rows = waiting.own_rows(loaded, slots, first[ends - counts], first[ends])
            yield from waiting.put_out(loaded, found_slots, found_rows)
            self._report(loaded, slots, found_slots, found_rows)
        yield from waiting.leave(slots, np.isin(slots, found_slots))

    def _report(self, loaded: Loaded, slots: I64, found_slots: I64, rows: I64) -> None:
        """Tell who watches how often each row was met.

        Tuples of one key have read its pages each for itself: the rows that the first of them found are reported, as
        often as there are such tuples.
        """
        if self.waiting.observer is None or not len(rows):
            return
        keys = self.waiting.keys(slots)
        order = keys.argsort()
        key_of = np.empty(len(slots), dtype=np.int64)
        key_of[order] = np.cumsum(keys.take(order).starts()) - 1
        _, first, counts = np.unique(key_of, return_index=True, return_counts=True)
        by_slot = np.argsort(slots)
        owner = by_slot[np.searchsorted(slots[by_slot], found_slots)]
        kept = first[key_of[owner]] == owner
        self.waiting.observer(loaded, np.repeat(rows[kept], counts[key_of[owner[kept]]]))

    def _long(self, slot: I64, pages: I64) -> Answers:
        """One tuple whose key's rows fill more than the disk buffer."""
        waiting = self.waiting
        key = waiting.keys(slot)
        met = False
        while len(pages):
            count = max(1, waiting.reader.fitting(pages))
            loaded = waiting.reader.load(pages[:count])
            self.stats.advances += 1
            self.stats.pages += count
            rows = np.flatnonzero(is_in(loaded.keys, key))
            yield from waiting.put_out(loaded, np.repeat(slot, len(rows)), rows)
            met = met or len(rows) > 0
            pages = pages[count:]
        yield from waiting.leave(slot, np.array([met]))

    def shed(self, count: int) -> pa.RecordBatch:
        """The oldest: they would be looked up next."""
        return self.waiting.let_go(count)

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first: they have met nothing."""
        return self.waiting.snapshot(limit)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:
        """Tuples wait as if they had just come."""
        snapshot.check_untouched()
        return self.offer(tuples)[1]


def _repeated(distinct: Found, order: I64, starts: NDArray[np.bool_]) -> Found:
    """The pages of every tuple, from those of distinct keys: tuple order[j] has the key that began last before j."""
    which = np.empty(len(order), dtype=np.int64)
    which[order] = np.cumsum(starts) - 1
    counts = np.diff(distinct.starts)[which]
    begin = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(counts, out=begin[1:])
    return Found(begin, distinct.pages[spread(distinct.starts[:-1][which], counts)])
