"""A stream driven through a join: offer what there is room for, advance when there is none, drain when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.errors import InvalidInputError
from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.opening import Opening, OpenJoin, moved_to, open_join
from semistream.joins.ordered import Ordered, numbered
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

    def steps(self) -> Iterator[Answers]:
        """Run to the end of the stream, and close the join."""
        try:
            yield from self.run()
        finally:
            self.opened.close()

    def run(self) -> Iterator[Answers]:
        """Run to the end of the stream; the answers of a step must be taken before the next one."""
        if self.resume is not None:
            yield from self._resume(self.resume)
        for batch in self.source:
            if self.follow:
                yield from self._follow()
            if self.retune is not None:
                yield from self._retune(self.retune, batch)
            self.rest, misses = self._arrive(batch)
            yield self._in_order(misses)
            yield from self._offer()
            self.first_number += len(batch)
        while self.opened.join.pending:
            yield self._in_order(self.opened.join.advance())
        yield self._in_order([], last=True)

    def snapshot(self) -> Snapshot:
        """Every tuple that has arrived and is not answered, between two steps."""
        waiting = self.opened.join.snapshot()
        if self.rest is None or not len(self.rest):
            return waiting
        everything = np.arange(len(self.rest), dtype=np.int64)
        return waiting.followed_by(self.shape.tuples_of(self.shape.some(self.rest, everything)))

    def _arrive(self, batch: pa.RecordBatch) -> tuple[Tuples, list[pa.RecordBatch]]:
        """A batch's tuples, and those among them that have no key and so match nothing."""
        if self.ordered is not None:
            batch = numbered(batch, self.ordered.column, self.first_number)
        if batch.schema != self.shape.stream:
            raise InvalidInputError(
                "a stream of one schema",
                found=f"a batch with {batch.schema}",
                hint=f"Cast it to {self.shape.stream}.",
            )
        self.stats.tuples += len(batch)
        tuples, keyless = self.shape.keyed(batch)
        self.stats.misses += len(keyless)
        self.stats.answered += len(keyless)
        missed = self.shape.missed(lambda: keyless)
        self.stats.rows += len(missed) if missed is not None else 0
        return tuples, [missed] if missed is not None else []

    def _offer(self) -> Iterator[Answers]:
        """Offer the tuples that have arrived until none is left."""
        while self.rest is not None and len(self.rest):
            full = self.ordered is not None and self.ordered.is_full and self.opened.join.pending
            if self.opened.join.room and not full:
                answers, taken = self.opened.join.offer(self.rest)
                self.rest = self.rest.select(slice(taken, None))
                yield self._in_order(answers)
                if taken:
                    continue
            yield self._in_order(self.opened.join.advance())

    def _resume(self, snapshot: Snapshot) -> Iterator[Answers]:
        if snapshot.tuples.schema != self.shape.stream:
            raise InvalidInputError(
                "resuming a join",
                found=f"a snapshot of a stream with {snapshot.tuples.schema}",
                hint=f"This stream has {self.shape.stream}.",
            )
        self.stats.tuples += len(snapshot.tuples)
        tuples, _ = self.shape.keyed(snapshot.tuples)
        taken = self.opened.join.restore(tuples, snapshot)
        self.rest = tuples.select(slice(taken, None))
        yield from self._offer()

    def _follow(self) -> Iterator[Answers]:
        """Where there is a newer version: answer who waits from the old one, then go on with the new one."""
        current = self.opened.opening.master
        newest = current.refresh()
        if newest.version == current.version:
            return
        while self.opened.join.pending:
            yield self._in_order(self.opened.join.advance())
        self.opened = moved_to(self.opened, newest)

    def _retune(self, retune: Retune, batch: pa.RecordBatch) -> Iterator[Answers]:
        """Where the stream has become another: answer who waits, then go on as it is best now."""
        opening = retune(self.opened, batch)
        if opening is None:
            return
        while self.opened.join.pending:
            yield self._in_order(self.opened.join.advance())
        stats = self.stats
        self.opened.close()
        self.opened.join = None  # type: ignore[assignment]  # its memory is needed
        self.opened = open_join(opening, stats)

    def _in_order(self, answers: Iterable[pa.RecordBatch], *, last: bool = False) -> Answers:
        if self.ordered is None:
            yield from answers
            return
        for batch in answers:
            self.ordered.hold(batch)
        mark = self.first_number
        if self.rest is None or not len(self.rest):
            mark = self.stats.tuples
        oldest = self.opened.join.snapshot(1).tuples
        if len(oldest):
            mark = min(mark, oldest.column(self.ordered.column)[0].as_py())
        yield from self.ordered.due(mark, last=last)
