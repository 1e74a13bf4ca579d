"""The stream's keys in the master's type. A value that this type cannot hold becomes null: it can match nothing.

Whole numbers, decimals and floats are compared by value, strings with strings, bytes with bytes, times with times of the same
kind. Anything else is refused, and by its type alone, so before any tuple has come.
"""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from semistream.errors import InvalidInputError

_DIGITS_OF_AN_INTEGER = 20
_EXACT = Context(prec=100)


def cast_key(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """A key column of the stream as the master's key is."""
    if column.type == kind:
        return column
    if pat.is_dictionary(column.type):
        return cast_key(column.dictionary_decode(), kind, name)
    if pat.is_float16(column.type):  # Arrow compares none
        column = column.cast(pa.float32())
    if not _comparable(column.type, kind):
        raise InvalidInputError(
            f"joining the stream's {name!r} with a key of type {kind}",
            found=f"{column.type}",
            hint=f"Cast the stream's column to {kind}.",
        )
    if pat.is_integer(column.type) and pat.is_integer(kind):
        return _fitting(column, kind).cast(kind)
    if pat.is_decimal(column.type) or pat.is_decimal(kind):
        if pat.is_integer(column.type):
            column = column.cast(pa.decimal128(_DIGITS_OF_AN_INTEGER, 0))
        return _what_fits(column, kind)
    cast = column.cast(kind, safe=False)
    same = pc.equal(cast.cast(column.type, safe=False), column)
    return pc.if_else(same, cast, pa.scalar(None, kind))


def _comparable(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether equal values of the two types mean the same."""
    both = (one, other)
    if all(pat.is_timestamp(kind) for kind in both):
        return (one.tz is None) == (other.tz is None)  # what is without a zone is no instant
    if any(pat.is_decimal(kind) for kind in both):
        return all(pat.is_decimal(kind) or pat.is_integer(kind) for kind in both)
    families = (_is_number, _is_text, _is_bytes, pat.is_date, pat.is_time)
    return any(all(is_one(kind) for kind in both) for is_one in families)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind) or kind == pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    plain = pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind)
    return bool(plain or kind == pa.binary_view())


def _fitting(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers without those that another type of them cannot hold."""
    limits = np.iinfo(kind.to_pandas_dtype())
    held = np.iinfo(column.type.to_pandas_dtype())
    fits = pc.and_(
        pc.greater_equal(column, pa.scalar(max(int(limits.min), int(held.min)), column.type)),
        pc.less_equal(column, pa.scalar(min(int(limits.max), int(held.max)), column.type)),
    )
    return pc.if_else(fits, column, pa.scalar(None, column.type))


def _what_fits(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decimals, or whole numbers as such, cast with nothing lost. Where that fails, one by one: most streams have none that do."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        values = column.to_pylist()
        if pat.is_integer(kind):
            limits = np.iinfo(kind.to_pandas_dtype())
            low, high = int(limits.min), int(limits.max)
            return pa.array(
                [None if v is None or v != int(v) or not low <= v <= high else int(v) for v in values], kind
            )
        return pa.array([v if v is not None and _has_room(kind, v) else None for v in values], kind)


def _has_room(kind: pa.DataType, value: Decimal) -> bool:
    units = value.scaleb(kind.scale, _EXACT)
    return bool(units == int(units) and abs(units) < 10**kind.precision)
