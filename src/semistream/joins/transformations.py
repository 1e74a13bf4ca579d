"""What a warehouse does with the join (MESH sections 1 and 2, X-HYBRID section 1).

    assign_surrogate_keys   the source's key becomes the warehouse's
    find_new                tuples whose key the master does not have
    mark_duplicates         every tuple, and whether the master has its key
    with_columns            columns computed from what was joined

All give an iterator of batches with `.schema` and `.stats`, made one at a time as they are asked for.

A hit is told from a miss by the master's key: a stored key is never null, so where a left join gives a null key, the tuple
met nothing. Any other column may be null in a stored row too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Literal, TypeAlias, TypedDict, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.config import parse_bytes
from semistream.errors import InvalidInputError
from semistream.joins.base import JoinStats
from semistream.joins.join import JoinedStream, join
from semistream.joins.ordered import number_column, numbered
from semistream.joins.pagefinder import is_unique
from semistream.joins.registry import Settings
from semistream.joins.sides import On
from semistream.master import Master

Batches: TypeAlias = Iterable[pa.RecordBatch] | pa.Table
Computed: TypeAlias = Callable[[pa.RecordBatch], pa.Array] | pc.Expression
_MEMORY = "64MB"  # join's own default
_SEEN_SHARE = (
    64  # of the memory, at a bit a tuple: a segment is many windows, so that draining it costs little
)


class JoinOptions(TypedDict, total=False):
    """What is passed on to `join`, which explains it."""

    algorithm: str
    memory: int | str
    order: Literal["any", "stream"]
    versions: Literal["pinned", "newest"]
    disk: str
    settings: Settings | None


@dataclass
class Transformed(Iterator[pa.RecordBatch]):
    """What a transformation returns: iterate over it for the output; `stats` are those of the join beneath."""

    schema: pa.Schema
    stats: JoinStats
    _batches: Iterator[pa.RecordBatch]

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


def assign_surrogate_keys(
    batches: Batches,
    master: Master,
    *,
    on: On,
    surrogate: str,
    keep_key: bool = False,
    **options: Unpack[JoinOptions],
) -> Transformed:
    """Replace the key of the source by the key of the warehouse, which the master's column `surrogate` holds.

    The surrogate stands where the first key column stood; `keep_key` leaves the key columns behind it. A tuple whose key
    the master does not have gets null. A key with several rows has several surrogates: its tuples come once for each.
    """
    if surrogate not in master.schema.names:
        raise InvalidInputError(
            f"surrogate={surrogate!r}",
            found=f"a master with the columns {', '.join(master.schema.names)}",
            hint="Name one of them.",
        )
    joined = join(batches, master, on=on, how="left", columns=[surrogate], **options)
    last = len(joined.schema) - 1
    keys = {joined.schema.get_field_index(name) for name in ([on] if isinstance(on, str) else on)}
    place = min(keys)
    stays = [i for i in range(last) if keep_key or i not in keys]
    before = [i for i in stays if i < place]
    order = [*before, last, *stays[len(before) :]]
    # The join gave it a suffix even if only the key that goes has the name; then the name is free again.
    taken = {joined.schema.names[i] for i in stays}
    name = joined.schema.names[last] if surrogate in taken else surrogate
    schema = pa.schema(
        [joined.schema.field(i).with_name(name) if i == last else joined.schema.field(i) for i in order]
    )
    put_out = (
        pa.RecordBatch.from_arrays([batch.column(i) for i in order], schema=schema) for batch in joined
    )
    return Transformed(schema, joined.stats, put_out)


def find_new(batches: Batches, master: Master, *, on: On, **options: Unpack[JoinOptions]) -> Transformed:
    """The tuples whose key the master does not have, as they came; a key with a null in it is in no master."""
    joined = _with_master_key(batches, master, on, options)
    schema = pa.schema(list(joined.schema)[:-1])

    def missed() -> Iterator[pa.RecordBatch]:
        for batch in joined:
            new = batch.filter(pc.is_null(batch.column(len(schema))))
            if len(new):
                yield pa.RecordBatch.from_arrays(new.columns[:-1], schema=schema)

    return Transformed(schema, joined.stats, missed())


def mark_duplicates(
    batches: Batches,
    master: Master,
    *,
    on: On,
    name: str = "is_duplicate",
    **options: Unpack[JoinOptions],
) -> Transformed:
    """Every tuple once, with a boolean column: whether the master has its key already.

    Where a key may have several rows (`statistics.distinct_keys` is not the number of rows, or versions="newest"), a tuple
    may meet them in different disk accesses, so which tuples were put out must be remembered. To stay inside the budget
    the stream is then joined in segments: a bit for each tuple of a segment takes 1/64 of `memory`, and between two
    segments the join is drained and opened anew.
    """
    if not is_unique(master) or options.get("versions") == "newest":  # the next version may repeat keys
        return _marked_once(batches, master, on, name, options)
    joined = _with_master_key(batches, master, on, options)
    schema = _with_mark(pa.schema(list(joined.schema)[:-1]), name)
    return Transformed(schema, joined.stats, (_marked(batch, schema) for batch in joined))


def with_columns(joined: JoinedStream | Transformed, computed: Mapping[str, Computed]) -> Transformed:
    """Add columns computed from the others, batch by batch.

    Each is a function of the batch that gives an Array, or an expression of pyarrow.compute, and sees the columns added
    before it. Its type is learnt from an empty batch, before anything is joined.
    """
    schema = joined.schema
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    for name, compute in computed.items():
        if name in schema.names:
            raise InvalidInputError(
                f"a computed column {name!r}",
                found=f"columns {', '.join(schema.names)}",
                hint="Choose a name that is not taken.",
            )
        try:
            value = _value(empty, name, compute)
        except Exception as error:
            error.add_note(f"Column {name!r} was computed for a batch without rows, to learn its type.")
            raise
        empty = empty.append_column(name, value)
        schema = empty.schema
    return Transformed(schema, joined.stats, (_extended(batch, schema, computed) for batch in joined))


def _with_master_key(batches: Batches, master: Master, on: On, options: JoinOptions) -> JoinedStream:
    """All tuples, and behind their columns one that is null where they met nothing."""
    return join(batches, master, on=on, how="left", columns=master.key[:1], **options)


def _with_mark(stream: pa.Schema, name: str) -> pa.Schema:
    if name in stream.names:
        raise InvalidInputError(
            f"name={name!r}",
            found=f"a stream with the columns {', '.join(stream.names)}",
            hint="Choose a name that is not taken.",
        )
    return stream.append(pa.field(name, pa.bool_()))


def _marked(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The stream's columns, which come first, and the mark, from the master's key, which comes last."""
    mark = pc.is_valid(batch.column(batch.num_columns - 1))
    return pa.RecordBatch.from_arrays([*batch.columns[: len(schema) - 1], mark], schema=schema)


def _marked_once(batches: Batches, master: Master, on: On, name: str, options: JoinOptions) -> Transformed:
    """As `mark_duplicates`, where a tuple may meet several rows: the first row of each tuple is put out."""
    memory = parse_bytes(options.get("memory", _MEMORY), name="memory")
    seen = _Seen(np.zeros(max(1, memory // _SEEN_SHARE), dtype=np.uint8))
    less: JoinOptions = {**options, "memory": max(1, memory - len(seen.bits))}
    stream = getattr(batches, "schema", None)

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal stream
        for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
            stream = batch.schema
            yield batch

    pieces = _numbered(source(), seen.tuples)

    def next_segment(begin: pa.RecordBatch) -> JoinedStream:
        return _with_master_key(_segment(begin, pieces, seen.tuples), master, on, less)

    first = next(pieces, None)
    if first is not None:
        joined = next_segment(first)
    else:
        nothing = (
            [] if stream is None else stream.append(pa.field(number_column(stream), pa.int64())).empty_table()
        )
        joined = _with_master_key(nothing, master, on, less)
    schema = _with_mark(pa.schema(list(joined.schema)[:-2]), name)
    stats = JoinStats()

    def put_out(joined: JoinedStream) -> Iterator[pa.RecordBatch]:
        before = JoinStats()
        while True:
            for batch in joined:
                _add_up(stats, before, joined.stats, len(seen.bits))
                new = seen.first(batch.column(len(schema) - 1).to_numpy())
                if len(new):
                    yield _marked(batch.take(pa.array(new)) if len(new) < len(batch) else batch, schema)
            _add_up(stats, before, joined.stats, len(seen.bits))
            before = replace(stats)
            begin = next(pieces, None)
            if begin is None:
                return
            seen.bits[:] = 0
            del joined  # the next one needs its memory
            joined = next_segment(begin)

    _add_up(stats, JoinStats(), joined.stats, len(seen.bits))
    return Transformed(schema, stats, put_out(joined))


@dataclass(frozen=True)
class _Seen:
    """A bit a tuple, by its number: whether it was put out."""

    bits: NDArray[np.uint8]

    @property
    def tuples(self) -> int:
        return 8 * len(self.bits)

    def first(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where numbers are that were not seen before, each once; now they are."""
        fresh = np.flatnonzero((self.bits[numbers >> 3] >> (numbers & 7)) & 1 == 0)
        new, at = np.unique(numbers[fresh], return_index=True)
        np.bitwise_or.at(self.bits, new >> 3, (1 << (new & 7)).astype(np.uint8))
        return np.sort(fresh[at])


def _numbered(batches: Iterable[pa.RecordBatch], segment_tuples: int) -> Iterator[pa.RecordBatch]:
    """Each tuple with its number in its segment, as the last column; no batch goes over the end of a segment."""
    at = 0
    for batch in batches:
        name, begin = number_column(batch.schema), 0
        while begin < len(batch):
            piece = batch.slice(begin, segment_tuples - at)
            yield numbered(piece, name, at)
            begin += len(piece)
            at = (at + len(piece)) % segment_tuples


def _segment(
    begin: pa.RecordBatch, pieces: Iterator[pa.RecordBatch], segment_tuples: int
) -> Iterator[pa.RecordBatch]:
    """Numbered batches up to the one with the segment's last tuple."""
    for piece in chain([begin], pieces):
        yield piece
        if piece.column(piece.num_columns - 1)[-1].as_py() == segment_tuples - 1:
            return


def _add_up(total: JoinStats, before: JoinStats, now: JoinStats, seen_bytes: int) -> None:
    """Counts of all segments; sizes are those of the segment at work, and what remembers its tuples."""
    for field in fields(JoinStats):
        value = getattr(now, field.name)
        setattr(
            total,
            field.name,
            value + getattr(before, field.name) if isinstance(value, int | float) else value,
        )
    total.budget_bytes = now.budget_bytes + seen_bytes
    total.used = {**now.used, "tuples put out": seen_bytes}


def _extended(batch: pa.RecordBatch, schema: pa.Schema, computed: Mapping[str, Computed]) -> pa.RecordBatch:
    for name, compute in computed.items():
        value = _value(batch, name, compute)
        expected = schema.field(name).type
        if value.type != expected:
            raise InvalidInputError(
                f"a computed column {name!r} of type {expected}, as for a batch without rows",
                found=f"type {value.type}",
                hint="Give the same type always; pa.array(values, type) does, whatever the values.",
            )
        batch = batch.append_column(name, value)
    return batch


def _value(batch: pa.RecordBatch, name: str, compute: Computed) -> pa.Array:
    """What was computed, if it can be a column of the batch."""
    asked = f"a computed column {name!r} for {len(batch):,} rows"
    if not isinstance(compute, pc.Expression) and not callable(compute):
        raise InvalidInputError(
            asked,
            found=f"{type(compute).__name__} to compute it",
            hint="Pass a function of the batch, or an expression of pyarrow.compute.",
        )
    value = _projected(batch, compute) if isinstance(compute, pc.Expression) else compute(batch)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if not isinstance(value, pa.Array):
        raise InvalidInputError(
            asked, found=f"{type(value).__name__}", hint="Give a pyarrow Array with one value a row."
        )
    if len(value) != len(batch):
        raise InvalidInputError(
            asked, found=f"{len(value):,} values", hint="Give one value for each row of the batch."
        )
    return value


def _projected(batch: pa.RecordBatch, expression: pc.Expression) -> pa.ChunkedArray:
    """An expression's values; in one thread, which keeps the order of the rows."""
    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", source),
            acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"])),
        ]
    )
    return plan.to_table(use_threads=False).column("value")
