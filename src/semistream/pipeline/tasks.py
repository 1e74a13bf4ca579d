"""The two jobs of a micro-batch, as Spark's workers run them.

    Arrivals   the rows of the source, through the enrichments in which nobody waits
    Holding    one enrichment whose tuples may wait, and those behind it in which nobody does

Both end in files: answers, or tuples for the next enrichment that holds. What a task gives back to Spark is one line of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.accumulators import Accumulator

from semistream.arrow import plain
from semistream.pipeline.holding import Slot
from semistream.pipeline.routing import Route
from semistream.pipeline.spool import Spool
from semistream.pipeline.work import Tally, Work, told
from semistream.spark.metrics import Collected
from semistream.spark.task import Step, Task
from semistream.spark.worker import Enrichment, together

RESULT = "result string"
_ROWS = 1 << 16


@dataclass(frozen=True)
class Onward:
    """What becomes of rows: through enrichments in which nobody waits, then to the answers or to one in which somebody may."""

    steps: tuple[Step, ...]
    schema: pa.Schema  # c0, c1, ... behind those enrichments
    names: tuple[str, ...]
    hold: int  # the number of the enrichment they go to; -1: they are answers
    route: Route | None = None

    def write(
        self, rows: Iterable[pa.RecordBatch], spool: Spool, collected: Accumulator[Collected] | None
    ) -> None:
        """Take all rows to where they go."""
        if self.steps:
            rows = Enrichment(self.steps, collected)(rows)
        for batch in together(rows, _ROWS):
            batch = canonical(batch, self.schema)
            if self.route is None:
                answers = pa.RecordBatch.from_arrays(batch.columns, list(self.names))
                spool.write("answered", self.hold, 0, answers)
                continue
            for slot, part in self.route.split(batch):
                spool.write("arrived", self.hold, slot, part)


@dataclass(frozen=True)
class Arrivals:
    """What has arrived, taken in."""

    onward: Onward
    folder: str
    collected: Accumulator[Collected] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task."""
        spool, tally = Spool.of_task(self.folder), Tally()

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                tally.arrived += len(batch)
                yield plain(batch)

        self.onward.write(counted(), spool, self.collected)
        yield _line(told(spool.close(), tally))


@dataclass(frozen=True)
class Holding:
    """A held enrichment; the rows it is given are the numbers of slots."""

    work: Work
    onward: Onward
    folder: str
    collected: Accumulator[Collected] | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                spool = Spool.of_task(self.folder)
                slot = Slot(self.work, number, spool, Task.current(self.collected))
                self.onward.write(slot.answers(), spool, self.collected)
                slot.tally.check(self.work.hold.label)
                yield _line(told(spool.close(), slot.tally))


def canonical(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns in the types that the driver has planned with: a session's time zone is no part of a value."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _line(result: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(result)])], ["result"])
