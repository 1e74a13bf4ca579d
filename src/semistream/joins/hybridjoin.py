"""HYBRIDJOIN (X-HYBRID, section 3).

The oldest waiting tuple chooses the partition of the master that is read next, through the index; every waiting tuple
that the partition answers leaves, wherever it is in the queue. Pages that nobody waits for are never read.

Where we deviate: a partition is a block of b pages, extended where a key's rows go on beyond it, so keys may repeat; a tuple
whose key is in none of its pages leaves as a miss at once; and with `parallel` > 1 the oldest tuples of several
blocks choose together, so that a device with a queue has something to do. `parallel` = 1 is the paper's. While tuples
are shed, which are the oldest, others choose: those at a position of the queue (CACHING section 5.3.1).

Cost of an iteration: c_IO(v_P) + d_T c_H + w (c_O + c_E + c_S + c_A) for the w tuples it answers (X-HYBRID eq. 2, without the
non-swappable part).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.pagefinder import PageFinder
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples
from semistream.joins.waiting import Waiting
from semistream.master.keys import is_in

I64 = NDArray[np.int64]
OLDEST = 1.0
_LOOK_AHEAD = 3  # times as many tuples as choose: enough that as many remain when those answered have left


@dataclass
class HybridJoin:
    """The oldest tuple decides what is read. `block_pages` is b."""

    waiting: Waiting
    finder: PageFinder
    block_pages: int = 1
    parallel: int = 1
    look_up: float = OLDEST  # where in the queue those that choose are: 0 is the newest

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.waiting.stats

    @property
    def room(self) -> int:
        """Free places in the window."""
        return self.waiting.window.room

    @property
    def pending(self) -> int:
        """How many tuples wait."""
        return self.waiting.window.waiting

    @property
    def bound(self) -> int:
        """Every advance answers at least one tuple: the oldest, or the one at the position that chooses."""
        return self.pending

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Fill the free places of the window."""
        return iter(()), self.waiting.admit(tuples, self.room)

    def advance(self) -> Answers:
        """One iteration: the oldest choose, their blocks are read, all that match leave."""
        if not self.pending:
            return
        # READ the oldest join attribute values from Q.
        window = self.waiting.window
        chosen = (
            window.oldest(self.parallel) if self.look_up >= OLDEST else window.at(self.look_up, self.parallel)
        )
        oldest = self._of_each_key(chosen)
        found = self.finder.find(self.waiting.keys(oldest))
        nowhere = found.nowhere()
        yield from self._miss(oldest[nowhere])
        oldest, found = oldest[~nowhere], found.select(~nowhere)
        if not len(oldest):
            return
        complete, pages = found.blocks(self.block_pages, self.finder.pages, self.waiting.reader)
        if not complete[0]:
            yield from self._long_key(oldest[:1], found.pages_of(0))
            return
        # LOAD the partitions using the values as an index.
        loaded = self._load(pages, then=self._expected(pages))
        # OUTPUT what matches; DELETE all matched tuples from H and Q.
        yield from self._answered(loaded, oldest[complete])

    def _of_each_key(self, oldest: I64) -> I64:
        """Of each key the first of these tuples."""
        keys = self.waiting.keys(oldest)
        order = keys.argsort()
        return oldest[np.sort(order[keys.take(order).starts()])]

    def _expected(self, pages: I64) -> I64 | None:
        """What the next iteration will read, if these pages answer whom they can: it may be read meanwhile.

        The tuples that will be the oldest are those now behind them that none of these pages is for. Only where the index is
        in memory is it worth asking, and only at the oldest: elsewhere those that arrive meanwhile move the queue.
        """
        if self.look_up < OLDEST:
            return None
        if not self.waiting.reader.reads_ahead or self.parallel == 1 or self.finder.master.layout != "key":
            return None
        oldest = self.waiting.window.oldest(_LOOK_AHEAD * self.parallel)
        found = self.finder.find(self.waiting.keys(oldest))
        tuples = np.repeat(np.arange(len(oldest)), np.diff(found.starts))
        stays = np.ones(len(oldest), dtype=np.bool_)
        stays[tuples[np.isin(found.pages, pages)]] = False
        oldest = self._of_each_key(oldest[stays][: self.parallel])
        found = self.finder.find(self.waiting.keys(oldest))
        found = found.select(~found.nowhere())
        if not len(found.pages):
            return None
        complete, following = found.blocks(self.block_pages, self.finder.pages, self.waiting.reader)
        return following if complete[0] else None

    def _load(self, pages: I64, then: I64 | None = None) -> Loaded:
        self.stats.advances += 1
        self.stats.pages += len(pages)
        return self.waiting.reader.load(pages, then)

    def _answered(self, loaded: Loaded, chosen: I64) -> Answers:
        rows = self.finder.complete_rows(loaded, self.waiting.keys(chosen))
        met = yield from self.waiting.match(loaded, rows)
        unmet = chosen[~self.waiting.window.matched(chosen)]
        self.waiting.answer(met)
        yield from self._miss(unmet)

    def _miss(self, chosen: I64) -> Answers:
        """Tuples of these keys met nothing in any page that could hold them."""
        return self.waiting.miss(self.waiting.window.same_key(chosen)) if len(chosen) else iter(())

    def _long_key(self, chosen: I64, pages: I64) -> Answers:
        """A key whose rows fill more than the disk buffer: its pages are read in turns, for its tuples alone."""
        key = self.waiting.keys(chosen)
        tuples = self.waiting.window.same_key(chosen)
        while len(pages):
            count = max(1, self.waiting.reader.fitting(pages))
            loaded = self._load(pages[:count])
            yield from self.waiting.match(loaded, np.flatnonzero(is_in(loaded.keys, key)))
            pages = pages[count:]
        if self.waiting.window.matched(chosen).all():
            self.waiting.answer(tuples)
        else:
            yield from self.waiting.miss(tuples)

    def shed(self, count: int) -> pa.RecordBatch:
        """The oldest: no partition that was read since they came was for them."""
        return self.waiting.let_go(count)

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first: they have met nothing."""
        return self.waiting.snapshot(limit)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:  # noqa: ARG002 - they have met nothing
        """Tuples wait as if they had just come."""
        return self.offer(tuples)[1]
