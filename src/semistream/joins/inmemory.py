"""The whole master in a hash table: the upper bound that every other join is compared with, never a default."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.hotrows import HotRows
from semistream.joins.reader import MasterReader
from semistream.joins.sides import JoinShape, Tuples
from semistream.memory.budget import Budget

_ANY = 1 << 20


@dataclass
class InMemoryJoin:
    """Every tuple is answered as it arrives."""

    hot: HotRows
    stats: JoinStats
    version: int

    @staticmethod
    def open(shape: JoinShape, reader: MasterReader, budget: Budget, stats: JoinStats) -> InMemoryJoin:
        """Read the master, twice: once to know how much room its strings take."""
        per_row = _string_bytes(reader) / max(reader.master.rows, 1)
        hot = HotRows.allocate(
            shape, budget, stats, reader.master.rows, per_row, name="master", who="in-memory"
        )
        for pages in reader.steps():
            loaded = reader.load(pages)
            everything = np.arange(loaded.found.rows, dtype=np.int64)
            hot.keep(loaded, HotRows.rows_of(loaded, everything), everything)
        return InMemoryJoin(hot, stats, reader.master.version)

    @property
    def room(self) -> int:
        """There is always room: nobody waits."""
        return _ANY

    @property
    def pending(self) -> int:
        """Nobody waits."""
        return 0

    @property
    def bound(self) -> int:
        """Nobody waits."""
        return 0

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Answer the tuples."""
        first = self.hot.find(tuples)
        self.stats.front_probes += len(tuples)
        return chain(self.hot.answer(tuples, first), self._missed(tuples, np.flatnonzero(first < 0))), len(
            tuples
        )

    def _missed(self, tuples: Tuples, absent: NDArray[np.int64]) -> Answers:
        shape = self.hot.shape
        self.stats.misses += len(absent)
        self.stats.answered += len(absent)
        missed = shape.missed(lambda: shape.tuples_of(shape.some(tuples, absent)))
        if missed is not None:
            self.stats.rows += len(missed)
            yield missed

    def advance(self) -> Answers:
        """Nothing to do."""
        return iter(())

    def shed(self, count: int) -> pa.RecordBatch:  # noqa: ARG002
        """Nobody waits."""
        return self.hot.shape.no_tuples()

    def snapshot(self, limit: int | None = None) -> Snapshot:  # noqa: ARG002 - there is nobody
        """Nobody waits."""
        return Snapshot.untouched(pa.RecordBatch.from_pylist([], schema=self.hot.shape.stream), self.version)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:  # noqa: ARG002
        """Nobody waits: they are to be offered."""
        snapshot.check_untouched()
        return 0


def _string_bytes(reader: MasterReader) -> int:
    total = 0
    for pages in reader.steps():
        loaded = reader.load(pages)
        total += HotRows.string_bytes(loaded)
    return total
