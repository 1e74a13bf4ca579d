"""What a stream tuple carries besides its key: each column a pure function of (seed, position).

A column is written as text where options are text: ``name:key``, ``name:position``, ``name:arrival``, ``name:int32:low:high``
(int16 and int64 alike), ``name:text:width``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.kernel import kernel
from semistream.workload.limits import MAX_KEYS, require_one_of, require_whole
from semistream.workload.randomness import derive, integers, mix, state_at

NumberType = Literal["int16", "int32", "int64"]
TIMESTAMP = pa.timestamp("us", tz="UTC")


class Rows(Protocol):
    """What the columns of one slice are made from."""

    @property
    def start(self) -> int:
        """The first position."""
        ...

    @property
    def stop(self) -> int:
        """The position after the last."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the stream."""
        ...

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The key of each row."""
        ...

    @cached_property
    def arrival_us(self) -> NDArray[np.int64]:
        """The arrival of each row, in microseconds since 1970."""
        ...


class Column(Protocol):
    """One column of a stream."""

    @property
    def name(self) -> str:
        """The column's name."""
        ...

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        ...

    def values(self, rows: Rows) -> pa.Array:
        """Make the column for some rows."""
        ...


@dataclass(frozen=True)
class Key:
    """The join key, an int64."""

    name: str

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return pa.int64()

    def values(self, rows: Rows) -> pa.Array:
        """Make the column for some rows."""
        return pa.array(rows.keys)


@dataclass(frozen=True)
class Position:
    """The tuple's number in the stream, from 0: an identifier that shows gaps and duplicates."""

    name: str

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return pa.int64()

    def values(self, rows: Rows) -> pa.Array:
        """Make the column for some rows."""
        return pa.array(np.arange(rows.start, rows.stop, dtype=np.int64))


@dataclass(frozen=True)
class ArrivalTime:
    """When the tuple arrives, to the microsecond."""

    name: str

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return TIMESTAMP

    def values(self, rows: Rows) -> pa.Array:
        """Make the column for some rows."""
        return pa.array(rows.arrival_us).cast(TIMESTAMP)


@dataclass(frozen=True)
class Number:
    """A whole number, each from `low` to `high` equally likely."""

    name: str
    number_type: NumberType
    low: int
    high: int

    def __post_init__(self) -> None:
        require_one_of("number_type", self.number_type, get_args(NumberType))
        limit = 2 ** (int(self.number_type.removeprefix("int")) - 1)
        require_whole("low", self.low, -limit, limit - 1)
        require_whole("high", self.high, self.low, min(limit - 1, self.low + MAX_KEYS - 1))

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return pa.type_for_alias(self.number_type)

    def values(self, rows: Rows) -> pa.Array:
        """Make the column for some rows."""
        key = derive(rows.seed, f"column {self.name}")
        drawn = integers(rows.start, rows.stop, key, self.high - self.low + 1) + self.low
        return pa.array(drawn.astype(self.number_type))


@dataclass(frozen=True)
class Text:
    """Random letters, always `width` of them: ballast that makes a tuple as wide as asked."""

    name: str
    width: int

    def __post_init__(self) -> None:
        require_whole("width", self.width, 1, 65_536)

    @property
    def type(self) -> pa.DataType:
        """The column's Arrow type."""
        return pa.string()

    def values(self, rows: Rows) -> pa.Array:
        """Make the column for some rows."""
        n = rows.stop - rows.start
        letters = np.empty((n, self.width), dtype=np.uint8)
        _fill_letters(letters, rows.start, derive(rows.seed, f"column {self.name}"))
        return fixed_width_text(letters)


def fixed_width_text(letters: NDArray[np.uint8]) -> pa.Array:
    """Make strings of the rows of a byte matrix, without copying it."""
    n, width = letters.shape
    if n * width >= 2**31:
        raise InvalidInputError(
            f"a slice of {n:,} rows", found=f"text of {width:,} bytes each", hint="Ask for smaller batches."
        )
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters))


@kernel
def _fill_letters(out: NDArray[np.uint8], start: int, key: np.uint64) -> None:
    words = (out.shape[1] + 15) // 16
    for i in range(out.shape[0]):
        for w in range(words):
            bits = mix(state_at(key, (start + i) * words + w))
            for c in range(16 * w, min(16 * (w + 1), out.shape[1])):
                out[i, c] = np.uint8(97) + np.uint8(bits & np.uint64(15))
                bits >>= np.uint64(4)


def tuple_bytes(columns: tuple[Column, ...]) -> int:
    """Give the width of a tuple in bytes, as the papers count it: values only."""
    return sum(c.width if isinstance(c, Text) else c.type.bit_width // 8 for c in columns)


def parse_column(text: str) -> Column:
    """Read a column from its text form.

    >>> parse_column("quantity:int32:1:9")
    Number(name='quantity', number_type='int32', low=1, high=9)
    """
    hint = "Write name:key, name:position, name:arrival, name:int32:low:high or name:text:width."
    name, _, rest = text.strip().partition(":")
    match rest.split(":"):
        case ["key"] if name:
            return Key(name)
        case ["position"] if name:
            return Position(name)
        case ["arrival"] if name:
            return ArrivalTime(name)
        case ["text", width] if name and width.isdecimal():
            return Text(name, int(width))
        case ["int16" | "int32" | "int64" as kind, low, high] if name and _is_whole(low) and _is_whole(high):
            return Number(name, kind, int(low), int(high))
    raise InvalidInputError(f"column {text!r}", found="no column in it", hint=hint)


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
