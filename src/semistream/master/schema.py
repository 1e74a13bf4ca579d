"""What a master may hold: its columns, checked and put into one plain form.

Arrow has several ways to write the same column (dictionary, 64-bit offsets, views). A store keeps one, the one Spark
uses, so that a page looks the same wherever its rows came from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pat

from semistream.errors import InvalidInputError, UnsupportedTypeError

KEY_TYPES_TEXT = "integers, string, binary, date, time, timestamp and decimal (or several columns of these)"


@dataclass(frozen=True)
class MasterSchema:
    """The columns of a master in stored form, and which of them are the key, in key order."""

    arrow: pa.Schema
    key: tuple[str, ...]

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        """The stored types of the key columns, in key order."""
        return tuple(self.arrow.field(name).type for name in self.key)

    def normalise(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring a batch of the source into stored form, by column name."""
        missing = [name for name in self.arrow.names if batch.schema.get_field_index(name) < 0]
        if missing:
            raise InvalidInputError(
                f"a batch with the columns {', '.join(self.arrow.names)}",
                found=f"columns {', '.join(batch.schema.names) or '(none)'}",
                hint=f"Add {', '.join(missing)}; every batch of a source needs the same columns.",
            )
        columns = []
        for field in self.arrow:
            column = batch.column(batch.schema.get_field_index(field.name))
            if column.type != field.type:
                try:
                    column = column.cast(field.type)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise InvalidInputError(
                        f"column {field.name!r} as {field.type}",
                        found=f"{column.type} ({error})",
                        hint="Cast it first.",
                    ) from error
            if column.null_count and not field.nullable:
                raise InvalidInputError(
                    f"column {field.name!r}, declared not null",
                    found=f"{column.null_count} nulls",
                    hint="Declare it nullable, or fill them.",
                )
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def master_schema(schema: pa.Schema, key: str | Sequence[str]) -> MasterSchema:
    """Check the columns of a source and say how they will be stored.

    >>> master_schema(pa.schema({"id": pa.int64(), "name": pa.large_string()}), "id").arrow.field("name").type
    DataType(string)
    """
    names = (key,) if isinstance(key, str) or not isinstance(key, Iterable) else tuple(key)
    asked = f"key={list(names) if len(names) != 1 else names[0]!r}"
    doubled = [name for name, count in Counter(schema.names).items() if count > 1]
    if doubled:
        raise InvalidInputError(
            "a source with distinct column names",
            found=f"{', '.join(map(repr, doubled))} more than once",
            hint="Rename or drop one of them.",
        )
    if not names or any(not isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise InvalidInputError(
            asked, found="no list of distinct column names", hint="Give one column name, or several."
        )
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise InvalidInputError(
            asked,
            found=f"columns {', '.join(schema.names) or '(none)'}",
            hint=f"Name an existing column instead of {', '.join(map(repr, missing))}.",
        )
    arrow = pa.schema([_stored_field(field, field.name) for field in schema])
    for name in names:
        if not is_key_type(arrow.field(name).type):
            raise UnsupportedTypeError(
                asked,
                found=f"{name!r} of type {arrow.field(name).type}",
                hint=f"A key can be made of {KEY_TYPES_TEXT}; cast the column first.",
            )
    return MasterSchema(arrow=arrow, key=names)


def is_key_type(kind: pa.DataType) -> bool:
    """Whether rows can be sorted and matched by a column of this type."""
    return bool(
        pat.is_integer(kind)
        or pat.is_string(kind)
        or pat.is_binary(kind)
        or pat.is_date(kind)
        or pat.is_time(kind)
        or pat.is_timestamp(kind)
        or pat.is_decimal128(kind)
    )


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The one form in which values of this type are stored."""
    if pat.is_dictionary(kind):
        return stored_type(kind.value_type, column)
    if pat.is_large_string(kind) or kind == pa.string_view():
        return pa.string()
    if pat.is_large_binary(kind) or kind == pa.binary_view():
        return pa.binary()
    if pat.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")  # the same instants; the zone is a matter of display
    if pat.is_decimal32(kind) or pat.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pat.is_struct(kind):
        return pa.struct([_stored_field(field, column) for field in kind])
    if pat.is_map(kind):
        return pa.map_(_stored_field(kind.key_field, column), _stored_field(kind.item_field, column))
    if pat.is_list(kind) or pat.is_large_list(kind):
        return pa.list_(_stored_field(kind.value_field, column))
    if pat.is_string(kind) or pat.is_binary(kind) or pat.is_null(kind) or _fixed_bits(kind):
        return kind
    raise UnsupportedTypeError(
        f"column {column!r}",
        found=f"type {kind}",
        hint="Cast it to a primitive, string, binary, struct, list or map type, or drop it.",
    )


def _stored_field(field: pa.Field, column: str) -> pa.Field:
    # A field's metadata is kept: Spark tells a variant or a geometry from a plain struct by it.
    return field.with_type(stored_type(field.type, column))


def _fixed_bits(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return 0
    try:
        return int(kind.bit_width)
    except ValueError:
        return 0
