"""Slots by key: a hash table that keeps all slots of a key together, in the order they came.

Open addressing with linear probing. An entry is one word, the hash of a key and the last of its slots, so that looking for
a key that is not there touches one cache line; the slots of a key are a ring, the last one pointing at the first.
Removing shifts later entries back, so there are no tombstones and a table never has to be rebuilt.

    entries   | hash, slot |  empty  | hash, slot | ...        half of them, at most, are taken
    codes     64 bits a slot: a narrow key is its code; a wide key's code is a hash, and its bytes are compared as well
    chain     slot -> the next of its key; through the free slots, the next free one
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semistream.address import address_of, load32, load64, prefetch, same_bytes
from semistream.kernel import inlined, kernel
from semistream.memory.budget import Budget
from semistream.memory.rowstore import RowStore

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
SLOT_BYTES = 8 + 4  # code, chain
_ENTRY_BYTES = 8
_ENTRIES_PER_SLOT = 2
_EMPTY = -1
FIRST_FREE, FREE = 0, 1  # of `state`


class KeyBytes(NamedTuple):
    """Where the bytes of a stored wide key are; `stride` 0 for narrow keys, whose code says it all."""

    records: int
    heap: int
    stride: int
    heap_at: int
    length_at: int


class Table(NamedTuple):
    """See the picture above; `state` is the first free slot and how many there are."""

    entries: I64
    codes: U64
    chain: I32
    state: I64
    keys: KeyBytes


class Probes(NamedTuple):
    """Keys to look for: codes and, for wide keys, their bytes."""

    codes: U64
    offsets: I64
    data: U8


def bytes_for(slots: int) -> int:
    """Bytes of a table of so many slots."""
    return slots * SLOT_BYTES + _entries_for(slots) * _ENTRY_BYTES


def allocate(budget: Budget, name: str, store: RowStore, slots: int, *, wide: bool, who: str) -> Table:
    """A table inside the budget, of the rows in a store. For wide keys a row's first leaf is the key's bytes."""
    entries = budget.array(name, _entries_for(slots), "i8", who=who)
    codes = budget.array(name, slots, "u8", who=who)
    chain = budget.array(name, slots, "i4", who=who)
    entries.fill(_EMPTY)
    chain[:] = np.arange(1, slots + 1)
    layout = store.layout
    keys = KeyBytes(0, 0, 0, 0, 0)
    if wide:
        keys = KeyBytes(
            address_of(store.records),
            address_of(store.heap),
            layout.stride,
            layout.heap_at,
            layout.offsets[0],
        )
    return Table(entries, codes, chain, np.array([0, slots], dtype=np.int64), keys)  # type: ignore[arg-type]


def take_free(table: Table, count: int) -> I64:
    """Slots for `count` new rows; there must be so many."""
    slots = np.empty(count, dtype=np.int64)
    _take_free(table.chain, table.state, slots)
    return slots


def _entries_for(slots: int) -> int:
    return max(8, _ENTRIES_PER_SLOT * slots)


@inlined
def hash_of(code: int) -> int:
    """31 bits that depend on all bits of a code."""
    mixed = np.uint64(code)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(33))  # type: ignore[return-value]


@inlined
def approach(table: Table, codes: U64, some: I64) -> None:
    """Fetch what looking for some of these codes will touch: one by one each would wait for the memory."""
    entries, stored, chain = table.entries.ctypes.data, table.codes.ctypes.data, table.chain.ctypes.data
    count = len(table.entries)
    for i in some:
        prefetch(entries + 8 * ((hash_of(codes[i]) * count) >> 31))
    for i in some:
        wanted = hash_of(codes[i])
        word = table.entries[(wanted * count) >> 31]
        if (word >> 32) == wanted:
            slot = word & 0x7FFFFFFF
            prefetch(stored + 8 * slot)
            prefetch(chain + 4 * slot)


@inlined
def find(table: Table, code: int, key: int, length: int) -> int:
    """The entry of a key, or -1 - p where p is the empty entry it would go to; `key` is where a wide one's bytes are."""
    entries, codes, keys = table.entries, table.codes, table.keys
    count = len(entries)
    wanted = hash_of(code)
    at = (wanted * count) >> 31
    found = -1
    while True:
        word = entries[at]
        if word == _EMPTY:
            found = -1 - at
            break
        if (word >> 32) == wanted:
            slot = word & 0x7FFFFFFF
            if codes[slot] == code:
                if keys.stride == 0:
                    found = at
                    break
                record = keys.records + slot * keys.stride
                if load32(record + keys.length_at) == length and same_bytes(
                    keys.heap + load64(record + keys.heap_at), key, length
                ):
                    found = at
                    break
        at += 1
        if at == count:
            at = 0
    return found


@inlined
def find_slot(table: Table, slot: int) -> int:
    """The entry of the key that a stored row has, or of where it would go."""
    keys = table.keys
    key, length = 0, 0
    if keys.stride != 0:
        record = keys.records + slot * keys.stride
        key = keys.heap + load64(record + keys.heap_at)
        length = load32(record + keys.length_at)
    return find(table, table.codes[slot], key, length)


@inlined
def last_of(table: Table, at: int) -> int:
    """The last slot of an entry; `chain` of it is the first."""
    last: int = table.entries[at] & 0x7FFFFFFF
    return last


@inlined
def insert(table: Table, at: int, code: int, slot: int) -> None:
    """Add a slot behind the others of its key; `at` is what `find` gave."""
    if at < 0:
        at = -1 - at
        table.chain[slot] = slot
    else:
        last = table.entries[at] & 0x7FFFFFFF
        table.chain[slot] = table.chain[last]
        table.chain[last] = slot
    table.entries[at] = (hash_of(code) << 32) | slot


@inlined
def remove_first(table: Table, at: int) -> None:
    """Remove the first slot of an entry, and the entry with its last one; the slot is free then."""
    entries, chain, state = table.entries, table.chain, table.state
    last = entries[at] & 0x7FFFFFFF
    first = chain[last]
    following = chain[first]
    chain[first] = state[0]
    state[0] = first
    state[1] += 1
    if first != last:
        chain[last] = following
    else:
        # Shift back every entry that was pushed past the hole.
        count = len(entries)
        hole = at
        at += 1
        if at == count:
            at = 0
        while entries[at] != _EMPTY:
            home = ((entries[at] >> 32) * count) >> 31
            from_home, from_hole = at - home, at - hole
            if from_home < 0:
                from_home += count
            if from_hole < 0:
                from_hole += count
            if from_home >= from_hole:
                entries[hole] = entries[at]
                hole = at
            at += 1
            if at == count:
                at = 0
        entries[hole] = _EMPTY


@kernel
def _take_free(chain: I32, state: I64, slots: I64) -> None:
    slot = state[0]
    for i in range(len(slots)):
        slots[i] = slot
        slot = chain[slot]
    state[0] = slot
    state[1] -= len(slots)
