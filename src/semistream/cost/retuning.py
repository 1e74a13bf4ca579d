"""Dynamic tuning (MESH 3.3): a running join is tuned anew when its stream has become another.

The keys of the last tuples are looked at now and then. When their skew has left the one that the join was tuned for, twice in a
row, and the models promise a tenth more tuples a second, who waits is answered and the join goes on with other settings, or as
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
from semistream.cost.skew import estimated_skew
from semistream.errors import InvalidInputError
from semistream.joins.opening import Opening, OpenJoin

_LOOK_EVERY = 1 << 17  # tuples
_SAMPLE = 1 << 14  # tuples
_DRIFT = 0.2  # of the exponent; near 0 a sample cannot tell less
_TWICE = 2  # looks in a row
_GAIN = 1.1  # a change costs a drained window: it must be worth that


@dataclass
class Retuner:
    """Sees every batch that arrives."""

    asked: Opening  # as the user asked: perhaps for "auto"
    skew: float | None = None  # that the join is tuned for
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
        try:
            skew = estimated_skew(codes, opened.opening.master.rows)
        except InvalidInputError:  # too few tuples to tell, or an empty master
            return None
        if self.skew is None:
            self.skew = skew
        self.drifted = self.drifted + 1 if abs(skew - self.skew) > _DRIFT else 0
        if self.drifted < _TWICE:
            return None
        self.drifted, self.skew = 0, skew
        better = best_for(self.asked, skew, known=True)
        if rate_of(better, skew) < _GAIN * rate_of(opened.opening, skew):
            return None
        opened.join.stats.retuned += 1
        return better
