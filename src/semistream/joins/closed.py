"""What is left of a join whose memory was given to another: its counts, and nobody who waits."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.sides import JoinShape, Tuples


@dataclass
class Closed:
    """A join that takes nothing any more. It is seen only where the one that should follow could not be opened."""

    stats: JoinStats
    shape: JoinShape
    version: int
    room: int = 0
    pending: int = 0
    bound: int = 0

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:  # noqa: ARG002
        """There is no room."""
        return iter(()), 0

    def advance(self) -> Answers:
        """Nothing to do."""
        return iter(())

    def shed(self, count: int) -> pa.RecordBatch:  # noqa: ARG002
        """Nobody waits."""
        return self.shape.no_tuples()

    def snapshot(self, limit: int | None = None) -> Snapshot:  # noqa: ARG002
        """Nobody waits."""
        return Snapshot.untouched(self.shape.no_tuples(), self.version)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:  # noqa: ARG002
        """There is no room."""
        return 0
