"""Dynamic tuning (MESH 3.3): a running join is tuned anew when its stream has become another.

The keys of the last tuples are looked at now and then, and how many of the answered had no row. When the skew or that share has left the
one that the join was tuned for, twice in a row, and the models promise a tenth more tuples a second, who waits is answered and the join goes on with other settings, or as
another algorithm.

Where arrival times are known (`arrivals=`) it is the rate of arrival that is followed, as in the paper: to serve it with the least
memory, and all that there is when more arrives. What is the least memory depends on skew and misses too: they are followed at the same time,
also while the rate stays as it is. A join that takes tuples from an iterator cannot tell a slow stream from its own
slowness, and would make itself slower and slower.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.cost.auto import USUAL_SKEW, best_for, least_for, rate_of
from semistream.cost.misses import Misses
from semistream.cost.question import keys_of
from semistream.cost.skew import estimated_skew
from semistream.errors import InvalidInputError
from semistream.joins.opening import Opening, OpenJoin

_LOOK_EVERY = 1 << 17  # tuples
_SAMPLE = 1 << 14  # tuples
_DRIFT = 0.2  # of the exponent; near 0 a sample cannot tell less
_MISSES_DRIFT = 0.1  # of the tuples
_MOST_MISSES = 0.99
_TWICE = 2  # looks in a row
_GAIN = 1.1  # a change costs a drained window: it must be worth that
_LOOK_AT_RATE = 1 << 15  # arrivals
_HEADROOM = 1.25  # over what arrives
_FEWER, _MORE = 0.6, 1.15  # of the rate that the join is tuned for: between these it is the same
_WORTH = 0.8  # of the memory, that less memory must be at most


@dataclass
class Retuner:
    """Sees every batch that arrives."""

    asked: Opening  # as the user asked: perhaps for "auto"
    skew: float | None = None  # that the join is tuned for
    misses: float = 0.0  # the same
    counted: tuple[int, int] = (0, 0)  # answered, and without a row, up to the last look
    seen: int = 0  # tuples since the last look
    drifted: int = 0  # looks in a row
    sample: list[NDArray[np.uint64]] = field(default_factory=list)

    def __call__(self, opened: OpenJoin, batch: pa.RecordBatch) -> Opening | None:
        """What is to be opened in place of the join; None to go on."""
        if self.asked.shape.is_keyed and sum(map(len, self.sample)) < _SAMPLE:
            self.sample.append(self.asked.shape.codes(batch)[:_SAMPLE].copy())
        self.seen += len(batch)
        if self.seen < _LOOK_EVERY:
            return None
        codes = np.concatenate(self.sample) if self.sample else np.empty(0, dtype=np.uint64)
        self.seen, self.sample = 0, []
        return self._look(opened, codes)

    def _look(self, opened: OpenJoin, codes: NDArray[np.uint64]) -> Opening | None:
        misses, self.counted = _misses(opened, self.counted, self.misses)
        try:
            skew = _skew(codes, opened.opening, misses)
        except InvalidInputError:  # too few tuples to tell, or an empty master
            return None
        if self.skew is None:
            self.skew, self.misses = opened.opening.planned_for or (skew, misses)
        drifted = abs(skew - self.skew) > _DRIFT or abs(misses - self.misses) > _MISSES_DRIFT
        self.drifted = self.drifted + 1 if drifted else 0
        if self.drifted < _TWICE:
            return None
        self.drifted, self.skew, self.misses = 0, skew, misses
        current = opened.opening  # the master may have another version by now
        asked = replace(self.asked, master=current.master, reserve_bytes=current.reserve_bytes)
        better = best_for(asked, skew, True, misses)
        if rate_of(better, skew, misses) < _GAIN * rate_of(current, skew, misses):
            return None
        opened.join.stats.retuned += 1
        return better


@dataclass
class RateRetuner:
    """Sees how many have arrived by when, after every iteration of a join whose stream has arrival times."""

    asked: Opening  # with all the memory that there is
    rate: float | None = None  # of arrival, that the join is tuned for
    skew: float = USUAL_SKEW  # the same
    misses: float = 0.0  # the same
    drifted: int = 0  # looks in a row
    last: tuple[int, float] | None = None  # arrived, and seconds, at the last look
    counted: tuple[int, int] = (0, 0)  # answered, and without a row, up to the last look
    sample: list[NDArray[np.uint64]] = field(default_factory=list)

    def go_on_as(self, opening: Opening) -> None:
        """With another algorithm from now on."""
        self.asked = replace(self.asked, algorithm=opening.algorithm, settings=opening.settings)

    def saw(self, batch: pa.RecordBatch) -> None:
        """Keep some keys of what arrives."""
        if self.asked.shape.is_keyed and len(batch) and sum(map(len, self.sample)) < _SAMPLE:
            self.sample.append(self.asked.shape.codes(batch)[:_SAMPLE].copy())

    def __call__(self, opened: OpenJoin, arrived: int, seconds: float) -> Opening | None:
        """What is to be opened in place of the join; None to go on."""
        if self.last is None:
            self.last = arrived, seconds
            return None
        tuples, passed = arrived - self.last[0], seconds - self.last[1]
        if tuples < _LOOK_AT_RATE or passed <= 0.0:
            return None
        self.last = arrived, seconds
        return self._look(opened, tuples / passed)

    def _look(self, opened: OpenJoin, rate: float) -> Opening | None:
        skew, misses = self._stream(opened)
        same_rate = self.rate is not None and _FEWER * self.rate <= rate <= _MORE * self.rate
        same_keys = abs(skew - self.skew) <= _DRIFT and abs(misses - self.misses) <= _MISSES_DRIFT
        self.drifted = 0 if same_rate and same_keys else self.drifted + 1
        if self.drifted < _TWICE:
            return None
        self.drifted, self.rate, self.skew, self.misses = 0, rate, skew, misses
        better, current = least_for(self.asked, skew, misses, _HEADROOM * rate), opened.opening
        if _WORTH * current.memory_bytes < better.memory_bytes <= current.memory_bytes:
            reached = rate_of(current, skew, misses)
            # As much memory, but divided for another stream.
            if reached >= rate or rate_of(better, skew, misses) < _GAIN * reached:
                return None
        opened.join.stats.retuned += 1
        return better

    def _stream(self, opened: OpenJoin) -> tuple[float, float]:
        """The skew, as far as a sample tells, and the share of misses; as they were where nothing does."""
        misses, self.counted = _misses(opened, self.counted, self.misses)
        codes, self.sample = self.sample, []
        if not codes:
            return self.skew, misses
        try:
            return _skew(np.concatenate(codes), self.asked, misses), misses
        except InvalidInputError:
            return self.skew, misses


def _skew(codes: NDArray[np.uint64], opening: Opening, misses: float) -> float:
    """Which of the keys have no row is not known: they are taken to repeat as the others do."""
    theirs = Misses(misses, misses * len(np.unique(codes)) / max(len(codes), 1))
    return estimated_skew(codes, keys_of(opening.master), theirs)


def _misses(opened: OpenJoin, before: tuple[int, int], otherwise: float) -> tuple[float, tuple[int, int]]:
    """The share of those answered since then that had no row; and what is answered now."""
    now = opened.join.stats.answered, opened.join.stats.misses
    answered, missed = (after - then for after, then in zip(now, before, strict=True))
    return (min(missed / answered, _MOST_MISSES) if answered > 0 else otherwise), now
