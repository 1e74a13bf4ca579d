"""The frequency recorder (CACHING section 3.2.1): who may enter the front stage, and who has to leave it.

A key enters if, when its row was read, at least `threshold` tuples were waiting for it. The threshold moves down while
the front stage is not full, or hardly anybody is evicted, and up when evictions are frequent. The least frequent key leaves.

A key's frequency is what it entered with and every use since. So that old glory fades, it is halved whenever ten times as
many tuples came by as there are places, and a newcomer starts where the last one to leave ended: else newcomers, with
little to show yet, would only ever replace each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.memory.budget import Budget

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
BYTES_PER_ROW = 4
_VICTIMS = 32  # a search for victims finds one in so many of all keys
_HALVING = 10  # tuples per place between two halvings
_PERIOD = 0.25  # tuples per place between two looks at the threshold
_EAGER = 0.02  # evictions per tuple: the threshold is too low, for taking a row in costs as much as answering some tuples
_LAZY = 0.005
_FIRST_THRESHOLD = 2
_MOST = 1 << 30
_NOBODY = np.empty(0, dtype=np.int64)


@dataclass
class FrequencyRecorder:
    """Frequencies by the slot that a key is known by; -1 where there is none."""

    uses: I32
    threshold: int = _FIRST_THRESHOLD
    floor: int = 0  # the frequency of the last victims
    evicted: int = 0  # in this period
    asked: int = 0  # tuples in this period
    until_halved: int = 0  # tuples
    _victims: I64 = field(default_factory=lambda: _NOBODY)  # the least frequent last

    @staticmethod
    def allocate(budget: Budget, capacity: int, *, who: str) -> FrequencyRecorder:
        """Inside the budget."""
        uses = budget.array("front stage", capacity, "i4", who=who)
        uses.fill(-1)
        return FrequencyRecorder(uses, until_halved=_HALVING * capacity)  # type: ignore[arg-type]

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All it knows, to be kept elsewhere; `adopt` takes it back."""
        return {
            "uses": self.uses,
            "recorder": np.array([self.threshold, self.floor, self.until_halved], dtype=np.int64),
        }

    def adopt(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on with what another recorder knew; the arrays are this one's own from now on."""
        self.uses = arrays["uses"]  # type: ignore[assignment]
        self.threshold, self.floor, self.until_halved = (int(value) for value in arrays["recorder"])
        self.evicted = self.asked = 0
        self._victims = _NOBODY

    def enter(self, slots: I64, frequencies: I64) -> None:
        """Keys known by these slots came in."""
        self.uses[slots] = np.minimum(self.floor + frequencies, _MOST)

    def used(self, slots: I64, *, full: bool) -> None:
        """Tuples asked for keys known by these slots, perhaps repeatedly; -1 is a key that is not here."""
        _use(self.uses, slots)
        self.asked += len(slots)
        self.until_halved -= len(slots)
        if self.until_halved <= 0:
            _halve(self.uses)
            self.floor >>= 1
            self.until_halved = _HALVING * len(self.uses)
        if self.asked >= _PERIOD * len(self.uses):
            self._adapt(full=full)

    def victims(self, count: int) -> I64:
        """The least frequently used keys, which are forgotten; fewer than `count` when there are no more."""
        found = _NOBODY
        while len(found) < count:
            if not len(self._victims):
                self._seek()
                if not len(self._victims):
                    break
            short = count - len(found)
            some, self._victims = self._victims[-short:], self._victims[:-short]
            some = some[self.uses[some] >= 0]
            found = np.concatenate([found, some])
            if len(some):
                self.floor = max(self.floor, int(self.uses[some[0]]))
            self.uses[some] = -1
        self.evicted += len(found)
        return found

    def forget(self, slots: I64) -> None:
        """Keys went for another reason."""
        self.uses[slots] = -1

    def _seek(self) -> None:
        present = np.flatnonzero(self.uses >= 0)
        if not len(present):
            return
        count = max(1, len(present) // _VICTIMS)
        uses = self.uses[present]
        least = np.argpartition(uses, count - 1)[:count]
        self._victims = present[least[np.argsort(-uses[least], kind="stable")]]

    def _adapt(self, *, full: bool) -> None:
        """Move the threshold, once a period."""
        share = self.evicted / self.asked
        if share > _EAGER:
            self.threshold = min(self.threshold + 1, _MOST)
        elif (share < _LAZY or not full) and self.threshold > 1:
            self.threshold -= 1
        self.asked = self.evicted = 0


@kernel
def _use(uses: I32, slots: I64) -> None:
    for slot in slots:
        if slot >= 0:
            uses[slot] += 1


@kernel
def _halve(uses: I32) -> None:
    for slot in range(len(uses)):
        if uses[slot] > 0:
            uses[slot] >>= 1
