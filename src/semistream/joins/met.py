"""What is remembered of the pairs of one step: who met something, and which rows were met how often.

Where keys repeat on both sides a step may have any number of pairs. Beyond some of them, tuples are remembered once each and rows by
how often they were met, so that the memory of it is bounded by the window and the disk buffer, whatever the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.ranges import MOST_PAIRS, repeated

I64 = NDArray[np.int64]
_NONE = np.empty(0, dtype=np.int64)


@dataclass
class MetTuples:
    """Slots of tuples, in the order in which they first met something."""

    parts: list[I64] = field(default_factory=list)
    count: int = 0
    distinct: int = 0  # of these, when they were last counted

    def add(self, slots: I64) -> None:
        """These met something; the array is kept."""
        self.parts.append(slots)
        self.count += len(slots)
        if self.count > MOST_PAIRS + 2 * self.distinct:
            every = np.concatenate(self.parts)
            _, first = np.unique(every, return_index=True)
            self.parts = [every[np.sort(first)]]
            self.count = self.distinct = len(first)

    def slots(self) -> I64:
        """All of them, some perhaps more than once."""
        return _joined(self.parts)


@dataclass
class MetRows:
    """Loaded rows, each once per tuple that it met."""

    parts: list[I64] = field(default_factory=list)
    count: int = 0
    runs: list[tuple[I64, I64]] = field(default_factory=list)  # rows, and how often

    def add(self, rows: I64) -> None:
        """These were met, in runs of one row; the array is copied."""
        self.parts.append(rows.copy())
        self.count += len(rows)
        if self.count > MOST_PAIRS:
            self._count()

    def rows(self) -> I64:
        """All of them; where there are very many, less often than they were met."""
        if not self.runs:
            return _joined(self.parts)
        self._count()
        rows, times = (np.concatenate(each) for each in zip(*self.runs, strict=True))
        return repeated(rows, times, MOST_PAIRS)

    def _count(self) -> None:
        every = _joined(self.parts)
        starts = np.flatnonzero(np.append(True, every[1:] != every[:-1])) if len(every) else _NONE
        self.runs.append((every[starts], np.diff(starts, append=len(every))))
        self.parts, self.count = [], 0


def _joined(parts: list[I64]) -> I64:
    return (np.concatenate(parts) if len(parts) > 1 else parts[0]) if parts else _NONE
