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

from semistream.address import address_of, copy_short
from semistream.errors import UnsupportedTypeError
from semistream.kernel import kernel

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


@dataclass(frozen=True)
class LeafPlan:
    """Leaves, with what has to be known of them whenever rows are put together."""

    leaves: tuple[Leaf, ...]

    @cached_property
    def widths(self) -> I64:
        """Bytes a value."""
        return np.array([leaf.width for leaf in self.leaves], dtype=np.int64)

    @cached_property
    def varying(self) -> I64:
        """Which are strings."""
        return np.array([i for i, leaf in enumerate(self.leaves) if leaf.is_varying], dtype=np.int64)


@dataclass
class Assembly:
    """Rows on the way out of records or pages: memory for `count` values of each leaf, to be filled by a kernel.

    First the fixed-width values, the lengths of strings and the valid bytes; then, when lengths are known, `add_strings`.
    One block of memory holds them all: a leaf's part of it begins at a cache line.
    """

    plan: LeafPlan
    count: int
    block: U8
    starts: NDArray[np.int64]
    offsets: I64  # a row a varying leaf
    nullable: NDArray[np.bool_]
    addresses: I64  # as those of Rows
    strings: U8

    @staticmethod
    def of(plan: LeafPlan, count: int, nullable: NDArray[np.bool_]) -> Assembly:
        """Memory for rows of these leaves, with valid bytes for those that may have nulls."""
        sizes = np.stack([plan.widths * count, nullable * count]) + 63 & -64
        ends = np.cumsum(sizes).reshape(sizes.shape)
        starts = ends - sizes
        block = np.empty(int(ends[-1, -1]) if ends.size else 0, dtype=np.uint8)
        offsets = np.empty((len(plan.varying), count + 1), dtype=np.int64)
        offsets[:, 0] = 0
        addresses = np.zeros((len(plan.leaves), 3), dtype=np.int64)
        base = address_of(block)
        addresses[:, 0] = base + starts[0]
        addresses[:, 2] = np.where(nullable, base + starts[1], 0)
        addresses[plan.varying, 1] = address_of(offsets) + offsets.strides[0] * np.arange(len(plan.varying))
        return Assembly(plan, count, block, starts, offsets, nullable, addresses, block[:0])

    def add_strings(self) -> None:
        """Memory for the bytes of strings, whose offsets are there now."""
        ends = np.cumsum(self.offsets[:, -1])
        self.strings = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
        self.addresses[self.plan.varying, 0] = address_of(self.strings) + ends - self.offsets[:, -1]

    def rows(self) -> Rows:
        """The rows, once all is filled in."""
        found: list[Values] = []
        text = string = 0
        begins, widths, nullable = self.starts.tolist(), self.plan.widths.tolist(), self.nullable.tolist()
        for i, leaf in enumerate(self.plan.leaves):
            valid = self.block[begins[1][i] : begins[1][i] + self.count] if nullable[i] else None
            if leaf.is_varying:
                length = int(self.offsets[string, -1])
                found.append(Values(self.strings[text : text + length], self.offsets[string], valid))
                text += length
                string += 1
            else:
                start = begins[0][i]
                found.append(Values(self.block[start : start + self.count * widths[i]], None, valid))
        return Rows(self.count, tuple(found))


def leaves_of(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Take a schema apart."""
    return tuple(leaf for i, field in enumerate(schema) for leaf in _leaves(field, (i,), field.name))


def rows_of(batch: pa.RecordBatch, leaves: Sequence[Leaf]) -> Rows:
    """The rows of a batch as leaves; fixed-width data without an offset is not copied."""
    return Rows(len(batch), tuple(_values(_at(batch, leaf.path), leaf) for leaf in leaves))


def take_rows(rows: Rows, leaves: Sequence[Leaf], at: I64) -> Rows:
    """Some of the rows, in this order."""
    return Rows(
        len(at), tuple(_take(values, leaf, at) for leaf, values in zip(leaves, rows.leaves, strict=True))
    )


def batch_of(rows: Rows, leaves: Sequence[Leaf], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as a batch again."""
    found = dict(zip((leaf.path for leaf in leaves), zip(leaves, rows.leaves, strict=True), strict=True))
    columns = [_array(field, (i,), found, rows.count) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _take(values: Values, leaf: Leaf, at: I64) -> Values:
    valid = None if values.valid is None else values.valid[at]
    if values.offsets is not None:
        offsets = np.zeros(len(at) + 1, dtype=np.int64)
        np.cumsum(values.offsets[at + 1] - values.offsets[at], out=offsets[1:])
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        _gather(address_of(values.data), values.offsets, at, offsets, address_of(data))
        return Values(data, offsets, valid)
    if not leaf.width:
        return Values(values.data, None, valid)
    return Values(values.data.reshape(-1, leaf.width)[at].reshape(-1), None, valid)


@kernel
def _gather(data: int, offsets: I64, at: I64, out_offsets: I64, out: int) -> None:
    for i in range(len(at)):
        copy_short(out + out_offsets[i], data + offsets[at[i]], out_offsets[i + 1] - out_offsets[i])


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


def _array(
    field: pa.Field, path: tuple[int, ...], found: dict[tuple[int, ...], tuple[Leaf, Values]], count: int
) -> pa.Array:
    leaf, values = found[path]
    bitmap, nulls = None, 0
    if values.valid is not None:
        nulls = count - int(np.count_nonzero(values.valid))
        bitmap = pa.py_buffer(np.packbits(values.valid, bitorder="little")) if nulls else None
    if pat.is_struct(field.type):
        children = [_array(child, (*path, i), found, count) for i, child in enumerate(field.type)]
        return pa.Array.from_buffers(field.type, count, [bitmap], nulls, children=children)
    if pat.is_null(field.type):
        return pa.nulls(count)
    if leaf.is_varying and values.offsets is not None:
        offsets = pa.py_buffer(values.offsets.astype(np.int32))
        return pa.Array.from_buffers(field.type, count, [bitmap, offsets, pa.py_buffer(values.data)], nulls)
    data = np.packbits(values.data, bitorder="little") if pat.is_boolean(field.type) else values.data
    return pa.Array.from_buffers(field.type, count, [bitmap, pa.py_buffer(np.ascontiguousarray(data))], nulls)
