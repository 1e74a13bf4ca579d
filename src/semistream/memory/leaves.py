"""Columns as plain memory: what kernels can read and write.

A schema is taken apart into leaves, each of which is fixed-width bytes, or bytes of varying length, with or without
nulls; a struct becomes the leaves inside it and one that says where it is null. Batches, pages, the window and the
front stage all speak leaves, so rows move between them without becoming Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.address import address_of
from semistream.columnblock import BITS, FIXED, NONE, STRING
from semistream.errors import UnsupportedTypeError

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Leaf:
    """One leaf of a schema: `width` bytes a value; 0 where lengths vary; a boolean is one byte."""

    path: tuple[int, ...]  # the column, then the fields inside it
    type: pa.DataType
    width: int
    nullable: bool

    @cached_property
    def is_varying(self) -> bool:
        """Whether values have lengths of their own."""
        return bool(pat.is_string(self.type) or pat.is_binary(self.type))

    @cached_property
    def kind(self) -> int:
        """One of the kinds that kernels tell apart."""
        if pat.is_null(self.type):
            return NONE
        if self.is_varying:
            return STRING
        return BITS if pat.is_boolean(self.type) else FIXED


@dataclass(frozen=True)
class Values:
    """The values of one leaf: `data` end to end, `offsets` where lengths vary, `valid` where some are null."""

    data: U8
    offsets: I64 | None
    valid: U8 | None


@dataclass(frozen=True)
class Rows:
    """Rows as leaves."""

    count: int
    leaves: tuple[Values, ...]

    @cached_property
    def addresses(self) -> I64:
        """Where each leaf's data, offsets and valid bytes are; 0 where it has none."""
        table = np.zeros((len(self.leaves), 3), dtype=np.int64)
        for i, values in enumerate(self.leaves):
            table[i, 0] = address_of(values.data)
            table[i, 1] = 0 if values.offsets is None else address_of(values.offsets)
            table[i, 2] = 0 if values.valid is None else address_of(values.valid)
        return table


def leaves_of(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Take a schema apart."""
    return tuple(leaf for i, field in enumerate(schema) for leaf in _leaves(field, (i,), field.name))


def rows_of(batch: pa.RecordBatch, leaves: Sequence[Leaf]) -> Rows:
    """The rows of a batch as leaves; fixed-width data without an offset is not copied."""
    return Rows(len(batch), tuple(_values(_at(batch, leaf.path), leaf) for leaf in leaves))


def _leaves(field: pa.Field, path: tuple[int, ...], column: str) -> Iterator[Leaf]:
    kind = field.type
    if pat.is_struct(kind):
        # The struct's own nulls: a leaf without data.
        yield Leaf(path, pa.null(), 0, nullable=True)
        for i, child in enumerate(kind):
            yield from _leaves(child, (*path, i), column)
    elif pat.is_string(kind) or pat.is_binary(kind) or pat.is_null(kind):
        yield Leaf(path, kind, 0, nullable=True)
    elif pat.is_boolean(kind):
        yield Leaf(path, kind, 1, nullable=True)
    elif not pat.is_nested(kind) and not pat.is_dictionary(kind) and kind.bit_width % 8 == 0:
        yield Leaf(path, kind, kind.bit_width // 8, nullable=True)
    else:
        raise UnsupportedTypeError(
            f"column {column!r} in a join",
            found=f"type {kind}",
            hint="Leave it out, or cast it to string or binary.",
        )


def _at(batch: pa.RecordBatch, path: tuple[int, ...]) -> pa.Array:
    array = batch.column(path[0])
    for index in path[1:]:
        array = array.field(index)
    return array


def _values(array: pa.Array, leaf: Leaf) -> Values:
    count, start = len(array), array.offset
    valid = None
    if array.null_count and not pat.is_null(array.type):
        bits = np.frombuffer(array.buffers()[0], dtype=np.uint8)
        valid = np.unpackbits(bits, count=start + count, bitorder="little")[start:]
    if not leaf.width and not leaf.is_varying:
        return Values(np.empty(0, dtype=np.uint8), None, valid)
    if leaf.is_varying:
        offsets = _buffer(array, 1, np.dtype(np.int32))[start : start + count + 1].astype(np.int64)
        offsets = offsets if len(offsets) else np.zeros(1, dtype=np.int64)
        return Values(_buffer(array, 2, np.dtype(np.uint8)), offsets, valid)
    data = _buffer(array, 1, np.dtype(np.uint8))
    if pat.is_boolean(array.type):
        return Values(np.unpackbits(data, count=start + count, bitorder="little")[start:], None, valid)
    return Values(data[start * leaf.width : (start + count) * leaf.width], None, valid)


def _buffer(array: pa.Array, index: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    buffer = array.buffers()[index]
    return (
        np.frombuffer(buffer, dtype=dtype) if buffer is not None and buffer.size else np.empty(0, dtype=dtype)
    )
