"""A plan that was made of too few tuples to tell, made once more when there are enough.

`auto` plans from the first batch, and a stream may come in batches of a few tuples: a few say nothing of the skew, and to wait
for more before anything is answered would make a slow stream wait. So the join begins, and when some thousand tuples have come the plan
is looked at again: where the models promise a tenth more tuples a second, who waits is answered and the join goes on as it should have
begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from semistream.cost.auto import choose, rate_of
from semistream.joins.driver import Retune
from semistream.joins.join import with_columns
from semistream.joins.opening import Opening, OpenJoin, plan_line
from semistream.joins.paced import RetuneToRate

ENOUGH = 4_096  # tuples: a skew is known from them to a tenth
_GAIN = 1.1  # a change costs a drained window: it must be worth that


@dataclass
class Replanner:
    """Sees every batch that arrives, the planned-for one first, until there are enough."""

    asked: Opening  # for "auto"
    then: Retune | None = None  # who watches the stream afterwards
    sample: list[pa.RecordBatch] = field(default_factory=list)
    seen: int = 0
    done: bool = False

    def __call__(self, opened: OpenJoin, batch: pa.RecordBatch) -> Opening | None:
        """What is to be opened in place of the join; None to go on."""
        if self.done:
            return self.then(opened, batch) if self.then is not None else None
        self.saw(batch)
        return self.look(opened)

    def saw(self, batch: pa.RecordBatch) -> None:
        """Keep some of what arrives."""
        if not self.done and len(batch):
            self.sample.append(with_columns(batch, self.asked.shape.stream))
            self.seen += len(batch)

    def look(self, opened: OpenJoin) -> Opening | None:
        """The plan once more, when enough has been seen; None where the join goes on as it is."""
        if self.done or self.seen < ENOUGH:
            return None
        self.done, sample = True, pa.Table.from_batches(self.sample).combine_chunks().to_batches()[0]
        self.sample = []
        current = opened.opening  # the master may have another version by now
        asked = replace(
            self.asked,
            master=current.master,
            reserve_bytes=current.reserve_bytes,
            memory_bytes=current.memory_bytes,
        )
        better = choose(asked, sample)
        if better.planned_for is None:  # too little memory for any
            return None
        if rate_of(better, *better.planned_for) >= _GAIN * rate_of(current, *better.planned_for):
            return better
        same = better.algorithm == current.algorithm and better.settings == current.settings
        skew, misses = better.planned_for
        why = (
            f"keys look like Zipf {skew:.2f}; {misses:.0%} have no row; nothing else would be a tenth faster"
        )
        opened.opening = replace(current, why=better.why if same else why, planned_for=better.planned_for)
        opened.join.stats.plan = plan_line(opened.opening)
        return None


@dataclass
class PacedReplanner:
    """The same for a stream with arrival times; `then` follows its rate."""

    replanner: Replanner
    then: RetuneToRate | None = None

    def saw(self, batch: pa.RecordBatch) -> None:
        """See some of the stream."""
        self.replanner.saw(batch)
        if self.then is not None:
            self.then.saw(batch)

    def go_on_as(self, opening: Opening) -> None:
        """With another algorithm from now on."""
        if self.then is not None:
            self.then.go_on_as(opening)

    def __call__(self, opened: OpenJoin, arrived: int, seconds: float) -> Opening | None:
        """What is to be opened in place of the join; None to go on."""
        better = self.replanner.look(opened)
        if better is not None:
            self.go_on_as(better)
            return better
        return self.then(opened, arrived, seconds) if self.then is not None else None
