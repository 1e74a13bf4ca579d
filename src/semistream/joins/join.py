"""`join()`: a stream of batches in, a stream of batches out, no Spark needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

import pyarrow as pa

from semistream.arrow import plain, plain_schema
from semistream.config import parse_bytes
from semistream.errors import InvalidInputError, check_choice
from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.condition import Condition
from semistream.joins.driver import Driver
from semistream.joins.opening import Opening, open_join
from semistream.joins.ordered import SHARE, Ordered, number_column
from semistream.joins.paced import STREAM_SHARE, PacedDriver
from semistream.joins.paced_opening import check_shedding, paced_driver
from semistream.joins.planning import (
    may_be_replanned,
    paced_replanner_for,
    planned,
    rate_retuner_for,
    replanner_for,
    retuner_for,
)
from semistream.joins.reader import reserve_for
from semistream.joins.registry import Settings, check_algorithm
from semistream.joins.resuming import check_resume, going_on
from semistream.joins.sides import JoinShape, On, shape_join
from semistream.joins.waiting import typical_bytes
from semistream.master import Master
from semistream.memory.rowstore import string_bytes
from semistream.shedding import WEIGHT_COLUMN, ArrivalClock, Shedding


@dataclass
class JoinedStream(Iterator[pa.RecordBatch]):
    """What `join` returns: iterate over it for the output; `stats` says what was done so far."""

    schema: pa.Schema
    _driver: Driver | PacedDriver
    _steps: Iterator[Answers]
    _answers: Answers = field(default_factory=lambda: iter(()))  # of the last step

    @property
    def stats(self) -> JoinStats:
        """Counts of everything so far."""
        return self._driver.counted()

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = next(self._answers, None)
            if batch is not None:
                self._driver.counted()
                return batch
            self._answers = next(self._steps)

    def ready(self) -> Iterator[pa.RecordBatch]:
        """The rest of what the last read answered: after it nothing is half done, and a snapshot can be taken."""
        yield from self._answers

    def snapshot(self) -> pa.RecordBatch:
        """Every tuple that was taken from the stream and is not answered, to go on with: `join(..., resume=...)`.

        What is answered must have been handed out: take `ready()` first.
        """
        if self._driver.ordered is not None:
            raise InvalidInputError(
                "a snapshot", found='order="stream", which holds answers back', hint='Join with order="any".'
            )
        left = next(self._answers, None)
        if left is not None:
            self._answers = chain([left], self._answers)
            raise InvalidInputError(
                "a snapshot",
                found="answers that were not handed out yet",
                hint="Take what ready() gives first.",
            )
        return self._driver.snapshot().to_arrow()


def join(
    batches: Iterable[pa.RecordBatch] | pa.Table,
    master: Master,
    *,
    on: On | None = None,
    how: str = "inner",
    algorithm: str = "auto",
    memory: int | str = "64MB",
    columns: Sequence[str] | None = None,
    condition: Condition | None = None,
    order: Literal["any", "stream"] = "any",
    versions: Literal["pinned", "newest"] = "pinned",
    resume: pa.RecordBatch | None = None,
    shedding: str | Shedding = "none",
    shed_to: str | Path | None = None,
    arrivals: ArrivalClock | None = None,
    disk: str = "direct",
    tuning: Literal["once", "dynamic"] = "once",
    settings: Settings | None = None,
) -> JoinedStream:
    """Join a stream with a master inside a byte budget.

    Args:
        batches: Record batches of one schema, in arrival order; a table or a reader will do.
        master: What `open_master` or `build_master` gave.
        on: The key: a name, several, or a mapping of the stream's names to the master's. None joins by `condition` alone.
        how: "inner" leaves tuples out that match nothing, "left" keeps them with nulls.
        algorithm: One of ALGORITHMS. "auto" chooses by the first batch, and once more when some thousand tuples have come, where that is
            smaller.
        memory: The budget for disk buffer, window, front stage and index together.
        columns: The master's columns wanted; all but its key by default.
        condition: What else a pair must satisfy: a function of a batch of candidate pairs that gives a boolean each, or
            `Between`. For meshjoin, r-meshjoin, cmeshjoin and, with `on`, in-memory.
        order: "stream" puts results out in the order their tuples came; "any" as they are found.
        versions: "newest" follows the master: tuples are answered from the version that is current when they arrive.
        resume: What `snapshot()` of an earlier join gave: its tuples are answered first.
        shedding: What happens when the stream is faster than the join: a strategy's name, or a `Shedding`.
        shed_to: A directory of its own, where shed tuples wait until the load falls.
        arrivals: Tells how much of the stream has arrived; without it tuples are taken when there is room for them.
        disk: How pages are read: "direct", "buffered" or a simulated disk's profile.
        tuning: "dynamic" watches a stream whose skew or share of misses drifts, and tunes the join anew while it runs; with `arrivals`, one
            whose rate does too, and serves it with the least memory.
        settings: Parameters of the algorithm, for experiments.

    Returns:
        An iterator of batches, with `.schema` and `.stats`.
    """
    check_algorithm(algorithm)
    check_choice(f"{order=}", order, ("any", "stream"), hint="either")
    check_choice(f"{versions=}", versions, ("pinned", "newest"), hint="either")
    check_choice(f"{tuning=}", tuning, ("once", "dynamic"), hint="either")
    memory_bytes = parse_bytes(memory, name="memory")
    asked = Shedding.of(shedding)
    check_shedding(asked, shed_to, arrivals, order=order, versions=versions)
    source = map(plain, batches.to_batches() if isinstance(batches, pa.Table) else batches)
    first, schema = _first_of(source)
    if schema is None:
        schema = _schema_of(batches)
    shape = shape_join(schema, master, on=on, how=how, columns=columns, condition=condition)
    heap_bytes, ordered = string_bytes_of(shape, first), None
    if asked.is_sampled:
        schema = schema.append(pa.field(WEIGHT_COLUMN, pa.float64()))
        shape = shape_join(schema, master, on=on, how=how, columns=columns, condition=condition)
    output = shape.output
    if order == "stream":
        ordered = Ordered(number_column(schema), int(SHARE * memory_bytes))
        numbered = schema.append(pa.field(ordered.column, pa.int64()))
        shape = shape_join(numbered, master, on=on, how=how, columns=columns, condition=condition)
    opening = Opening(
        algorithm,
        master,
        shape,
        memory_bytes,
        disk,
        heap_bytes,
        settings or Settings(),
        reserve_bytes=reserve_for(master, memory_bytes) if versions == "newest" else 0,
        ordered_bytes=ordered.limit_bytes if ordered is not None else 0,
        stream_bytes=int(STREAM_SHARE * memory_bytes) if arrivals is not None else 0,
    )
    snapshot = None if resume is None else Snapshot.from_arrow(resume)
    plan = opening
    if snapshot is not None:
        check_resume(snapshot, shape, shed_to)
        plan = going_on(opening, snapshot)
    again = may_be_replanned(plan, first)
    plan = planned(plan, first if first is None else with_columns(first, shape.stream))
    watch = retuner_for(opening) if tuning == "dynamic" and arrivals is None else None
    if again and arrivals is None:
        watch = replanner_for(opening, watch)
    driver = Driver(
        open_join(plan),
        source,
        ordered,
        follow=versions == "newest",
        retune=watch,
        resume=snapshot,
        coming=first,
    )
    if arrivals is None:
        return JoinedStream(output, driver, driver.steps())
    try:
        retune = rate_retuner_for(plan) if tuning == "dynamic" else None
        retune = paced_replanner_for(opening, retune) if again else retune
        paced = paced_driver(driver, source, arrivals, asked, shed_to, retune)
    except BaseException:
        driver.opened.close()
        raise
    return JoinedStream(output, paced, paced.steps())


def _first_of(source: Iterator[pa.RecordBatch]) -> tuple[pa.RecordBatch | None, pa.Schema | None]:
    """The first batch that has tuples, if there is one; and the schema, if there is any batch."""
    schema = None
    for batch in source:
        schema = batch.schema
        if len(batch):
            return batch, schema
    return None, schema


def _schema_of(batches: object) -> pa.Schema:
    """The schema of a stream without batches."""
    schema = getattr(batches, "schema", None)
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError(
            "a stream to join",
            found="no batch and no schema",
            hint="Pass a RecordBatchReader to join an empty stream.",
        )
    return plain_schema(schema)


def with_columns(batch: pa.RecordBatch, stream: pa.Schema) -> pa.RecordBatch:
    """A batch of the stream with the columns that the join adds to it: weights, or numbers."""
    for added in list(stream)[batch.num_columns :]:
        batch = batch.append_column(added, pa.nulls(len(batch), added.type))
    return batch


def string_bytes_of(shape: JoinShape, batch: pa.RecordBatch | None) -> float:
    """What the strings of a tuple take, from the first batch; a little more, since the next may have longer ones."""
    if batch is None:
        return 16.0
    tuples, _ = shape.keyed(batch)
    if not len(tuples):
        return 16.0
    return typical_bytes(string_bytes(tuples.rows, tuples.at))
