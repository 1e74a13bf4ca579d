"""Keys as codes: whatever its types, a key becomes something whose byte order is the key order.

A key of at most eight bytes becomes one unsigned 64-bit number (narrow); any other becomes a byte string (wide). Both
compare as unsigned bytes, so sorting, the sparse index and look-ups need no case per type.

    int64  -7, 0, 7            ->  0x7ff...f9, 0x800...00, 0x800...07      (sign bit flipped)
    string "ab"                ->  61 62                                   (alone: as it is)
    (string "ab", int32 1)     ->  61 62 00 00 | 80 00 00 01               (in company: ended by 00 00, a 00 inside
                                                                            written 00 FF)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.arrow import from_numpy, to_numpy
from semistream.kernel import kernel

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
_MERGED = 64  # codes a probe: to go past so many in order takes less than half of what a binary search does
_DECIMAL_NARROW_DIGITS = 18


@dataclass(frozen=True)
class NarrowKeys:
    """Keys of at most eight bytes: one number each."""

    codes: U64

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.codes.nbytes

    def take(self, at: I64) -> NarrowKeys:
        """The keys at these positions."""
        return NarrowKeys(self.codes[at])

    def starts(self) -> NDArray[np.bool_]:
        """Where a key differs from the one before it (the first always does)."""
        flags = np.ones(len(self.codes), dtype=np.bool_)
        np.not_equal(self.codes[1:], self.codes[:-1], out=flags[1:])
        return flags

    def is_sorted(self) -> bool:
        """Whether the keys never fall."""
        return bool(np.all(self.codes[1:] >= self.codes[:-1]))

    def argsort(self) -> I64:
        """The stable order of the keys."""
        return np.argsort(self.codes, kind="stable").astype(np.int64, copy=False)

    def ordering(self) -> I64:
        """An order of the keys, for whom it does not matter which of equal ones comes first: three times as fast."""
        return np.argsort(self.codes).astype(np.int64, copy=False)

    def to_arrow(self) -> pa.Array:
        """The codes as a column, to be kept in an index file."""
        return from_numpy(self.codes)


@dataclass(frozen=True)
class WideKeys:
    """Keys of any length: byte strings, laid end to end."""

    offsets: I64
    data: U8

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.offsets.nbytes + self.data.nbytes

    def take(self, at: I64) -> WideKeys:
        """The keys at these positions."""
        lengths = (self.offsets[1:] - self.offsets[:-1])[at]
        offsets = np.zeros(len(at) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        _gather(self.offsets, self.data, at.astype(np.int64, copy=False), offsets, data)
        return WideKeys(offsets, data)

    def starts(self) -> NDArray[np.bool_]:
        """Where a key differs from the one before it (the first always does)."""
        flags = np.ones(len(self), dtype=np.bool_)
        _differs_from_previous(self.offsets, self.data, flags)
        return flags

    def is_sorted(self) -> bool:
        """Whether the keys never fall."""
        return bool(_never_falls(self.offsets, self.data))

    def argsort(self) -> I64:
        """The stable order of the keys."""
        order: NDArray[np.uint64] = to_numpy(pc.array_sort_indices(self.to_arrow()))
        return order.astype(np.int64)

    def ordering(self) -> I64:
        """An order of the keys."""
        return self.argsort()

    def to_arrow(self) -> pa.Array:
        """The codes as a column, to be kept in an index file."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)


Keys = NarrowKeys | WideKeys


@dataclass(frozen=True)
class KeyCodec:
    """Turns key columns of given types into codes. None of the columns may hold nulls."""

    types: tuple[pa.DataType, ...]

    @property
    def is_narrow(self) -> bool:
        """Whether every key fits into one 64-bit number."""
        widths = [_fixed_bytes(kind) for kind in self.types]
        return all(widths) and sum(widths) <= 8

    def encode(self, columns: Sequence[pa.Array]) -> Keys:
        """The codes of the keys in these columns, which are in key order and of the codec's types."""
        if self.is_narrow:
            codes = np.zeros(len(columns[0]), dtype=np.uint64)
            for column, kind in zip(columns, self.types, strict=True):
                # Eight bytes leave nothing to shift: such a column is the only one.
                codes = (codes << np.uint64(8 * _fixed_bytes(kind) % 64)) | _ordered(column, kind)
            return NarrowKeys(codes)
        if len(columns) == 1 and not _fixed_bytes(self.types[0]) and not pat.is_decimal(self.types[0]):
            return _raw_bytes(columns[0])
        parts = [_part(column, kind) for column, kind in zip(columns, self.types, strict=True)]
        return _concatenate(parts)

    def from_arrow(self, codes: pa.Array) -> Keys:
        """What `to_arrow` of the codes gave."""
        if self.is_narrow:
            return NarrowKeys(to_numpy(codes).astype(np.uint64, copy=False))
        return _raw_bytes(codes)

    def concat(self, pieces: Sequence[Keys]) -> Keys:
        """Several runs of codes as one."""
        if self.is_narrow:
            codes = [piece.codes for piece in pieces if isinstance(piece, NarrowKeys)]
            return NarrowKeys(np.concatenate(codes) if codes else np.empty(0, dtype=np.uint64))
        wide = [piece for piece in pieces if isinstance(piece, WideKeys)]
        lengths = [piece.offsets[1:] - piece.offsets[:-1] for piece in wide]
        offsets = np.zeros(sum(map(len, wide)) + 1, dtype=np.int64)
        if wide:
            np.cumsum(np.concatenate(lengths), out=offsets[1:])
        data = [piece.data[piece.offsets[0] : piece.offsets[-1]] for piece in wide]
        return WideKeys(offsets, np.concatenate(data) if data else np.empty(0, dtype=np.uint8))


def positions_of(probes: Keys, among: Keys, *, side: Literal["left", "right"]) -> I64:
    """Where each probe would be inserted among sorted keys: to the "left" of its equals or to the "right" of them."""
    if isinstance(among, NarrowKeys) and isinstance(probes, NarrowKeys):
        if len(among) > _MERGED * len(probes) or not probes.is_sorted():
            return np.searchsorted(among.codes, probes.codes, side=side).astype(np.int64, copy=False)
        out = np.empty(len(probes), dtype=np.int64)
        _merge(among.codes, probes.codes, side == "right", out)
        return out
    if isinstance(among, WideKeys) and isinstance(probes, WideKeys):
        out = np.empty(len(probes), dtype=np.int64)
        _search(among.offsets, among.data, probes.offsets, probes.data, side == "right", out)
        return out
    raise TypeError("keys of two codecs cannot be compared")


def is_in(probes: Keys, among: Keys) -> NDArray[np.bool_]:
    """Which probes are among sorted keys."""
    return positions_of(probes, among, side="right") > positions_of(probes, among, side="left")


def pairwise_equal(one: Keys, other: Keys) -> NDArray[np.bool_]:
    """Which keys are the same as those at the same position."""
    if isinstance(one, NarrowKeys) and isinstance(other, NarrowKeys):
        return np.equal(one.codes, other.codes)
    if isinstance(one, WideKeys) and isinstance(other, WideKeys):
        out = np.empty(len(one), dtype=np.bool_)
        _pairwise_equal(one.offsets, one.data, other.offsets, other.data, out)
        return out
    raise TypeError("keys of two codecs cannot be compared")


def shortest_separators(last: Keys, first: Keys) -> Keys:
    """For each i the shortest code above `last[i]` and not above `first[i]`: all an index needs to keep.

    Where the two are equal (a key that goes on over the page's edge) the code is kept whole.
    """
    if isinstance(last, WideKeys) and isinstance(first, WideKeys):
        lengths = np.empty(len(first), dtype=np.int64)
        _separator_lengths(last.offsets, last.data, first.offsets, first.data, lengths)
        offsets = np.zeros(len(first) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        _gather(first.offsets, first.data, np.arange(len(first), dtype=np.int64), offsets, data)
        return WideKeys(offsets, data)
    return first


def _fixed_bytes(kind: pa.DataType) -> int:
    """Bytes of a key column of this type in a code; 0 if they vary or are more than eight."""
    if pat.is_decimal(kind):
        return 8 if kind.precision <= _DECIMAL_NARROW_DIGITS else 0
    if pat.is_string(kind) or pat.is_binary(kind):
        return 0
    return int(kind.bit_width) // 8


def _ordered(column: pa.Array, kind: pa.DataType) -> U64:
    """The values as unsigned numbers in the same order, right-aligned in 64 bits."""
    width = _fixed_bytes(kind)
    if pat.is_decimal(kind):
        values = _buffer(column, 1, np.int64)[2 * column.offset : 2 * (column.offset + len(column)) : 2]
    else:
        unsigned = pat.is_unsigned_integer(kind)
        dtype = np.dtype(f"{'u' if unsigned else 'i'}{width}")
        values = _buffer(column, 1, dtype)[column.offset : column.offset + len(column)]
        if unsigned:
            return values.astype(np.uint64)
    shifted: U64 = values.astype(np.int64).view(np.uint64) + np.uint64(1 << (8 * width - 1))
    return shifted if width == 8 else shifted & np.uint64((1 << (8 * width)) - 1)


def _part(column: pa.Array, kind: pa.DataType) -> WideKeys:
    """One column of a composite key as self-delimiting bytes."""
    count = len(column)
    if pat.is_decimal(kind) and not _fixed_bytes(kind):
        words = _buffer(column, 1, np.uint64)[2 * column.offset : 2 * (column.offset + count)].reshape(
            count, 2
        )
        big = np.empty((count, 2), dtype=">u8")
        big[:, 0] = words[:, 1] + np.uint64(1 << 63)
        big[:, 1] = words[:, 0]
        return WideKeys(np.arange(count + 1, dtype=np.int64) * 16, big.view(np.uint8).reshape(-1))
    width = _fixed_bytes(kind)
    if width:
        codes = _ordered(column, kind).astype(">u8").view(np.uint8).reshape(count, 8)
        data = np.ascontiguousarray(codes[:, 8 - width :]).reshape(-1)
        return WideKeys(np.arange(count + 1, dtype=np.int64) * width, data)
    raw = _raw_bytes(column)
    offsets = np.zeros(count + 1, dtype=np.int64)
    _escaped_lengths(raw.offsets, raw.data, offsets)
    np.cumsum(offsets, out=offsets)
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    _escape(raw.offsets, raw.data, data)
    return WideKeys(offsets, data)


def _raw_bytes(column: pa.Array) -> WideKeys:
    dtype = np.int64 if pat.is_large_binary(column.type) or pat.is_large_string(column.type) else np.int32
    offsets = _buffer(column, 1, dtype)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(offsets) == 0:
        offsets = np.zeros(1, dtype=np.int64)
    return WideKeys(offsets, _buffer(column, 2, np.uint8))


def _concatenate(parts: Sequence[WideKeys]) -> WideKeys:
    lengths = sum(
        (part.offsets[1:] - part.offsets[:-1] for part in parts), np.zeros(len(parts[0]), dtype=np.int64)
    )
    offsets = np.zeros(len(parts[0]) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    at = offsets[:-1].copy()
    for part in parts:
        _place(part.offsets, part.data, at, data)
    return WideKeys(offsets, data)


def _buffer(column: pa.Array, index: int, dtype: np.typing.DTypeLike) -> NDArray[Any]:
    buffer = column.buffers()[index]
    return (
        np.frombuffer(buffer, dtype=dtype) if buffer is not None and buffer.size else np.empty(0, dtype=dtype)
    )


@kernel
def _compare(a: U8, a0: int, a1: int, b: U8, b0: int, b1: int) -> int:
    """Negative, zero or positive as bytes a[a0:a1] come before, equal or come after b[b0:b1]."""
    for i in range(min(a1 - a0, b1 - b0)):
        x, y = a[a0 + i], b[b0 + i]
        if x != y:
            return -1 if x < y else 1
    return (a1 - a0) - (b1 - b0)


@kernel
def _merge(among: U64, probes: U64, right: bool, out: I64) -> None:
    """Where sorted probes are among sorted codes: both are gone through side by side."""
    at = 0
    for i in range(len(probes)):
        probe = probes[i]
        while at < len(among) and (among[at] < probe or (right and among[at] == probe)):
            at += 1
        out[i] = at


@kernel
def _search(offsets: I64, data: U8, probe_offsets: I64, probe_data: U8, right: bool, out: I64) -> None:
    for p in range(len(probe_offsets) - 1):
        low, high = 0, len(offsets) - 1
        while low < high:
            middle = (low + high) // 2
            order = _compare(
                data, offsets[middle], offsets[middle + 1], probe_data, probe_offsets[p], probe_offsets[p + 1]
            )
            if order < 0 or (right and order == 0):
                low = middle + 1
            else:
                high = middle
        out[p] = low


@kernel
def _differs_from_previous(offsets: I64, data: U8, flags: NDArray[np.bool_]) -> None:
    for i in range(1, len(flags)):
        flags[i] = _compare(data, offsets[i - 1], offsets[i], data, offsets[i], offsets[i + 1]) != 0


@kernel
def _pairwise_equal(a_at: I64, a: U8, b_at: I64, b: U8, out: NDArray[np.bool_]) -> None:
    for i in range(len(out)):
        out[i] = _compare(a, a_at[i], a_at[i + 1], b, b_at[i], b_at[i + 1]) == 0


@kernel
def _never_falls(offsets: I64, data: U8) -> bool:
    for i in range(1, len(offsets) - 1):
        if _compare(data, offsets[i - 1], offsets[i], data, offsets[i], offsets[i + 1]) > 0:
            return False
    return True


@kernel
def _separator_lengths(last_at: I64, last: U8, first_at: I64, first: U8, lengths: I64) -> None:
    for i in range(len(lengths)):
        a0, a1, b0, b1 = last_at[i], last_at[i + 1], first_at[i], first_at[i + 1]
        common = 0
        while common < min(a1 - a0, b1 - b0) and last[a0 + common] == first[b0 + common]:
            common += 1
        lengths[i] = min(common + 1, b1 - b0)


@kernel
def _gather(offsets: I64, data: U8, at: I64, out_offsets: I64, out: U8) -> None:
    for i in range(len(at)):
        start = offsets[at[i]]
        for j in range(out_offsets[i + 1] - out_offsets[i]):
            out[out_offsets[i] + j] = data[start + j]


@kernel
def _escaped_lengths(offsets: I64, data: U8, out: I64) -> None:
    for i in range(len(offsets) - 1):
        zeros = 0
        for j in range(offsets[i], offsets[i + 1]):
            if data[j] == 0:
                zeros += 1
        out[i + 1] = offsets[i + 1] - offsets[i] + zeros + 2


@kernel
def _escape(offsets: I64, data: U8, out: U8) -> None:
    at = 0
    for i in range(len(offsets) - 1):
        for j in range(offsets[i], offsets[i + 1]):
            out[at] = data[j]
            at += 1
            if data[j] == 0:
                out[at] = 255
                at += 1
        out[at] = 0
        out[at + 1] = 0
        at += 2


@kernel
def _place(offsets: I64, data: U8, at: I64, out: U8) -> None:
    for i in range(len(at)):
        for j in range(offsets[i], offsets[i + 1]):
            out[at[i]] = data[j]
            at[i] += 1
