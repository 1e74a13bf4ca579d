"""The two sides of a join as kernels see them: stream tuples with their codes, and the output they become.

Output columns are the stream's, then the master's without its key columns. A master column whose name the stream has
already gets the suffix ``_master``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.arrow import from_numpy
from semistream.columnblock import ANY_TEXT
from semistream.errors import InvalidInputError, check_choice
from semistream.joins.condition import Between, Condition, passing
from semistream.joins.keycast import cast_key
from semistream.kernel import kernel
from semistream.master import Master
from semistream.master.keys import KeyCodec, Keys, NarrowKeys, WideKeys
from semistream.memory.assembly import Assembled, ColumnBuilder, ColumnSource, column_builders
from semistream.memory.leaves import Leaf, Rows, leaves_of, rows_of
from semistream.memory.table import Probes

How = Literal["inner", "left"]
On = str | Sequence[str] | Mapping[str, str]
I64 = NDArray[np.int64]
CLASH_SUFFIX = "_master"
KEY_LEAF = Leaf((-1,), pa.binary(), 0, nullable=False)
Taker = Callable[[slice, int], Assembled]  # a part of what was asked for, unless it has more text than that
_OUTPUT_ROWS = (
    1 << 13
)  # pairs put out at a time: bounds the memory of output in flight, and its columns are taken from freed memory
_OUTPUT_TEXT = 4 << 20  # bytes of strings of either side, put out at a time
_NO_BYTES = np.empty(0, dtype=np.uint8)
_NO_OFFSETS = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Tuples:
    """Stream tuples on their way: rows `at` of some leaves (for wide keys the key's bytes first), and their codes."""

    rows: Rows
    at: NDArray[np.int64]
    codes: NDArray[np.uint64]
    keys: Keys  # of all of `rows`

    def __len__(self) -> int:
        return len(self.at)

    def select(self, which: NDArray[np.int64] | slice) -> Tuples:
        """Some of the tuples, in this order."""
        return Tuples(self.rows, self.at[which], self.codes[which], self.keys)


@dataclass(frozen=True)
class JoinShape:
    """What joins what: the stream's schema, its key columns in the order of the master's key, the output."""

    stream: pa.Schema
    stream_key: tuple[str, ...]
    codec: KeyCodec
    how: How
    master_columns: tuple[str, ...]
    output: pa.Schema
    stream_leaves: tuple[Leaf, ...]
    master_leaves: tuple[Leaf, ...]
    master_output: pa.Schema  # the master's part of the output
    condition: Condition | None = None

    @property
    def is_keyed(self) -> bool:
        """Whether equal keys are asked for; else every tuple meets every master row."""
        return bool(self.stream_key)

    @cached_property
    def wide(self) -> bool:
        """Whether keys need more than their 64-bit codes."""
        return self.is_keyed and not self.codec.is_narrow

    @cached_property
    def stream_builders(self) -> list[ColumnBuilder]:
        """How the stream's columns are made from kept tuples."""
        return column_builders(self.stream)

    @cached_property
    def master_builders(self) -> list[ColumnBuilder]:
        """How the master's columns are made."""
        return column_builders(self.master_output)

    @cached_property
    def source(self) -> ColumnSource:
        """From which tuples that need not wait are taken."""
        return ColumnSource(self.window_leaves)

    @cached_property
    def window_leaves(self) -> tuple[Leaf, ...]:
        """What is kept of a waiting tuple."""
        return (KEY_LEAF, *self.stream_leaves) if self.wide else self.stream_leaves

    def keyed(self, batch: pa.RecordBatch) -> tuple[Tuples, pa.RecordBatch]:
        """The tuples that have a key, and the rows that have none and so match nothing."""
        if not self.is_keyed:
            codes = np.zeros(len(batch), dtype=np.uint64)
            rows, every = rows_of(batch, self.stream_leaves), np.arange(len(batch), dtype=np.int64)
            return Tuples(rows, every, codes, NarrowKeys(codes)), batch.slice(0, 0)
        keys, valid = self._keys(batch)
        keyless = batch.slice(0, 0)
        if valid is not None:
            keyless, batch = batch.filter(pc.invert(valid)), batch.filter(valid)
        rows = rows_of(batch, self.stream_leaves)
        if isinstance(keys, WideKeys):
            rows = rows.after_key(keys.offsets, keys.data)
        return Tuples(rows, np.arange(rows.count, dtype=np.int64), codes_of(keys), keys), keyless

    def codes(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        """The codes of the tuples that have a key; the batch may have fewer columns than the stream, or more."""
        return codes_of(self._keys(batch)[0])

    def _keys(self, batch: pa.RecordBatch) -> tuple[Keys, pa.Array | None]:
        """The keys of the tuples that have one; and which do, where some do not."""
        columns = [
            cast_key(batch.column(batch.schema.get_field_index(name)), kind, name)
            for name, kind in zip(self.stream_key, self.codec.types, strict=True)
        ]
        valid = None
        if any(column.null_count for column in columns):
            valid = reduce(pc.and_, [column.is_valid() for column in columns])
            columns = [column.filter(valid) for column in columns]
        return self.codec.encode(columns), valid

    def probes(self, tuples: Tuples) -> Probes:
        """The tuples' keys, to be looked for among master rows in memory."""
        if isinstance(tuples.keys, NarrowKeys):
            return Probes(tuples.codes, _NO_OFFSETS, _NO_BYTES)
        keys = tuples.keys.take(tuples.at)
        return Probes(tuples.codes, keys.offsets, keys.data)

    def tuples_of(self, kept: Assembled) -> pa.RecordBatch:
        """Kept tuples as the batch they came as."""
        return pa.RecordBatch.from_arrays(self._stream_columns(kept), schema=self.stream)

    def no_tuples(self) -> pa.RecordBatch:
        """A batch of the stream with nothing in it."""
        return pa.RecordBatch.from_pylist([], schema=self.stream)

    def some(self, tuples: Tuples, at: NDArray[np.int64], most_text: int = ANY_TEXT) -> Assembled:
        """Some of the tuples, put together."""
        return self.source.take(tuples.rows, tuples.at[at], most_text)

    def joined(self, stream: Taker, master: Taker, count: int) -> Iterator[tuple[pa.RecordBatch, I64 | None]]:
        """Tuples with the master rows they met, side by side, in batches of bounded size.

        Either side gives its part of the pairs, a range of them at a time. Where there is a condition, with each batch comes
        which pairs passed it.
        """
        ranges = deque((start, min(start + _OUTPUT_ROWS, count)) for start in range(0, count, _OUTPUT_ROWS))
        while ranges:
            begin, end = ranges.popleft()
            most_text = _OUTPUT_TEXT if end - begin > 1 else ANY_TEXT
            left, right = stream(slice(begin, end), most_text), master(slice(begin, end), most_text)
            if (left.is_too_long or right.is_too_long) and end - begin > 1:
                middle = (begin + end) // 2
                ranges.extendleft([(middle, end), (begin, middle)])
                continue
            columns = self._stream_columns(left) + right.columns(self.master_builders)
            batch = pa.RecordBatch.from_arrays(columns, schema=self.output)
            if self.condition is None:
                yield batch, None
                continue
            chosen = passing(self.condition, batch)
            if len(chosen):
                yield batch.take(from_numpy(chosen)) if len(chosen) < len(batch) else batch, begin + chosen

    def _stream_columns(self, kept: Assembled) -> list[pa.Array]:
        return (kept.without_key() if self.wide else kept).columns(self.stream_builders)

    def missed(self, met_nothing: Callable[[], pa.RecordBatch]) -> pa.RecordBatch | None:
        """Tuples that met nothing, fetched if they are wanted: with nulls in a left join, nothing in an inner one."""
        tuples = met_nothing() if self.how == "left" else None
        if tuples is None or not len(tuples):
            return None
        nulls = [pa.nulls(len(tuples), field.type) for field in self.master_output]
        return pa.RecordBatch.from_arrays([*tuples.columns, *nulls], schema=self.output)


def shape_join(
    stream: pa.Schema,
    master: Master,
    *,
    on: On | None,
    how: str = "inner",
    columns: Sequence[str] | None = None,
    condition: Condition | None = None,
) -> JoinShape:
    """Check what is to be joined, once, and say how."""
    check_choice(f"{how=}", how, ("inner", "left"), what="join", hint="either")
    if on is None and condition is None:
        raise InvalidInputError(
            "a join without on= and condition=", found="nothing to join by", hint=f"Try on={master.key[0]!r}."
        )
    if len(set(stream.names)) < len(stream.names):
        raise InvalidInputError(
            "a stream with distinct column names",
            found=", ".join(stream.names),
            hint="Rename those that repeat.",
        )
    stream_key = () if on is None else _stream_key(stream, master, on)
    payload = _payload(master, columns, without=master.key if stream_key else ())
    selected = pa.schema([master.schema.field(name) for name in payload])
    named: list[pa.Field] = []
    for field in selected:
        name = _free_name(field.name, [*stream.names, *(other.name for other in named)])
        named.append(field.with_name(name).with_nullable(field.nullable or how == "left"))
    output = pa.schema([*stream, *named])
    if isinstance(condition, Between):
        condition = condition.renamed(dict(zip(payload, (field.name for field in named), strict=True)))
        condition.check(output)
    return JoinShape(
        stream=stream,
        stream_key=stream_key,
        codec=master.codec,
        how=how,  # type: ignore[arg-type]
        master_columns=payload,
        output=output,
        stream_leaves=leaves_of(stream),
        master_leaves=leaves_of(selected),
        master_output=pa.schema(named),
        condition=condition,
    )


def _stream_key(stream: pa.Schema, master: Master, on: On) -> tuple[str, ...]:
    """The stream's columns in the order of the master's key."""
    pairs = pairs_of(on)
    asked = f"on={on!r}"
    for name in pairs:
        if name not in stream.names:
            raise InvalidInputError(
                asked,
                found=f"a stream with the columns {', '.join(stream.names)}",
                hint=f"{name!r} must be one of them.",
            )
    if sorted(pairs.values()) != sorted(master.key):
        raise InvalidInputError(
            asked,
            found=f"a master keyed by {', '.join(master.key)}",
            hint="Join on exactly the master's key; map names that differ: on={'stream_name': 'master_name'}.",
        )
    by_master = {theirs: ours for ours, theirs in pairs.items()}
    return tuple(by_master[name] for name in master.key)


def _payload(master: Master, columns: Sequence[str] | None, *, without: Sequence[str]) -> tuple[str, ...]:
    if columns is None:
        return tuple(name for name in master.schema.names if name not in without)
    if isinstance(columns, str) or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"columns={columns!r}",
            found="no list of distinct names",
            hint="Name each column once: columns=['price'].",
        )
    unknown = [name for name in columns if name not in master.schema.names]
    if unknown:
        raise InvalidInputError(
            f"columns={list(columns)}",
            found=f"a master with the columns {', '.join(master.schema.names)}",
            hint=f"Leave out {', '.join(unknown)}.",
        )
    return tuple(columns)


def codes_of(keys: Keys) -> NDArray[np.uint64]:
    """A 64-bit number a key: the code itself, or a hash of it."""
    if isinstance(keys, NarrowKeys):
        return keys.codes
    codes = np.empty(len(keys), dtype=np.uint64)
    _hash(keys.offsets, keys.data, codes)
    return codes


def probes_of(keys: Keys) -> Probes:
    """Keys to look for in a window or a front stage."""
    if isinstance(keys, NarrowKeys):
        return Probes(keys.codes, _NO_OFFSETS, _NO_BYTES)
    return Probes(codes_of(keys), keys.offsets, keys.data)


def pairs_of(on: On) -> dict[str, str]:
    """The master's column of each of the stream's."""
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping):
        return dict(on)
    if not isinstance(on, Iterable):
        raise InvalidInputError(
            f"on={on!r}", found=f"a {type(on).__name__}", hint="Give a name, several, or a mapping."
        )
    return {name: name for name in on}


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += CLASH_SUFFIX
    return name


@kernel
def _hash(offsets: NDArray[np.int64], data: NDArray[np.uint8], codes: NDArray[np.uint64]) -> None:
    """A multiplicative hash, eight bytes at a time; equal hashes are told apart by the bytes."""
    factor = np.uint64(0x9FB21C651E98DF25)
    for i in range(len(codes)):
        value = np.uint64(offsets[i + 1] - offsets[i]) * factor
        at = offsets[i]
        while at < offsets[i + 1]:
            word = np.uint64(0)
            for j in range(min(8, offsets[i + 1] - at)):
                word |= np.uint64(data[at + j]) << np.uint64(8 * j)
            value = (value ^ word) * factor
            value ^= value >> np.uint64(29)
            at += 8
        codes[i] = value
