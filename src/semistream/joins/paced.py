"""A stream with arrival times driven through a join that may be too slow for it (CACHING algorithms 1 and 2).

An iteration: look how much has arrived; where that is too much, shed; offer what there is room for, then, in calm times,
tuples that were shed before; do one disk access. The join is any join, driven through the same contract.

Where we deviate: the paper fetches 2 w shed tuples whenever fewer than 2 w have arrived. Here they come back only into places
that arrived tuples leave free, and are no part of the backlog that overload is told by: fetching them cannot cause it.
What a join finished last is at least the room it has, as in the paper's first line (w_B = h_S): an empty window is not overloaded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from semistream.joins.base import Answers, Join, JoinStats, Snapshot
from semistream.joins.driver import Driver
from semistream.joins.hybridjoin import OLDEST
from semistream.joins.opening import Opening, OpenJoin
from semistream.shedding import (
    WEIGHT_COLUMN,
    Backlog,
    Estimator,
    OverloadDetector,
    Shedding,
    SheddingStats,
    ShedStore,
)

_LEAST_SHARE = 1 / 64  # of arriving tuples that a sample keeps: a share of none could not be scaled up
_RETURNED_AT_ONCE = 1 << 14  # shed tuples that come back in an iteration
STREAM_SHARE = (
    1 / 8
)  # of the budget: half for the backlog, half for tuples on their way to and from the store


class RetuneToRate(Protocol):
    """May change the join for the rate at which tuples arrive."""

    def saw(self, batch: pa.RecordBatch) -> None:
        """See some of the stream."""

    def go_on_as(self, opening: Opening) -> None:
        """The join was planned once more: tune that one from now on."""

    def __call__(self, opened: OpenJoin, arrived: int, seconds: float) -> Opening | None:
        """What is to be opened in place of the join, when so many have arrived by then; None to go on."""


@dataclass
class PacedDriver:
    """One run of a join over a stream that arrives as `backlog` says."""

    driver: Driver
    backlog: Backlog
    shedding: Shedding
    store: ShedStore | None  # None where shed tuples are dropped
    estimator: Estimator | None = None
    retune: RetuneToRate | None = None
    finished: int = 0  # tuples, by the last iteration
    most: int = 0  # that this iteration is expected to finish
    waited: float = 1.0  # share of the tuples offered in the last iteration that had to wait
    advances: int = 0  # in which the oldest tuple chose: each answers it
    resumed: int = 0  # tuples that did not come from the stream
    offered: int = 0
    detector: OverloadDetector = field(init=False)
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        asked = self.shedding
        self.detector = OverloadDetector(asked.over, asked.under, asked.calm_after)
        self.random = np.random.default_rng(asked.seed)
        self.stats.shedding = SheddingStats(estimator=self.estimator)

    @property
    def join(self) -> Join:
        """The join that is driven."""
        return self.driver.opened.join

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.driver.stats

    @property
    def ordered(self) -> None:
        """Answers leave as they are found."""

    @property
    def unoffered(self) -> int:
        """How many tuples have arrived and have no place in the join."""
        return self.driver.unoffered + self.backlog.held_rows + self.backlog.due

    def counted(self) -> JoinStats:
        """The counts as they are now."""
        stats = self.driver.counted()
        stats.waiting += self.backlog.held_rows
        stats.tuples = self.resumed + self.backlog.taken
        seen = stats.shedding
        if seen is not None:
            seen.overloads, seen.overloaded = self.detector.overloads, self.detector.overloaded
            seen.backlog = self.unoffered
            seen.backlog_most = max(seen.backlog_most, seen.backlog)
            seen.buffer_bytes = self.backlog.nbytes
            if self.store is not None:
                stats.shed = self.store.tuples
                seen.buffer_bytes += self.store.nbytes
                seen.files, seen.written_bytes = self.store.files_written, self.store.bytes_written
                seen.read_bytes = self.store.bytes_read
            seen.buffer_bytes_most = max(seen.buffer_bytes_most, seen.buffer_bytes)
        return stats

    def steps(self) -> Iterator[Answers]:
        """Run to the end of the stream, until nothing waits and nothing is shed, and close the join."""
        try:
            for answers in self.run():
                yield answers if self.estimator is None else _estimated(answers, self.estimator)
                self.counted()
            if self.store is not None:
                self.store.close()
        finally:
            self.driver.opened.close()

    def run(self) -> Iterator[Answers]:
        """The endless loop of algorithm 1, to its end."""
        if self.driver.resume is not None:
            tuples = self.driver.resume.tuples
            self.resumed = len(tuples) + (self.store.tuples if self.store else 0)
            if self.estimator is not None and len(tuples):
                self.estimator.resumed(tuples.column(WEIGHT_COLUMN).to_numpy())
            yield from self.driver.resumed()
        while True:
            if not (self.join.pending or self.unoffered or (self.store is not None and self.store.tuples)):
                self.backlog.wait()
                if self.backlog.ended:
                    return
            self.counted()
            self.backlog.look()
            answered, admitted, offered = self.stats.answered, self.stats.admitted, self.offered
            yield from self._shed()
            yield from self._offer()
            yield from self._return()
            yield from self._advance()
            yield from self._retune()
            self.finished = self.stats.answered - answered
            if self.offered > offered:
                self.waited = (self.stats.admitted - admitted) / (self.offered - offered)

    def _shed(self) -> Iterator[Answers]:
        """Algorithm 2: shed what is more than twice what the last iteration finished."""
        strategy = self.shedding.strategy
        if strategy == "none":
            self.backlog.fill(lambda batch: batch)
            return
        self.most = max(self.finished, self.join.room)
        excess = self.detector.look(self.unoffered, self.most)
        if strategy == "random":
            due = self.backlog.due
            share = max(_LEAST_SHARE, 1 - excess / due) if excess and due else 1.0
            self.backlog.fill(lambda batch: self._sampled(batch, share))
            return
        self.backlog.fill(lambda batch: batch)
        self.counted()
        if strategy == "considering":
            tuned = self.shedding.position if self.detector.overloaded else OLDEST
            self.driver.opened.look_up_at(tuned)
            if excess:
                yield from self._considered(self.unoffered - excess)
        elif excess:
            self._cut(excess)

    def _considered(self, kept: int) -> Iterator[Answers]:
        """Offer tuples until no more than `kept` are left, and make room for them by shedding from the queue's end."""
        while self.unoffered > kept:
            yield from self._offer()
            over = self.unoffered - kept
            if over <= 0:
                return
            # The front stage answers some of them: only the others need a place.
            gone = self.join.shed(max(1, math.ceil(over * self.waited)))
            if not len(gone):
                yield from self._answer_known(kept)
                return
            self._put_away(gone)

    def _answer_known(self, kept: int) -> Iterator[Answers]:
        """Where nobody can be shed from the queue: the front stage answers whom it knows, the others are shed."""
        while self.unoffered > kept:
            if not self.driver.unoffered:
                batch = self._given()
                if batch is None:
                    return
                yield iter(self.driver.arrive(batch))
            tuples, count = self.driver.rest, self.unoffered - kept
            if tuples is None or count <= 0:
                continue
            some, self.driver.rest = tuples.select(slice(0, count)), tuples.select(slice(count, None))
            answers, absent = self.driver.opened.answer_known(some)
            shape = self.driver.shape
            if len(absent):
                self._put_away(shape.tuples_of(shape.some(some, absent)))
            yield answers

    def _cut(self, count: int) -> None:
        """Shed tuples that the join has not seen, the newest."""
        for batch in self.backlog.cut(count):
            self._put_away(batch)
            count -= len(batch)
        if count > 0:
            self._put_away(self.driver.cut(count))

    def _sampled(self, batch: pa.RecordBatch, share: float) -> pa.RecordBatch:
        """Each tuple is kept with the same probability, and the others are shed."""
        kept, gone = batch, batch.slice(0, 0)
        if share < 1.0:
            chosen = self.random.random(len(batch)) < share
            kept, gone = batch.filter(pa.array(chosen)), batch.filter(pa.array(~chosen))
        self._put_away(gone)
        if self.estimator is None:
            return kept
        self.estimator.sampled(len(batch), len(kept), 1 / share)
        return _weighed(kept, 1 / share)

    def _put_away(self, batch: pa.RecordBatch) -> None:
        if self.stats.shedding is not None:
            self.stats.shedding.shed_in_all += len(batch)
        if self.store is None:
            self.stats.dropped += len(batch)
        elif len(batch):
            self.store.put(batch)

    def _given(self) -> pa.RecordBatch | None:
        """The next arrived tuples, which may have to be fetched."""
        if not self.backlog.held and self.shedding.strategy != "random":
            self.backlog.fill(lambda batch: batch)
        batch = self.backlog.give(self.join.room)
        if self.retune is not None and batch is not None:
            self.retune.saw(batch)
        return batch

    def _offer(self) -> Iterator[Answers]:
        """Offer arrived tuples as long as there is room for them."""
        while True:
            before = self.driver.unoffered
            yield from self.driver.offer()
            self.offered += before - self.driver.unoffered
            if self.driver.unoffered or not self.join.room:
                return
            batch = self._given()
            if batch is None:
                return
            yield iter(self.driver.arrive(batch))

    def _return(self) -> Iterator[Answers]:
        """Lines 3 and 4 of algorithm 2: in calm times shed tuples come back, into places that are free."""
        store, left = self.store, _RETURNED_AT_ONCE
        if store is None or self.detector.overloaded or self.unoffered:
            return
        while left > 0 and self.join.room and not self.driver.unoffered:
            batch = store.take(min(left, self.join.room))
            if batch is None:
                break
            left -= len(batch)
            if self.stats.shedding is not None:
                self.stats.shedding.returned += len(batch)
            yield iter(self.driver.arrive(batch))
            before = self.driver.unoffered
            yield from self.driver.offer()
            self.offered += before - self.driver.unoffered

    def _advance(self) -> Iterator[Answers]:
        if self.join.pending:
            yield self.join.advance()
            self.advances += 0 if self.detector.overloaded else 1
        if self.store is not None and not self.driver.unoffered:
            self.store.settle(self.advances if self.join.pending else math.inf, self.join.bound)

    def _retune(self) -> Iterator[Answers]:
        """Where tuples arrive faster or slower than the join is tuned for: answer who waits, and go on with one that is."""
        if self.retune is None:
            return
        seconds = getattr(self.backlog.clock, "seconds", None)
        opening = self.retune(
            self.driver.opened, self.backlog.arrived, time.monotonic() if seconds is None else seconds
        )
        if opening is not None:
            yield from self.driver.reopen(opening)

    def snapshot(self) -> Snapshot:
        """Every tuple that was taken from the stream and is neither answered nor dropped, between two steps.

        Also those that the stream has handed over and whose time has not come: it will not bring them again.
        """
        waiting = self.driver.snapshot()
        away = [] if self.store is None else self.store.unwritten()
        coming = [] if self.backlog.coming is None else [self.backlog.coming]
        if self.estimator is not None:
            coming = [_weighed(batch, 1.0) for batch in coming]
        for batch in [*self.backlog.held, *away, *coming]:
            waiting = waiting.followed_by(batch)
        shed = "" if self.store is None else self.store.mark()
        return replace(waiting, shed=shed)


def _estimated(answers: Answers, estimator: Estimator) -> Answers:
    for batch in answers:
        estimator.answered(batch)
        yield batch


def _weighed(batch: pa.RecordBatch, weight: float) -> pa.RecordBatch:
    return batch.append_column(WEIGHT_COLUMN, pa.array(np.full(len(batch), weight)))
