"""Waiting tuples by key: a hash table that keeps all tuples of a key together, in the order they came.

Open addressing with linear probing; an entry is a key, the first and the last of its tuples and how many they are.
Removing shifts later entries back, so there are no tombstones and a table never has to be rebuilt.

A narrow key is its 64-bit code. A wide key's code is a hash, so the key's bytes, which are the first string of the
tuple's record, are compared as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import inlined, load_number
from semistream.memory.budget import Budget

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
ENTRY_BYTES = 20
_LOAD = 2 / 3


class Table(NamedTuple):
    """The entries; an entry whose `first` is -1 is empty."""

    keys: U64
    first: I32
    last: I32
    tally: I32


class KeyBytes(NamedTuple):
    """Where the bytes of a stored wide key are; `stride` 0 for narrow keys, whose code says it all."""

    records: U8
    stride: int
    heap_at: int
    length_at: int
    heap: U8


class Probes(NamedTuple):
    """Keys to look for: codes and, for wide keys, their bytes."""

    codes: U64
    offsets: I64
    data: U8


def entries_for(slots: int) -> int:
    """The number of entries for this many keys: a power of two, at most two thirds full."""
    return 1 << max(3, int(np.ceil(np.log2(max(slots, 1) / _LOAD))))


def allocate(budget: Budget, name: str, slots: int, *, who: str) -> Table:
    """A table inside the budget."""
    entries = entries_for(slots)
    keys = budget.array(name, entries, "u8", who=who)
    first, last, tally = (budget.array(name, entries, "i4", who=who) for _ in range(3))
    first.fill(-1)
    return Table(keys, first, last, tally)  # type: ignore[arg-type]


@inlined
def place_of(code: int, mask: int) -> int:
    """Where to begin looking for a code: the high bits of a product, which depend on all bits of the code."""
    mixed = np.uint64(code) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(mask))  # type: ignore[return-value]


@inlined
def same_key(stored: KeyBytes, slot: int, data: U8, start: int, length: int) -> bool:
    """Whether a stored tuple's wide key is these bytes."""
    record = slot * stored.stride
    if load_number(stored.records, record + stored.length_at, 4) != length:
        return False
    at = load_number(stored.records, record + stored.heap_at, 8)
    for j in range(length):  # noqa: SIM110 - kernels know no generators
        if stored.heap[at + j] != data[start + j]:
            return False
    return True


@inlined
def find(table: Table, stored: KeyBytes, code: int, data: U8, start: int, length: int) -> int:
    """The entry of a key, or -1 - p where p is the empty entry it would go to."""
    keys, first = table.keys, table.first
    mask = len(keys) - 1
    at = place_of(code, mask)
    wide = stored.stride != 0
    while first[at] >= 0:
        if keys[at] == code and (not wide or same_key(stored, first[at], data, start, length)):
            return at
        at = (at + 1) & mask
    return -1 - at


@inlined
def find_slot(table: Table, stored: KeyBytes, code: int, slot: int) -> int:
    """The entry of the key that a stored tuple has."""
    if stored.stride == 0:
        return find(table, stored, code, stored.heap, 0, 0)
    record = slot * stored.stride
    length = load_number(stored.records, record + stored.length_at, 4)
    return find(
        table, stored, code, stored.heap, load_number(stored.records, record + stored.heap_at, 8), length
    )


@inlined
def insert(table: Table, stored: KeyBytes, chain: I32, code: int, slot: int) -> None:
    """Add a stored tuple behind the others of its key."""
    at = find_slot(table, stored, code, slot)
    chain[slot] = -1
    if at < 0:
        at = -1 - at
        table.keys[at] = code
        table.first[at] = slot
        table.tally[at] = 1
    else:
        chain[table.last[at]] = slot
        table.tally[at] += 1
    table.last[at] = slot


@inlined
def remove_first(table: Table, chain: I32, at: int) -> None:
    """Remove the oldest tuple of an entry, and the entry with its last one."""
    table.first[at] = chain[table.first[at]]
    table.tally[at] -= 1
    if table.first[at] >= 0:
        return
    # Shift back every entry that was pushed past the hole.
    mask = len(table.keys) - 1
    hole = at
    at = (at + 1) & mask
    while table.first[at] >= 0:
        home = place_of(table.keys[at], mask)
        if ((at - home) & mask) >= ((at - hole) & mask):
            table.keys[hole] = table.keys[at]
            table.first[hole] = table.first[at]
            table.last[hole] = table.last[at]
            table.tally[hole] = table.tally[at]
            table.first[at] = -1
            hole = at
        at = (at + 1) & mask
