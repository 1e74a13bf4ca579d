"""The frequency recorder (CACHING section 3.2.1): who may enter the front stage, and who has to leave it.

A key enters if, when its row was read, at least `threshold` tuples were waiting for it. The threshold moves down while
the front stage is not full, or hardly anybody is evicted, and up when evictions are frequent. The least frequent key leaves.

A key's frequency is what it entered with and every use since. So that old glory fades, it is halved whenever ten times as
many tuples came by as there are places, and a newcomer starts where the last one to leave ended: else newcomers, with
little to show yet, would only ever replace each other.

Where nobody waits (joins/lookup.py), how many tuples met a row at once says little. There the recorder remembers how often
keys that are not here were asked for lately, in a sketch of a byte a counter, and a key enters when that is clearly more than
the least frequent key here has: TinyLFU's rule (Einziger, Friedman and Manes, 2017) in place of the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.memory.budget import Budget
from semistream.memory.table import hash_of

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
BYTES_PER_ROW = 4
SKETCH_BYTES_PER_ROW = 8
VICTIMS = 32  # a search for victims finds one in so many of all keys
HALVING = 10  # tuples per place between two halvings
_HALVING_SKETCH = 20  # it counts more finely, and so is worth keeping longer
_MARGIN = 1  # uses more than one: keys that take turns cost more than they bring
PERIOD = 0.25  # tuples per place between two looks at the threshold
EAGER = 0.02  # evictions per tuple: the threshold is too low, for taking a row in costs as much as answering some tuples
LAZY = 0.005
_TOLD_APART = 1023  # uses; keys used more often than that are alike
FIRST_THRESHOLD = 2
_MOST = 1 << 30
_NOBODY = np.empty(0, dtype=np.int64)


@dataclass
class FrequencyRecorder:
    """Frequencies by the slot that a key is known by; -1 where there is none."""

    uses: I32
    threshold: int = FIRST_THRESHOLD
    floor: int = 0  # the frequency of the last victims
    evicted: int = 0  # in this period
    asked: int = 0  # tuples in this period
    until_halved: int = 0  # tuples
    hand: int = 0  # of keys used alike, those after it leave first
    sketch: U8 | None = None  # how often absent keys were asked for lately, by hash
    _victims: I64 = field(default_factory=lambda: _NOBODY)  # the least frequent last

    @staticmethod
    def allocate(budget: Budget, capacity: int, *, sketched: bool = False, who: str) -> FrequencyRecorder:
        """Inside the budget."""
        uses = budget.array("front stage", capacity, "i4", who=who)
        uses.fill(-1)
        sketch = (
            budget.array("front stage", SKETCH_BYTES_PER_ROW * capacity, "u1", who=who) if sketched else None
        )
        recorder = FrequencyRecorder(uses, sketch=sketch)  # type: ignore[arg-type]
        recorder.until_halved = recorder.period
        return recorder

    @property
    def period(self) -> int:
        """Tuples between two halvings."""
        return (HALVING if self.sketch is None else _HALVING_SKETCH) * len(self.uses)

    @property
    def is_sketched(self) -> bool:
        """Whether it is for a join in which nobody waits."""
        return self.sketch is not None

    def worthy(self, codes: U64, frequencies: I64, *, full: bool) -> tuple[NDArray[np.bool_] | None, I64]:
        """Which of these absent keys may enter (None: all), and how often each was asked for."""
        if self.sketch is None:
            return None, frequencies
        known = np.empty(len(codes), dtype=np.int64)
        _remember(self.sketch, codes, frequencies, known)
        return known > self.floor + _MARGIN if full else None, known

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All it knows, to be kept elsewhere; `adopt` takes it back."""
        return {
            "uses": self.uses,
            "recorder": np.array([self.threshold, self.floor, self.until_halved], dtype=np.int64),
            **({} if self.sketch is None else {"sketch": self.sketch}),
        }

    def adopt(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on with what another recorder knew; the arrays are this one's own from now on."""
        self.uses = arrays["uses"]  # type: ignore[assignment]
        self.threshold, self.floor, self.until_halved = (int(value) for value in arrays["recorder"])
        self.sketch = arrays.get("sketch")  # type: ignore[assignment]
        self.evicted = self.asked = 0
        self._victims = _NOBODY

    def enter(self, slots: I64, frequencies: I64) -> None:
        """Keys known by these slots came in."""
        start = self.floor if self.sketch is None else 0
        self.uses[slots] = np.minimum(start + frequencies, _MOST)

    def used(self, slots: I64, *, full: bool) -> None:
        """Tuples asked for keys known by these slots, perhaps repeatedly; -1 is a key that is not here."""
        _use(self.uses, slots)
        self.asked += len(slots)
        self.until_halved -= len(slots)
        if self.until_halved <= 0:
            _halve(self.uses)
            self.floor >>= 1
            if self.sketch is not None:
                self.sketch >>= 1
            self.until_halved = self.period
        if self.asked >= PERIOD * len(self.uses):
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
                last = int(self.uses[some[0]])
                self.floor = last if self.sketch is not None else max(self.floor, last)
            self.uses[some] = -1
        self.evicted += len(found)
        return found

    def forget(self, slots: I64) -> None:
        """Keys went for another reason."""
        self.uses[slots] = -1

    def _seek(self) -> None:
        present = int(np.count_nonzero(self.uses >= 0))
        self._victims = np.empty(max(1, present // VICTIMS) if present else 0, dtype=np.int64)
        if present:
            self.hand = least_used(self.uses, self.hand, self._victims)

    def _adapt(self, *, full: bool) -> None:
        """Move the threshold, once a period."""
        share = self.evicted / self.asked
        if share > EAGER:
            self.threshold = min(self.threshold + 1, _MOST)
        elif (share < LAZY or not full) and self.threshold > 1:
            self.threshold -= 1
        self.asked = self.evicted = 0


@kernel
def least_used(uses: I32, hand: int, out: I64) -> int:
    """Fill `out` with the slots of the least used keys, the least used last; give where the hand is now.

    Of keys used alike the first after the hand are taken, as a clock does it: who came long ago leaves before newcomers.
    """
    counts = np.zeros(_TOLD_APART + 1, dtype=np.int64)
    for slot in range(len(uses)):
        if uses[slot] >= 0:
            counts[min(uses[slot], _TOLD_APART)] += 1
    level, below = 0, 0
    while below + counts[level] < len(out):
        below += counts[level]
        level += 1
    alike, at, last = len(out) - below, len(out), hand
    slot = hand - 1
    for _ in range(len(uses)):
        slot = slot + 1 if slot + 1 < len(uses) else 0  # a remainder would take ten times as long
        if uses[slot] < 0:
            continue
        use = min(uses[slot], _TOLD_APART)
        if use == level and alike > 0:
            alike -= 1
            last = slot + 1
        elif use >= level:
            continue
        at -= 1
        out[at] = slot
    out[:] = out[np.argsort(-uses[out], kind="mergesort")]
    return last % len(uses)


@kernel
def _use(uses: I32, slots: I64) -> None:
    for slot in slots:
        if slot >= 0:
            uses[slot] += 1


@kernel
def _remember(sketch: U8, codes: U64, frequencies: I64, known: I64) -> None:
    for i in range(len(codes)):
        at = (hash_of(codes[i]) * len(sketch)) >> 31
        known[i] = min(np.int64(sketch[at]) + frequencies[i], 255)
        sketch[at] = known[i]


@kernel
def _halve(uses: I32) -> None:
    for slot in range(len(uses)):
        if uses[slot] > 0:
            uses[slot] >>= 1
