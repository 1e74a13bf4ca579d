"""MESHJOIN (MESH, section 3).

The master is scanned in a cycle through a disk buffer of b pages, and every page meets all waiting tuples at once: one
sequential read is shared by the whole window. A tuple leaves when it has met every page exactly once, whatever page
was current when it came. No index is needed, and keys may repeat on both sides.

Where we deviate: the paper takes b to divide the number of pages and lets w tuples in per iteration. Here each tuple
remembers how many pages had been read when it came, and a read is cut short where the oldest tuple has met them all; so
b need not divide anything, and w and b may change at any time without a match lost or doubled.

Cost of an iteration: c_IO(b) + w (c_E + c_S + c_A) + b (v_P / v_R) c_H + sigma b (v_P / v_R) c_O for w tuples (eq. 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.base import Answers, JoinStats
from semistream.joins.sides import Tuples
from semistream.joins.waiting import Waiting


@dataclass
class MeshJoin:
    """The cyclic scan. `per_step` is w: tuples let in per iteration; None lets in what there is room for."""

    waiting: Waiting
    per_step: int | None = None
    position: int = 0  # the next page to be read
    read: int = 0  # pages read since the beginning
    taken: int = 0  # tuples let in since the last advance

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.waiting.stats

    @property
    def pages(self) -> int:
        """N_R."""
        return self.waiting.reader.master.pages

    @property
    def room(self) -> int:
        """Free places, but no more than are let in per iteration."""
        free = self.waiting.window.room
        return free if self.per_step is None else max(0, min(free, self.per_step - self.taken))

    @property
    def pending(self) -> int:
        """How many tuples wait."""
        return self.waiting.window.waiting

    @property
    def bound(self) -> int:
        """A cycle; every tuple may cut one read into two."""
        return self.pages + 1 if self.pending else 0

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Lines 7 and 8: add tuples to the window; nothing is answered before a page is read."""
        count = self.waiting.admit(tuples, self.room, entered=self.read)
        self.taken += count
        return [], count

    def advance(self) -> Answers:
        """One iteration: read up to b pages, join them with the window, let go who has met them all."""
        self.taken = 0
        if not self.pending:
            return []
        waiting = self.waiting
        if not self.pages:
            return waiting.miss(waiting.window.oldest(self.pending))
        # Line 2: read b pages, but none that the oldest tuple has met, and none over the master's end.
        left = self.pages - (self.read - waiting.window.oldest_entered)
        count = min(waiting.reader.pages_at_once, left, self.pages - self.position)
        pages = np.arange(self.position, self.position + count, dtype=np.int64)
        pages = pages[: max(1, waiting.reader.fitting(pages))]
        loaded = waiting.reader.load(pages)
        self.stats.advances += 1
        self.stats.pages += len(pages)
        # Lines 9 and 10: join the pages' rows with the window.
        answers, _ = waiting.match(loaded)
        self.position = (self.position + len(pages)) % self.pages
        self.read += len(pages)
        # Lines 3 to 6: the oldest have met every page; those that met nothing are misses.
        done = waiting.window.entered_by(self.read - self.pages)
        met = waiting.window.matched[done] != 0
        return answers + self._leave(done, met)

    def _leave(self, done: np.typing.NDArray[np.int64], met: np.typing.NDArray[np.bool_]) -> Answers:
        missed = self.waiting.shape.missed(
            self.waiting.shape.tuples_of(self.waiting.window.store.get(done[~met]))
        )
        self.stats.misses += int((~met).sum())
        self.stats.rows += len(missed) if missed is not None else 0
        # Oldest first, met or not: tuples of one key leave in the order they came.
        self.waiting.answer(done)
        return [missed] if missed is not None else []

    def snapshot(self) -> pa.RecordBatch:
        """The waiting tuples, oldest first.

        A tuple that has met some of its pages has some of its rows out already: resuming needs `position` and what each
        tuple has met as well, or a window drained first.
        """
        return self.waiting.snapshot()
