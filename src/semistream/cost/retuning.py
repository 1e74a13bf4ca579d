"""Dynamic tuning (MESH 3.3): a running join is tuned anew when its stream has become another.

The keys of the last tuples are looked at now and then. When their skew has left the one that the join was tuned for, twice in a
row, and the models promise a tenth more tuples a second, who waits is answered and the join goes on with other settings, or as
another algorithm. When tuples come more slowly than MESHJOIN could take them, its w and b are made smaller in mid-flight, as
small as the rate allows, so that tuples are answered sooner; and larger again when they come faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.cost.auto import best_for, rate_of
from semistream.cost.skew import estimated_skew
from semistream.errors import InvalidInputError
from semistream.joins.frontstage import FrontStage
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.opening import Opening, OpenJoin

_LOOK_EVERY = 1 << 17  # tuples
_SAMPLE = 1 << 14  # tuples
_DRIFT = 0.1  # of the exponent
_TWICE = 2  # looks in a row
_GAIN = 1.1  # a change costs a drained window: it must be worth that
_AMPLE = 1.25  # times the rate of arrival
_RATE_DRIFT = 1.3  # between two changes of w and b


@dataclass
class Retuner:
    """Sees every batch that arrives."""

    asked: Opening  # as the user asked: perhaps for "auto"
    clock: Callable[[], float] = time.monotonic
    skew: float | None = None  # that the join is tuned for
    rate: float = 0.0  # that w and b are set for
    seen: int = 0
    looked_at: float = 0.0
    drifted: int = 0
    recent: list[NDArray[np.uint64]] = field(default_factory=list)

    def __call__(self, opened: OpenJoin, batch: pa.RecordBatch) -> Opening | None:
        """What is to be opened in place of the join; None to go on."""
        if self.asked.shape.is_keyed:
            tuples, _ = self.asked.shape.keyed(batch)
            self.recent.append(tuples.codes[:_SAMPLE].copy())
            self.recent = self.recent[-8:]
        self.seen += len(batch)
        if self.seen < _LOOK_EVERY:
            return None
        now = self.clock()
        arriving = self.seen / max(now - self.looked_at, 1e-9) if self.looked_at else 0.0
        self.seen, self.looked_at = 0, now
        self._fit_rate(opened, arriving)
        return self._fit_skew(opened)

    def _fit_skew(self, opened: OpenJoin) -> Opening | None:
        codes = np.concatenate(self.recent[::-1])[:_SAMPLE] if self.recent else np.empty(0, dtype=np.uint64)
        try:
            skew = estimated_skew(codes, opened.opening.master.rows)
        except InvalidInputError:
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

    def _fit_rate(self, opened: OpenJoin, arriving: float) -> None:
        """W and b of a scan: no more than the rate of arrival needs."""
        join = opened.join.behind if isinstance(opened.join, FrontStage) else opened.join
        if not isinstance(join, MeshJoin) or not arriving or join.per_step is None:
            return
        wanted = _AMPLE * arriving
        if self.rate and 1 / _RATE_DRIFT < wanted / self.rate < _RATE_DRIFT:
            return
        self.rate = wanted
        capacity, most_pages = join.waiting.window.capacity, join.waiting.reader.pages_at_once
        full = rate_of(opened.opening, self.skew if self.skew is not None else 1.0)
        share = min(1.0, wanted / full) if full else 1.0
        pages = max(1, min(most_pages, round(most_pages * share)))
        iterations = -(-max(join.pages, 1) // pages)
        per_step = max(1, -(-int(capacity * share) // iterations))
        if (join.per_step, join.step_pages) != (per_step, pages):
            join.per_step, join.step_pages = per_step, pages
            join.stats.retuned += 1
