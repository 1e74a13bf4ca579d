"""Columns as plain memory: what kernels can read and write.

A schema is taken apart into leaves, each of which is fixed-width bytes, or bytes of varying length, with or without
nulls; a struct becomes the leaves inside it and one that says where it is null. Batches, pages, the window and the
front stage all speak leaves, so rows move between them without becoming Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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
class Rows:
    """Rows as columns in memory: for each leaf where its data, its offsets (32 bits) and its valid bytes are, or 0."""

    count: int
    addresses: I64
    owners: tuple[object, ...]  # of that memory, kept alive

    def after_key(self, offsets: I64, data: U8) -> Rows:
        """The same rows with one more leaf before the others: the bytes of a wide key."""
        narrow = offsets.astype(np.int32)
        first = np.array([[address_of(data), address_of(narrow), 0]], dtype=np.int64)
        return Rows(self.count, np.concatenate([first, self.addresses]), (narrow, data, *self.owners))


def leaves_of(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Take a schema apart."""
    return tuple(leaf for i, field in enumerate(schema) for leaf in _leaves(field, (i,), field.name))


def rows_of(batch: pa.RecordBatch, leaves: Sequence[Leaf]) -> Rows:
    """The rows of a batch; nothing is copied but booleans and where nulls are."""
    addresses = np.zeros((len(leaves), 3), dtype=np.int64)
    owners: list[object] = [batch]
    for i, leaf in enumerate(leaves):
        array = _at(batch, leaf.path)
        addresses[i] = _addresses(array, leaf, owners)
        owners.append(array)
    return Rows(len(batch), addresses, tuple(owners))


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
    elif pat.is_primitive(kind) or pat.is_fixed_size_binary(kind) or pat.is_decimal(kind):
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


def _addresses(array: pa.Array, leaf: Leaf, owners: list[object]) -> tuple[int, int, int]:
    start, buffers = array.offset, array.buffers()
    valid = 0
    if array.null_count and buffers and buffers[0] is not None:
        valid = _unpacked(array, 0, owners)
    if leaf.kind == NONE or not len(array):
        return 0, 0, valid
    if leaf.kind == BITS:
        return _unpacked(array, 1, owners), 0, valid
    if leaf.kind == STRING:
        data = 0 if buffers[2] is None else buffers[2].address
        return data, buffers[1].address + 4 * start, valid
    return buffers[1].address + leaf.width * start, 0, valid


def _unpacked(array: pa.Array, buffer: int, owners: list[object]) -> int:
    """Bits as bytes."""
    end = array.offset + len(array)
    bits = np.frombuffer(array.buffers()[buffer], dtype=np.uint8)
    values = np.unpackbits(bits, count=end, bitorder="little")[array.offset :]
    owners.append(values)
    return address_of(values)
