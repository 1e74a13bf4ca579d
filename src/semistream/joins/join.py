"""`join()`: a stream of batches in, a stream of batches out, no Spark needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from semistream.config import parse_bytes
from semistream.errors import InvalidInputError
from semistream.joins.base import JoinStats
from semistream.joins.condition import Condition
from semistream.joins.registry import OpenJoin, Settings, check_algorithm, open_join
from semistream.joins.sides import JoinShape, On, shape_join
from semistream.master import Master
from semistream.memory.rowstore import string_bytes


@dataclass
class JoinedStream(Iterator[pa.RecordBatch]):
    """What `join` returns: iterate over it for the output; `stats` says what was done so far."""

    schema: pa.Schema
    stats: JoinStats
    _batches: Iterator[pa.RecordBatch]

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


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
    disk: str = "direct",
    settings: Settings | None = None,
) -> JoinedStream:
    """Join a stream with a master inside a byte budget.

    Args:
        batches: Record batches of one schema, in arrival order; a table or a reader will do.
        master: What `open_master` or `build_master` gave.
        on: The key: a name, several, or a mapping of the stream's names to the master's. None joins by `condition` alone.
        how: "inner" leaves tuples out that match nothing, "left" keeps them with nulls.
        algorithm: One of ALGORITHMS.
        memory: The budget for disk buffer, window, front stage and index together.
        columns: The master's columns wanted; all but its key by default.
        condition: What else a pair must satisfy: a function of a batch of candidate pairs that gives a boolean each, or
            `Between`. For meshjoin, r-meshjoin, cmeshjoin and, with `on`, in-memory.
        disk: How pages are read: "direct", "buffered" or a simulated disk's profile.
        settings: Parameters of the algorithm, for experiments.

    Returns:
        An iterator of batches, with `.schema` and `.stats`.
    """
    check_algorithm(algorithm)
    memory_bytes = parse_bytes(memory, name="memory")
    source = iter(batches.to_batches() if isinstance(batches, pa.Table) else batches)
    first = next((batch for batch in source if len(batch)), None)
    schema = first.schema if first is not None else getattr(batches, "schema", None)
    if schema is None:
        raise InvalidInputError(
            "a stream to join",
            found="no batch and no schema",
            hint="Pass a RecordBatchReader to join an empty stream.",
        )
    shape = shape_join(schema, master, on=on, how=how, columns=columns, condition=condition)
    opened = open_join(
        algorithm,
        master,
        shape,
        memory_bytes=memory_bytes,
        disk_kind=disk,
        heap_bytes=_string_bytes(shape, first),
        settings=settings or Settings(),
    )
    rest = source if first is None else _chained(first, source)
    return JoinedStream(shape.output, opened.join.stats, _run(opened, shape, rest))


def _run(opened: OpenJoin, shape: JoinShape, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Offer what there is room for, advance when there is none; drain when the stream ends."""
    joined, stats = opened.join, opened.join.stats
    try:
        for batch in batches:
            if batch.schema != shape.stream:
                raise InvalidInputError(
                    "a stream of one schema",
                    found=f"a batch with {batch.schema}",
                    hint=f"Cast it to {shape.stream}.",
                )
            stats.tuples += len(batch)
            tuples, keyless = shape.keyed(batch)
            stats.misses += len(keyless)
            stats.answered += len(keyless)
            missed = shape.missed(lambda: keyless)
            if missed is not None:
                stats.rows += len(missed)
                yield missed
            while len(tuples):
                if joined.room:
                    answers, taken = joined.offer(tuples)
                    yield from answers
                    tuples = tuples.select(slice(taken, None))
                    if taken:
                        continue
                yield from joined.advance()
        while joined.pending:
            yield from joined.advance()
    finally:
        opened.close()


def _chained(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _string_bytes(shape: JoinShape, batch: pa.RecordBatch | None) -> float:
    """What the strings of a tuple take, from the first batch; a little more, since the next may have longer ones."""
    if batch is None:
        return 16.0
    tuples, _ = shape.keyed(batch)
    if not len(tuples):
        return 16.0
    return 1.1 * float(string_bytes(tuples.rows, tuples.at).mean()) + 1
