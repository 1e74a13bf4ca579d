"""Conditions beyond equality (MESH section 3.3): what else a tuple and a master row must satisfy to be a pair.

A condition is a function of a batch of candidate pairs, all output columns side by side, that gives a boolean a pair. With
`on=` the candidates have equal keys; without it every tuple meets every master row, and only a scan can bring them
together. `Between` is a condition that is understood, so that without `on=` not every pair has to be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.errors import InvalidInputError, UnsupportedTypeError

Condition = Callable[[pa.RecordBatch], pa.BooleanArray]
I64 = NDArray[np.int64]
PAIRS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Between:
    """`low` <= `stream` <= `high`: a column of the stream between two of the master. A null bound is no bound.

    >>> Between("sold_at", low="valid_from", high="valid_to")
    Between(stream='sold_at', low='valid_from', high='valid_to')
    """

    stream: str
    low: str
    high: str

    def __call__(self, pairs: pa.RecordBatch) -> pa.BooleanArray:
        """Which pairs satisfy it."""
        value = pairs.column(self.stream)
        above = pc.fill_null(pc.less_equal(pairs.column(self.low), value), pairs.column(self.low).is_null())
        below = pc.fill_null(pc.less_equal(value, pairs.column(self.high)), pairs.column(self.high).is_null())
        return pc.and_(value.is_valid(), pc.and_(above, below))

    def renamed(self, names: Mapping[str, str]) -> Between:
        """With the names that the master's columns have in the output."""
        for name in (self.low, self.high):
            if name not in names:
                raise InvalidInputError(
                    f"condition={self}",
                    found=f"output with the master's columns {', '.join(names) or '(none)'}",
                    hint=f"{name!r} must be one of them; add it to columns=.",
                )
        return replace(self, low=names[self.low], high=names[self.high])

    def check(self, output: pa.Schema) -> None:
        """Refuse columns that cannot be compared."""
        if self.stream not in output.names:
            raise InvalidInputError(
                f"condition={self}",
                found=f"a stream without {self.stream!r}",
                hint="`stream` names a column of it.",
            )
        kind = output.field(self.stream).type
        for name in (self.low, self.high):
            if output.field(name).type != kind:
                raise InvalidInputError(
                    f"condition={self}",
                    found=f"{self.stream} of type {kind} and {name} of type {output.field(name).type}",
                    hint="Cast the stream's column to the master's type.",
                )
        if not (pat.is_integer(kind) or pat.is_temporal(kind) or pat.is_floating(kind)):
            raise UnsupportedTypeError(
                f"condition={self}", found=f"type {kind}", hint="Use numbers, dates, times or timestamps."
            )


def passing(condition: Condition, pairs: pa.RecordBatch) -> I64:
    """Which pairs satisfy a condition, whatever the user's function gives."""
    answer = condition(pairs)
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if not isinstance(answer, pa.Array):
        answer = pa.array(answer)
    if not pat.is_boolean(answer.type) or len(answer) != len(pairs):
        raise InvalidInputError(
            f"condition={condition!r} of {len(pairs):,} pairs",
            found=f"{len(answer):,} values of type {answer.type}",
            hint="Give one boolean for each row of the batch.",
        )
    chosen: I64 = np.flatnonzero(answer.fill_null(False).to_numpy(zero_copy_only=False))
    return chosen


def in_ranges(values: pa.Array, low: pa.Array, high: pa.Array) -> tuple[I64, I64, I64]:
    """For each range the values inside it: those of range i are order[first[i]:last[i]]."""
    numbers = _numbers(values.drop_null())
    order = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    by_value = np.argsort(numbers, kind="stable")
    ordered = numbers[by_value]
    usable = len(ordered) - int(np.isnan(ordered).sum()) if ordered.dtype.kind == "f" else len(ordered)
    ordered = ordered[:usable]  # no number is between anything and NaN
    first = np.searchsorted(ordered, _bounds(low, lowest=True), side="left")
    last = np.searchsorted(ordered, _bounds(high, lowest=False), side="right")
    first[_is_nan(low)] = usable
    last[_is_nan(high)] = 0
    return order[by_value], first.astype(np.int64), np.maximum(first, last).astype(np.int64)


def _bounds(column: pa.Array, *, lowest: bool) -> NDArray[np.generic]:
    numbers = _numbers(column.fill_null(0) if not pat.is_temporal(column.type) else column)
    kind: Any = numbers.dtype
    extreme: float = -np.inf if lowest else np.inf
    if kind.kind in "iu":
        extreme = np.iinfo(kind).min if lowest else np.iinfo(kind).max
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return np.where(missing, np.asarray(extreme, dtype=kind), numbers)


def _is_nan(column: pa.Array) -> NDArray[np.bool_]:
    if not pat.is_floating(column.type):
        return np.zeros(len(column), dtype=np.bool_)
    nan: NDArray[np.bool_] = np.isnan(column.fill_null(0).to_numpy(zero_copy_only=False))
    return nan


def _numbers(column: pa.Array) -> NDArray[np.generic]:
    """The values as NumPy numbers of the same order."""
    if pat.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).fill_null(0)
    numbers: NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return numbers
