"""The frequency recorder (CACHING section 3.2.1): who may enter the front stage, and who has to leave it.

A key enters if, when its row was read, at least `threshold` tuples were waiting for it. The threshold moves down while
the front stage is not full and up when evictions are frequent. The least frequent key leaves; a key's frequency is what it
entered with and every use since, halved whenever victims are sought, so that old glory fades.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.memory.budget import Budget

I64 = NDArray[np.int64]
_VICTIMS = 64  # a search for victims finds one in so many of all keys
_EAGER_EVICTIONS = 0.25  # of the capacity in one period: the threshold is too low
_FIRST_THRESHOLD = 2
_MAX_THRESHOLD = 1 << 20


@dataclass
class FrequencyRecorder:
    """Frequencies by the slot of a key's first row; -1 where there is none."""

    uses: NDArray[np.int32]
    threshold: int = _FIRST_THRESHOLD
    evicted: int = 0  # in this period
    seen: int = 0  # candidates in this period
    _victims: list[int] = field(default_factory=list)

    @staticmethod
    def allocate(budget: Budget, capacity: int, *, who: str) -> FrequencyRecorder:
        """Inside the budget."""
        uses = budget.array("front stage", capacity, "i4", who=who)
        uses.fill(-1)
        return FrequencyRecorder(uses)  # type: ignore[arg-type]

    def enter(self, slots: I64, frequencies: I64) -> None:
        """Keys whose first rows are in these slots came in."""
        self.uses[slots] = np.minimum(frequencies, np.iinfo(np.int32).max // 2)

    def used(self, slots: I64) -> None:
        """Keys were asked for, perhaps repeatedly."""
        np.add.at(self.uses, slots, 1)

    def victims(self, count: int) -> I64:
        """The least frequently used keys, which are forgotten."""
        found: list[int] = []
        while len(found) < count:
            if not self._victims:
                self._seek()
                if not self._victims:
                    break
            slot = self._victims.pop()
            if self.uses[slot] >= 0:
                found.append(slot)
                self.uses[slot] = -1
        self.evicted += len(found)
        return np.array(found, dtype=np.int64)

    def _seek(self) -> None:
        present = np.flatnonzero(self.uses >= 0)
        if not len(present):
            return
        count = max(1, len(present) // _VICTIMS)
        least = np.argpartition(self.uses[present], count - 1)[:count]
        order = np.argsort(-self.uses[present[least]], kind="stable")
        self._victims = present[least[order]].tolist()
        self.uses[present] >>= 1

    def adapt(self, candidates: int, *, full: bool) -> None:
        """Move the threshold, once as many candidates came by as there are places."""
        self.seen += candidates
        if not full and self.threshold > 1 and candidates == 0:
            self.threshold -= 1
        if self.seen < len(self.uses):
            return
        if self.evicted > _EAGER_EVICTIONS * len(self.uses):
            self.threshold = min(self.threshold + 1, _MAX_THRESHOLD)
        elif not full and self.threshold > 1:
            self.threshold -= 1
        self.seen = self.evicted = 0
