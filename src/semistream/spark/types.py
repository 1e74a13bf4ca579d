"""The columns of a master as Spark has them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from semistream.errors import UnsupportedTypeError

_LARGEST_DECIMAL = 38
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """A DataFrame's columns as they come to a worker."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except Exception as error:  # PySpark has several for this
        raise UnsupportedTypeError(
            f"enriching {schema.simpleString()}",
            found=str(error).splitlines()[0],
            hint="Cast or drop the column that Arrow has no form for.",
        ) from error


def for_spark(kind: pa.DataType, column: str) -> pa.DataType:
    """The Arrow type, among those that Spark reads, that holds the values of a stored one."""
    if kind in _WIDER:
        return _WIDER[kind]
    if pat.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz is not None else None)
    if pat.is_duration(kind):
        return pa.duration("us")
    if pat.is_time(kind):
        return pa.time64("ns")
    if pat.is_fixed_size_binary(kind):
        return pa.binary()
    if pat.is_struct(kind):
        return pa.struct([field.with_type(for_spark(field.type, column)) for field in kind])
    if pat.is_decimal256(kind):
        if kind.precision > _LARGEST_DECIMAL:
            raise UnsupportedTypeError(
                f"column {column!r} on Spark",
                found=f"{kind}",
                hint=f"Spark's decimals have at most {_LARGEST_DECIMAL} digits: leave the column out with columns=.",
            )
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def spark_type(kind: pa.DataType, column: str) -> DataType:
    """Spark's type for what `for_spark` gave."""
    try:
        return from_arrow_type(kind)
    except Exception as error:  # PySpark has several for this
        raise UnsupportedTypeError(
            f"column {column!r} on Spark",
            found=f"type {kind}, which Spark has not",
            hint="Leave it out with columns=.",
        ) from error
