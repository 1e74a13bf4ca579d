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
from semistream.joins.choosing import choose, simple_index
from semistream.joins.pagefinder import Found, PageFinder, is_unique
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples
from semistream.joins.waiting import Waiting
from semistream.master.keys import is_in

I64 = NDArray[np.int64]
OLDEST = 1.0
_NONE = np.empty(0, dtype=np.int64)
_LOOK_AHEAD = (
    1.25  # times as many tuples as choose: enough that about as many remain when those answered have left
)


@dataclass(frozen=True)
class _Choice:
    """Waiting tuples that choose, and the pages they choose; or whose keys are nowhere."""

    chosen: I64
    complete: NDArray[np.bool_]  # which of them have all their pages among these
    pages: I64  # of the chosen, in order
    longest: I64  # where the first key alone has more than the disk buffer holds, its pages
    nowhere: I64


@dataclass
class HybridJoin:
    """The oldest tuple decides what is read. `block_pages` is b."""

    waiting: Waiting
    finder: PageFinder
    block_pages: int = 1
    parallel: int = 1
    look_up: float = OLDEST  # where in the queue those that choose are: 0 is the newest
    following: tuple[_Choice, int] | None = None  # the next iteration's, and who had left the window by then

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.waiting.stats

    @property
    def room(self) -> int:
        """Free places in the window."""
        return self.waiting.room

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
        choice = self._known_choice()
        if not self.pending:
            return
        if choice is None:
            oldest = self._oldest()
            found = self.finder.find(self.waiting.keys(oldest))
            choice = self._choice(oldest, found)
        yield from self._miss(choice.nowhere)
        if not len(choice.chosen):
            return
        if not choice.complete[0]:
            yield from self._long_key(choice.chosen[:1], choice.longest)
            return
        # LOAD the partitions using the values as an index.
        expected = self._expected(choice)
        loaded = self._load(choice.pages, then=expected.pages if expected is not None else None)
        # OUTPUT what matches; DELETE all matched tuples from H and Q.
        yield from self._answered(loaded, choice.chosen[choice.complete])
        if expected is not None:
            self.following = expected, self.waiting.window.released

    def _known_choice(self) -> _Choice | None:
        """What was expected of this iteration, if nobody left the window since but by the last one, and as many may choose."""
        following, self.following = self.following, None
        if following is None or self.look_up < OLDEST or following[1] != self.waiting.window.released:
            return None
        return following[0] if len(following[0].chosen) <= self.at_once else None

    def _oldest(self) -> I64:
        """READ the oldest join attribute values from Q."""
        window = self.waiting.window
        return (
            window.oldest(self.at_once) if self.look_up >= OLDEST else window.at(self.look_up, self.at_once)
        )

    @property
    def at_once(self) -> int:
        """How many choose: no more than the disk buffer has blocks for."""
        return max(1, min(self.parallel, self.waiting.reader.pages_at_once // self.block_pages))

    def _choice(self, oldest: I64, found: Found) -> _Choice:
        """What these tuples choose, each key once; its pages are those found for it."""
        keys = self.waiting.keys(oldest)
        order = keys.argsort()
        first = np.sort(order[keys.take(order).starts()])
        if len(first) < len(oldest):
            oldest, found = oldest[first], found.at(first)
        nowhere = found.nowhere()
        missing = oldest[nowhere]
        if len(missing):
            oldest, found = oldest[~nowhere], found.select(~nowhere)
        if not len(oldest):
            return _Choice(oldest, nowhere[:0], oldest, oldest, missing)
        complete, pages = found.blocks(self.block_pages, self.finder.pages, self.waiting.reader)
        return _Choice(oldest, complete, pages, found.pages_of(0), missing)

    def _expected(self, choice: _Choice) -> _Choice | None:
        """What the next iteration will read, when the pages of this one have answered whom they can: it is read meanwhile.

        The tuples that will be the oldest are those now behind them that none of these pages is for. Only where the index is
        in memory is it worth asking, and only at the oldest: elsewhere those that arrive meanwhile move the queue.
        """
        if self.look_up < OLDEST:
            return None
        if not self.waiting.reader.reads_ahead or self.parallel == 1 or self.finder.master.layout != "key":
            return None
        window, count = self.waiting.window, int(_LOOK_AHEAD * self.at_once)
        if window.oldest(1)[0] == choice.chosen[0]:
            oldest, codes = window.behind(int(choice.chosen[-1]), count)
        else:  # older ones have been passed over
            oldest = window.oldest(count + len(choice.chosen))
            codes = window.codes(oldest)
        if not len(oldest):
            return None
        index = simple_index(self.finder.master) if self.block_pages == 1 else None
        simple = choose(codes, index, choice.pages, self.at_once) if index is not None else None
        if simple is not None and self.waiting.reader.fitting(simple[1]) == len(simple[1]):
            chosen = oldest[simple[0]]
            if not len(chosen):
                return None
            everyone = np.ones(len(chosen), dtype=np.bool_)
            return _Choice(chosen, everyone, simple[1], _NONE, _NONE)
        found = self.finder.find(self.waiting.keys(oldest))
        stays = np.flatnonzero(~found.within(choice.pages))[: self.at_once]
        if not len(stays):
            return None
        expected = self._choice(oldest[stays], found.at(stays))
        return expected if len(expected.chosen) and expected.complete[0] else None

    def _load(self, pages: I64, then: I64 | None = None) -> Loaded:
        self.stats.advances += 1
        self.stats.pages += len(pages)
        return self.waiting.reader.load(pages, then)

    def _answered(self, loaded: Loaded, chosen: I64) -> Answers:
        if is_unique(self.finder.master):
            yield from self.waiting.match_once(loaded)
            yield from self._miss(chosen[~self.waiting.window.matched(chosen)])
            return
        rows = self.finder.complete_rows(loaded, self.waiting.keys(chosen))
        met = yield from self.waiting.match(loaded, rows)
        unmet = chosen[~self.waiting.window.matched(chosen)]
        self.waiting.answer(met)
        yield from self._miss(unmet)

    def _miss(self, chosen: I64) -> Answers:
        """Tuples of these keys met nothing in any page that could hold them."""
        if not len(chosen):
            return iter(())
        keys = self.waiting.keys(chosen)
        order = keys.argsort()
        each = chosen[order[keys.take(order).starts()]]
        return self.waiting.miss(self.waiting.window.same_key(each))

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

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:
        """Tuples wait as if they had just come."""
        snapshot.check_untouched()
        return self.offer(tuples)[1]
