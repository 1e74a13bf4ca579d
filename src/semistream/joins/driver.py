"""A stream driven through a join: offer what there is room for, advance when there is none, drain when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.opening import Opening, OpenJoin, moved_to, open_join
from semistream.joins.ordered import Ordered, numbered
from semistream.joins.resuming import plan_of
from semistream.joins.sides import JoinShape, Tuples

Retune = Callable[
    [OpenJoin, pa.RecordBatch], Opening | None
]  # sees every batch; may change the join in mid-flight, or ask for another


@dataclass
class Driver:
    """One run of a join over a stream; every step gives the batches it answered."""

    opened: OpenJoin
    source: Iterable[pa.RecordBatch]
    ordered: Ordered | None = None
    follow: bool = False  # the master's newest version, for tuples that arrive from then on
    retune: Retune | None = None
    resume: Snapshot | None = None
    coming: pa.RecordBatch | None = (
        None  # taken from the stream, but not arrived: it, or the join, had to be looked at first
    )
    rest: Tuples | None = None  # arrived, but not offered yet
    first_number: int = 0  # of the batch that `rest` is of

    @property
    def shape(self) -> JoinShape:
        """What joins what."""
        return self.opened.opening.shape

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.opened.join.stats

    def counted(self) -> JoinStats:
        """The counts, with how many wait now."""
        self.stats.waiting = self.opened.join.pending + self.unoffered
        self.stats.disk_seconds = self.opened.disk_seconds
        return self.stats

    @property
    def unoffered(self) -> int:
        """How many tuples were taken from the stream and not yet offered."""
        return 0 if self.rest is None else len(self.rest)

    def steps(self) -> Iterator[Answers]:
        """Run to the end of the stream, and close the join."""
        try:
            yield from self.run()
        finally:
            self.opened.close()

    def run(self) -> Iterator[Answers]:
        """Run to the end of the stream; the answers of a step must be taken before the next one."""
        if self.resume is not None:
            yield from self.resumed()
        for batch in self._batches():
            self.coming = batch
            if self.follow:
                yield from self._follow()
            if self.retune is not None:
                yield from self._retune(self.retune, batch)
            self.coming = None
            self.stats.tuples += len(batch)
            yield self._in_order(self.arrive(batch))
            yield from self._offer()
            self.first_number += len(batch)
        while self.opened.join.pending:
            yield self._in_order(self.opened.join.advance())
        yield self._in_order([], last=True)

    def snapshot(self) -> Snapshot:
        """Every tuple that has arrived and is not answered, between two steps."""
        waiting = self.resume  # nothing has happened yet
        if waiting is None:
            waiting = replace(self.opened.join.snapshot(), plan=plan_of(self.opened))
        if self.rest is not None and len(self.rest):
            rest = self.shape.some(self.rest, _first(len(self.rest)))
            waiting = waiting.followed_by(self.shape.tuples_of(rest))
        return waiting if self.coming is None else waiting.followed_by(self.coming)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self.coming is not None:
            yield self.coming
        yield from self.source

    def arrive(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Take a batch's tuples, to be offered; give those among them that have no key and so match nothing."""
        if self.ordered is not None:
            batch = numbered(batch, self.ordered.column, self.first_number)
        if batch.schema != self.shape.stream:
            raise InvalidInputError(
                "a stream of one schema",
                found=f"a batch with {batch.schema}",
                hint=f"Cast it to {self.shape.stream}.",
            )
        self.rest, keyless = self.shape.keyed(batch)
        return self._missed(keyless)

    def _missed(self, keyless: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The answer to tuples that have no key."""
        self.stats.misses += len(keyless)
        self.stats.answered += len(keyless)
        missed = self.shape.missed(lambda: keyless)
        self.stats.rows += len(missed) if missed is not None else 0
        return [missed] if missed is not None else []

    def offer(self) -> Iterator[Answers]:
        """Offer the tuples that have arrived as long as there is room for them."""
        while self.rest is not None and len(self.rest) and self.opened.join.room:
            if self.ordered is not None and self.ordered.is_full and self.opened.join.pending:
                return
            answers, taken = self.opened.join.offer(self.rest)
            self.rest = self.rest.select(slice(taken, None))
            yield self._in_order(answers)
            if not taken:
                return

    def cut(self, count: int) -> pa.RecordBatch:
        """Let the last of the tuples that are to be offered go."""
        if self.rest is None:
            return self.shape.no_tuples()
        kept = max(0, len(self.rest) - count)
        cut = self.rest.select(slice(kept, None))
        self.rest = self.rest.select(slice(0, kept))
        return self.shape.tuples_of(self.shape.some(cut, _first(len(cut))))

    def _offer(self) -> Iterator[Answers]:
        """Offer the tuples that have arrived until none is left."""
        while self.unoffered:
            yield from self.offer()
            if self.unoffered:
                yield self._in_order(self.opened.join.advance())

    def resumed(self) -> Iterator[Answers]:
        """Go on with the tuples of the snapshot."""
        if self.resume is None:
            return
        self.stats.tuples += len(self.resume.tuples)
        tuples, keyless = self.shape.keyed(self.resume.tuples)  # who has begun has a key, and comes first
        taken = self.opened.join.restore(tuples, self.resume)
        self.rest, self.resume = tuples.select(slice(taken, None)), None
        yield self._in_order(self._missed(keyless))
        yield from self._offer()

    def _follow(self) -> Iterator[Answers]:
        """Where there is a newer version: answer who waits from the old one, then go on with the new one."""
        newest = self.opened.opening.master.refresh()
        if newest.version == self.opened.opening.master.version:
            return
        while self.opened.join.pending:
            yield self._in_order(self.opened.join.advance())
        self.opened = moved_to(self.opened, newest)

    def _retune(self, retune: Retune, batch: pa.RecordBatch) -> Iterator[Answers]:
        """Where the stream has become another: go on as it is best now."""
        opening = retune(self.opened, batch)
        if opening is not None:
            yield from self.reopen(opening)

    def reopen(self, opening: Opening) -> Iterator[Answers]:
        """Answer who waits, then go on with another join.

        The memory of the one is needed for the other: arrays of another size cannot stand beside those that are left, and a tuple
        that has met a part of the master has no place in a join that does not know which.
        """
        while self.opened.join.pending:
            yield self._in_order(self.opened.join.advance())
        self.opened.give_up(opening.master)
        self.opened = open_join(opening, self.stats)

    def _in_order(self, answers: Iterable[pa.RecordBatch], *, last: bool = False) -> Answers:
        if self.ordered is None:
            yield from answers
            return
        for batch in answers:
            self.ordered.hold(batch)
        unanswered = [self.opened.join.snapshot(1).tuples]
        if self.rest is not None and len(self.rest):
            unanswered.append(self.shape.tuples_of(self.shape.some(self.rest, _first(1))))
        numbers = [tuples.column(self.ordered.column)[0].as_py() for tuples in unanswered if len(tuples)]
        yield from self.ordered.due(min(numbers, default=self.stats.tuples), last=last)


def _first(count: int) -> NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)
