"""What a task does for an enrichment whose tuples may wait: one slot of it, for one micro-batch.

    who waited, as the ledger of the last micro-batch has them     ->  answered, onward to the next enrichment or the sink
    who has arrived                                                ->  waiting, into this micro-batch's ledger
                                                                   ->  shed, the same, where the micro-batch is too large
                                                                   ->  dead letters

Everything in is accounted for: `Tally.check` refuses a slot in which a tuple was lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.joins.base import Join, Snapshot
from semistream.joins.opening import OpenJoin
from semistream.joins.sides import JoinShape, Tuples
from semistream.pipeline.pace import EVERYBODY, Pace, let_go, position_of
from semistream.pipeline.spool import Spool, read_arrived
from semistream.pipeline.waiting import SINCE, TRIED, Scan, ages_of
from semistream.pipeline.work import Hold, Tally, Work
from semistream.shedding import WEIGHT_COLUMN
from semistream.spark.metrics import Counts, peak_rss_bytes
from semistream.spark.task import Task
from semistream.spark.worker import Kept, as_spark_has_them, keep_join, numbers_of, take_join


@dataclass
class Slot:
    """One slot at work. `answers()` is to be taken to its end."""

    work: Work
    number: int
    spool: Spool
    task: Task
    tally: Tally = field(default_factory=Tally)

    @property
    def hold(self) -> Hold:
        """The enrichment."""
        return self.work.hold

    def answers(self) -> Iterator[pa.RecordBatch]:
        """Join; everything that is not answered is written where it belongs."""
        part = self.work.route.part(self.number)
        current: tuple[Snapshot, Scan] | None = None
        for path in self._files("begun"):
            snapshot, scan = self.hold.form.read_begun(path)
            self.tally.waited += len(snapshot.tuples)
            if (scan.version, scan.part) == (self.work.version, part) and current is None:
                current = snapshot, scan
            else:  # the master has changed, or is cut otherwise: who has begun is finished with what it began with
                yield from self._joined(snapshot, scan, iter(()), due_us=EVERYBODY)
        source = (batch for batch in self._source() if len(batch))
        if current is not None:
            yield from self._joined(*current, source, due_us=self.work.due_us, beyond=self._beyond())
            return
        first = next(source, None)
        if first is None:
            for batch in self._beyond():
                self._shed(batch)
            self.task.count(self.hold.step, Counts(budget_bytes=self.hold.step.memory_bytes))
            return
        scan = Scan(0, self.work.version, part, -1.0)
        yield from self._joined(
            Snapshot.untouched(first.slice(0, 0), scan.version),
            scan,
            chain([first], source),
            due_us=self.work.due_us,
            beyond=self._beyond(),
        )

    def _files(self, kind: str) -> list[str]:
        """Begun tuples belong to a slot; all others to whom the route gives them now."""
        slots = self.work.route.slots
        return [
            path
            for found, slot, path in self.work.ledger
            if found == kind and (kind != "begun" or slot % slots == self.number)
        ]

    def _source(self) -> Iterator[pa.RecordBatch]:
        """Tuples that have met nothing yet: who has waited longest, who is tried again, who has just arrived."""
        form, now_us = self.hold.form, self.work.now_us
        for path in self._files("untouched"):
            for tuples, _ in self._mine(path):
                self.tally.waited += len(tuples)
                yield tuples
        for part in self.work.returned:
            for tuples, _ in self._mine(part.path, part.first, part.rows):
                self.tally.waited += len(tuples)
                yield form.again(tuples, now_us)
        for path in self._files("missing"):
            for tuples, known in self._mine(path):
                self.tally.waited += len(tuples)
                tried = known.column(TRIED).to_numpy() == self.work.version
                self._still_missing(tuples.filter(pa.array(tried)))
                yield form.again(tuples.filter(pa.array(~tried)), now_us)
        ration = self.work.ration
        dice = np.random.default_rng((ration.seed, self.number))
        for batch in self._arrived(0, ration.of_slot(self.number)):
            yield self._drawn(batch, dice) if ration.strategy == "random" else batch

    def _arrived(self, first: int, end: int | None) -> Iterator[pa.RecordBatch]:
        """Of the tuples that have arrived in this slot, those from `first` on and before `end`."""
        at = 0
        for batch in read_arrived(self.work.arrived.get(self.number, [])):
            begin, stop = max(first - at, 0), len(batch) if end is None else min(end - at, len(batch))
            at += len(batch)
            if stop > begin:
                self.tally.arrived += stop - begin
                yield self.hold.form.arriving(batch.slice(begin, stop - begin), self.work.now_us)

    def _beyond(self) -> Iterator[pa.RecordBatch]:
        """Those that are not let in."""
        kept = self.work.ration.of_slot(self.number)
        return iter(()) if kept is None else self._arrived(kept, None)

    def _drawn(self, batch: pa.RecordBatch, dice: np.random.Generator) -> pa.RecordBatch:
        """Each tuple is let in with the same probability; where the others are lost, it stands for them too."""
        share, names = self.work.ration.share, self.hold.form.names
        chosen = dice.random(len(batch)) < share
        self._shed(batch.filter(pa.array(~chosen)))
        batch = batch.filter(pa.array(chosen))
        if self.work.ration.fate != "dropped":
            return batch
        number, weights = names.index(WEIGHT_COLUMN), pa.array(np.full(len(batch), 1 / share))
        return batch.set_column(number, batch.schema.field(number), weights)

    def _mine(
        self, path: str, first: int = 0, count: int | None = None
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        for tuples, known in self.hold.form.read(path, first, count):
            if self.work.route.slots == 1:
                yield tuples, known
                continue
            ours = pa.array(self.work.route.slot_of(tuples) == self.number)
            yield tuples.filter(ours), known.filter(ours)

    def _joined(
        self,
        begun: Snapshot,
        scan: Scan,
        source: Iterator[pa.RecordBatch],
        *,
        due_us: int,
        beyond: Iterable[pa.RecordBatch] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Let the begun go on, let the others in as far as there is room, read what may be read; the rest waits."""
        step = self.hold.step
        first = begun.tuples
        if not len(first):
            first = next(source)
            source = chain([first], source)
        heap = scan.heap_bytes if scan.heap_bytes >= 0 else None
        kept = take_join(step, self.task, first, version=scan.version, heap_bytes=heap)
        try:
            before, disk = numbers_of(kept), kept.opened.reader.disk.stats.snapshot()
            answered = kept.opened.join.stats.answered
            pace = Pace.of(
                kept.opened.join,
                due_us=due_us,
                share=self.work.share,
                parallel=step.settings.parallel,
                part=scan.part,
            )
            yield from self._run(kept.opened.join, kept.opened.opening.shape, pace, begun, source)
            yield from self._considered(kept.opened, beyond)
            self._write_down(kept, scan)
            self.tally.answered += kept.opened.join.stats.answered - answered
            read, after = kept.opened.reader.disk.stats - disk, numbers_of(kept)
            kept.share_front(step, self.task)
            keep_join(step, kept)
        except BaseException:
            kept.opened.close()
            raise
        self.tally.pages += after["pages"] - before["pages"]
        self.tally.bytes += read.bytes
        self.task.count(
            step,
            Counts(
                **{name: after[name] - before[name] for name in after},
                bytes=read.bytes,
                read_seconds=read.seconds,
                budget_bytes=step.memory_bytes,
                used_bytes=kept.opened.budget.used_bytes,
                peak_rss_bytes=peak_rss_bytes(),
                version=scan.version,
            ),
        )

    def _run(
        self, join: Join, shape: JoinShape, pace: Pace, begun: Snapshot, source: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        if len(begun.tuples):
            tuples, _ = shape.keyed(begun.tuples)
            join.restore(tuples, begun)
        pace.begin()
        for batch in source:
            join.stats.tuples += len(batch)
            tuples, keyless = shape.keyed(batch)
            yield from self._without_key(shape, keyless)
            while len(tuples):
                if join.room:
                    answers, taken = join.offer(tuples)
                    yield from self._split(answers)
                    tuples = tuples.select(slice(taken, None))
                    if taken:
                        continue
                if not pace.may_read(full=True):
                    self._no_room_for(shape, tuples)
                    break
                yield from self._split(join.advance())
        while join.pending and pace.may_read(full=False):
            yield from self._split(join.advance())

    def _considered(self, opened: OpenJoin, beyond: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Who is not let in is shed; if tuples are to be considered, all but those whom the front stage can answer."""
        shape = opened.opening.shape
        for batch in beyond:
            if self.work.ration.strategy != "considering":
                self._shed(batch)
                continue
            tuples, keyless = shape.keyed(batch)
            yield from self._without_key(shape, keyless)
            answers, absent = opened.answer_known(tuples)
            yield from self._split(answers)
            opened.join.stats.tuples += len(batch) - len(absent)
            self._shed(shape.tuples_of(shape.some(tuples, absent)))

    def _shed(self, tuples: pa.RecordBatch) -> None:
        if self.work.ration.fate == "dropped":
            self.tally.dropped += len(tuples)
        else:
            self._wait("shed", tuples)

    def _split(self, answers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What was answered, in Spark's types; what missed and is to be tried again goes back into the ledger."""
        width = self.hold.width
        for batch in as_spark_has_them(self.hold.step, iter(answers)):
            last = batch.num_columns
            if self.hold.retries:  # the master's key comes last: it is null where there was no row
                last -= 1
                missed = batch.column(last).is_null()
                if batch.column(last).null_count:
                    self._missed(batch.filter(missed))
                    batch = batch.filter(pc.invert(missed))
            columns = [*batch.columns[:width], *batch.columns[width + 2 : last]]
            if len(batch):
                yield pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])

    def _without_key(self, shape: JoinShape, keyless: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Tuples whose key is null, or no value that the master's key can have: no row will ever come for them."""
        if not len(keyless):
            return
        if self.hold.retries:
            self._bury(keyless, "a key that no master row can have")
            return
        self.tally.answered += len(keyless)
        missed = shape.missed(lambda: keyless)
        if missed is not None:
            yield from self._split([missed])

    def _missed(self, missed: pa.RecordBatch) -> None:
        """No row for them, in this version of the master."""
        self.tally.answered -= len(missed)  # the join has counted them
        aged = pa.RecordBatch.from_arrays(
            [
                column.cast(field.type)
                for column, field in zip(missed.columns, self.hold.form.aged, strict=False)
            ],
            schema=self.hold.form.aged,
        )
        self._still_missing(aged)

    def _still_missing(self, tuples: pa.RecordBatch) -> None:
        """They wait for a change of the master, or have waited long enough."""
        late = tuples.column(SINCE).to_numpy() + self.hold.retry_us <= self.work.now_us
        self._bury(tuples.filter(pa.array(late)), "no master row within retry_for")
        self._wait("missing", tuples.filter(pa.array(~late)))

    def _bury(self, tuples: pa.RecordBatch, reason: str) -> None:
        if not len(tuples):
            return
        written = self.hold.form.written(tuples, "missing", tried=self.work.version)
        columns = dict(zip(written.schema.names, written.columns, strict=True))
        names = [*self.hold.form.names, SINCE, TRIED]
        told = pa.array([reason]).take(pa.array(np.zeros(len(tuples), dtype=np.int64)))
        self.spool.write(
            "dead",
            self.hold.number,
            self.number,
            pa.RecordBatch.from_arrays(
                [*(columns[name] for name in names), told], [*names, "semistream_reason"]
            ),
        )
        self.tally.dead += len(tuples)

    def _no_room_for(self, shape: JoinShape, tuples: Tuples) -> None:
        everything = np.arange(len(tuples), dtype=np.int64)
        self._wait("untouched", shape.tuples_of(shape.some(tuples, everything)))

    def _write_down(self, kept: Kept, scan: Scan) -> None:
        """Who still waits in the join, oldest first."""
        join = kept.opened.join
        snapshot = join.snapshot()
        if len(snapshot.tuples):
            begun = snapshot.begun
            position, part = position_of(join)
            where = Scan(position, scan.version, part, kept.opened.heap_bytes)
            first = Snapshot(
                snapshot.tuples.slice(0, begun),
                snapshot.met[:begun],
                snapshot.matched[:begun],
                position,
                scan.version,
            )
            self._wait("begun", first.tuples, snapshot=first, scan=where)
            self._wait("untouched", snapshot.tuples.slice(begun))
        let_go(join)

    def _wait(
        self, kind: str, tuples: pa.RecordBatch, *, snapshot: Snapshot | None = None, scan: Scan | None = None
    ) -> None:
        if not len(tuples):
            return
        tried = self.work.version if kind == "missing" else 0
        batch = self.hold.form.written(tuples, kind, tried=tried, snapshot=snapshot, scan=scan)
        self.spool.write(kind, self.hold.number, self.number, batch, ages_of(tuples))
        if kind == "shed":
            self.tally.shed += len(tuples)
        else:
            self.tally.waiting += len(tuples)
