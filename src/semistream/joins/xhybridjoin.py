"""X-HYBRIDJOIN (X-HYBRID, section 4).

HYBRIDJOIN with a second part of the disk buffer that is never swapped: the most popular pages of the master, read once.
Each iteration first joins the pinned rows with the window, then the partition that the oldest tuple left chooses.

The master should be in layout "frequency", whose first pages are the most popular ones; the sizes of both parts are free
(the paper's untuned form makes them equal).

Cost of an iteration: c_IO(k) + (k_T + l_T) c_H + w (c_O + c_E + c_S + c_A) (eq. 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples


@dataclass
class XHybridJoin:
    """Pinned pages before a HYBRIDJOIN."""

    hybrid: HybridJoin
    pinned: Loaded | None

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.hybrid.stats

    @property
    def room(self) -> int:
        """Free places in the window."""
        return self.hybrid.room

    @property
    def pending(self) -> int:
        """How many tuples wait."""
        return self.hybrid.pending

    @property
    def bound(self) -> int:
        """That of HYBRIDJOIN."""
        return self.hybrid.bound

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Lines 4 to 7: fill the window."""
        return self.hybrid.offer(tuples)

    def advance(self) -> Answers:
        """Lines 8 to 23: the pinned rows, then the partition that the oldest tuple chooses."""
        yield from self._pinned()
        yield from self.hybrid.advance()

    def _pinned(self) -> Answers:
        waiting = self.hybrid.waiting
        if self.pinned is None or not waiting.window.waiting:
            return
        nobody = waiting.keys(np.empty(0, dtype=np.int64))
        met = yield from waiting.match(self.pinned, self.hybrid.finder.complete_rows(self.pinned, nobody))
        before = self.stats.answered
        waiting.answer(met)
        self.stats.front_hits += self.stats.answered - before

    def shed(self, count: int) -> pa.RecordBatch:
        """Those that wait behind."""
        return self.hybrid.shed(count)

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first."""
        return self.hybrid.snapshot(limit)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:
        """They go on waiting behind."""
        return self.hybrid.restore(tuples, snapshot)
