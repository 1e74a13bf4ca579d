"""Dynamic tuning (MESH 3.3): a running join is tuned anew when its stream has become another.

The keys of the last tuples are looked at now and then, and how many of the answered had no row. When the skew or that share has left the
one that the join was tuned for, twice in a row, and the models promise a tenth more tuples a second, who waits is answered and the join goes on with other settings, or as
another algorithm.

Where we deviate: the paper would follow the rate of arrival. A join that takes tuples from an iterator cannot tell a slow
stream from its own slowness, and would make itself slower and slower; so w and b, which may be changed at any time, are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.cost.auto import best_for, rate_of
from semistream.cost.misses import Misses
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
            tuples, _ = self.asked.shape.keyed(batch)
            self.sample.append(tuples.codes[:_SAMPLE].copy())
        self.seen += len(batch)
        if self.seen < _LOOK_EVERY:
            return None
        codes = np.concatenate(self.sample) if self.sample else np.empty(0, dtype=np.uint64)
        self.seen, self.sample = 0, []
        return self._look(opened, codes)

    def _look(self, opened: OpenJoin, codes: NDArray[np.uint64]) -> Opening | None:
        misses = self._misses(opened)
        # Which of the keys have no row is not known: they are taken to repeat as the others do.
        theirs = Misses(misses, misses * len(np.unique(codes)) / max(len(codes), 1))
        try:
            skew = estimated_skew(codes, opened.opening.master.rows, theirs)
        except InvalidInputError:  # too few tuples to tell, or an empty master
            return None
        if self.skew is None:
            self.skew, self.misses = skew, misses
        drifted = abs(skew - self.skew) > _DRIFT or abs(misses - self.misses) > _MISSES_DRIFT
        self.drifted = self.drifted + 1 if drifted else 0
        if self.drifted < _TWICE:
            return None
        self.drifted, self.skew, self.misses = 0, skew, misses
        better = best_for(self.asked, skew, True, misses)
        if rate_of(better, skew, misses) < _GAIN * rate_of(opened.opening, skew, misses):
            return None
        opened.join.stats.retuned += 1
        return better

    def _misses(self, opened: OpenJoin) -> float:
        """The share of those answered since the last look that had no row."""
        now = opened.join.stats.answered, opened.join.stats.misses
        answered, missed = (after - before for after, before in zip(now, self.counted, strict=True))
        self.counted = now
        return min(missed / answered, _MOST_MISSES) if answered > 0 else self.misses
