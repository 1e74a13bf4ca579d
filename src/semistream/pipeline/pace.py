"""How much a held join may read in one micro-batch.

A scan reads its share of the master and stops; whoever has waited `max_delay` is finished whatever that takes. A join that looks
rows up reads for tuples that would be late otherwise, and for others only when its window is full: until then further tuples may
come for the same pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from semistream.joins.base import Join
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.opening import innermost
from semistream.joins.waiting import Waiting
from semistream.pipeline.waiting import ENTERED

EVERYBODY = (1 << 63) - 1


@dataclass
class Pace:
    """The pace of one join in one micro-batch."""

    join: Join
    due_us: int  # who entered then or before is to be finished
    parallel: int
    share: float  # of the pages, for a scan
    _begun_at: int = 0

    @staticmethod
    def of(join: Join, *, due_us: int, share: float, parallel: int, part: tuple[int, int] | None) -> Pace:
        """Of a join in which nobody waits."""
        scan = innermost(join)
        if isinstance(scan, MeshJoin):
            scan.restart(None)  # what a micro-batch brings is let in as far as there is room
            scan.part = part
        return Pace(join, due_us, parallel, share)

    def begin(self) -> None:
        """Count from here: who waited before has been let in again."""
        scan = innermost(self.join)
        self._begun_at = scan.read if isinstance(scan, MeshJoin) else 0

    def may_read(self, *, full: bool) -> bool:
        """Whether the join may do one more access; it is set up so that this one does not go too far."""
        behind, late = innermost(self.join), self._late()
        if isinstance(behind, MeshJoin):
            budget = max(1, math.ceil(behind.pages * self.share - 1e-6))
            behind.most = None if late else max(0, budget - (behind.read - self._begun_at))
            return behind.most is None or behind.most > 0
        if isinstance(behind, HybridJoin):
            behind.parallel = min(self.parallel, late) if late else self.parallel
        return full or late > 0

    def _late(self) -> int:
        """How many of the oldest tuples are to be finished."""
        if not self.join.pending:
            return 0
        entered = self.join.snapshot(self.parallel).tuples.column(ENTERED).to_numpy()
        return int(np.count_nonzero(entered <= self.due_us))


def let_go(join: Join) -> None:
    """Empty a join whose waiting tuples have been written down, so that it can be used again."""
    behind = innermost(join)
    waiting = getattr(behind, "waiting", None)
    if isinstance(waiting, Waiting):
        waiting.window.release(waiting.window.oldest(waiting.window.waiting))
    if isinstance(behind, MeshJoin):
        behind.restart(None)


def position_of(join: Join) -> tuple[int, tuple[int, int] | None]:
    """Where a scan stands, and over which pages."""
    behind = innermost(join)
    return (behind.position, behind.part) if isinstance(behind, MeshJoin) else (0, None)
