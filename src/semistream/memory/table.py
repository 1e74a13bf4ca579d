"""Slots by key: a hash table that keeps all slots of a key together, in the order they came.

Open addressing with linear probing. An entry is one word, the hash of a key and the last of its slots, so that looking for
a key that is not there touches one cache line; all that is known of a slot is in its record (rowstore.py), so that what is
found is one line more. The slots of a key are a ring, the last one pointing at the first. Removing shifts later entries
back, so there are no tombstones and a table never has to be rebuilt.

    entries   | hash, slot |  empty  | hash, slot | ...        half of them, at most, are taken
    record    | code | chain | ... |                           the header, then the row

A narrow key is its code of 64 bits. A wide key's code is a hash, and its bytes are compared as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semistream.address import address_of, load32, load64, prefetch, same_bytes, store32, store64
from semistream.kernel import inlined, kernel
from semistream.memory.budget import Budget
from semistream.memory.rowstore import RowStore

U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
CHAIN_AT, HEADER_BYTES = 8, 12  # in a record, which begins with the code
FREE = 1  # of `state`: the chain of freed slots, how many are free, the first never used, how many are in the chain, and spare
_ENTRY_BYTES = 8
_ENTRIES_PER_SLOT = 2
_EMPTY = -1
_SLOT = 0x7FFFFFFF
_CACHED = 1 << 18  # entries of a table that stays in the cache


class Table(NamedTuple):
    """See the picture above. `wide` is 1 where keys are bytes: the first string of the row."""

    entries: I64
    entries_at: int  # their address: asking an array for it costs more than a probe
    state: I64
    records: int
    heap: int
    stride: int
    wide: int
    heap_at: int
    length_at: int
    spare: NDArray[
        np.int32
    ]  # slots freed lately, the last first: the others are a chain through their records, cold by now


class Probes(NamedTuple):
    """Keys to look for: codes and, for wide keys, their bytes."""

    codes: U64
    offsets: I64
    data: U8


def bytes_for(slots: int) -> int:
    """Bytes of the entries for so many slots."""
    return _entries_for(slots) * _ENTRY_BYTES


def allocate(
    budget: Budget, name: str, store: RowStore, slots: int, *, wide: bool, who: str, spare: int = 0
) -> Table:
    """A table inside the budget, of the rows in a store. For wide keys a row's first leaf is the key's bytes."""
    entries = budget.array(name, _entries_for(slots), "i8", who=who)
    entries.fill(_EMPTY)
    freed = budget.array(name, spare, "i4", who=who)
    return over(entries, np.array([0, slots, 0, 0, 0], dtype=np.int64), store, wide=wide, spare=freed)


def over(
    entries: NDArray[np.generic],
    state: I64,
    store: RowStore,
    *,
    wide: bool,
    spare: NDArray[np.generic] | None = None,
) -> Table:
    """A table of these entries, of the rows in a store."""
    layout = store.layout
    freed = np.empty(0, dtype=np.int32) if spare is None else spare
    return Table(
        entries,  # type: ignore[arg-type]
        address_of(entries),
        state,
        address_of(store.records),
        address_of(store.heap),
        layout.stride,
        1 if wide else 0,
        layout.heap_at,
        layout.offsets[0] if wide else 0,
        freed,  # type: ignore[arg-type]
    )


def take_free(table: Table, count: int) -> I64:
    """Slots for `count` new rows; there must be so many."""
    slots = np.empty(count, dtype=np.int64)
    _take_free(table, slots)
    return slots


def codes_of(table: Table, slots: I64) -> U64:
    """The codes of rows."""
    codes = np.empty(len(slots), dtype=np.uint64)
    _codes_of(table, slots, codes)
    return codes


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
def is_cached(table: Table) -> bool:
    """Whether the table is so small that fetching ahead costs more than it saves."""
    return len(table.entries) <= _CACHED


@inlined
def approach(table: Table, codes: U64, some: I64) -> None:
    """Fetch what looking for some of these codes will touch: one by one each would wait for the memory."""
    entries, count = table.entries_at, len(table.entries)
    if not is_cached(table):
        for i in some:
            prefetch(entries + 8 * ((hash_of(codes[i]) * count) >> 31))
        for i in some:
            wanted = hash_of(codes[i])
            word = table.entries[(wanted * count) >> 31]
            if (word >> 32) == wanted:
                prefetch(table.records + (word & _SLOT) * table.stride)


@inlined
def look_ahead(table: Table, codes: U64, i: int) -> None:
    """While code i is looked for, fetch what those to come will touch."""
    count = len(table.entries)
    if i + 24 < len(codes):
        prefetch(table.entries_at + 8 * ((hash_of(codes[i + 24]) * count) >> 31))
        word = table.entries[(hash_of(codes[i + 12]) * count) >> 31]
        prefetch(table.records + (word & _SLOT) * table.stride)


@inlined
def look_near(table: Table, codes: U64, i: int) -> None:
    """The same for a table whose records are in the cache: its entries are enough."""
    if i + 16 < len(codes):
        prefetch(table.entries_at + 8 * ((hash_of(codes[i + 16]) * len(table.entries)) >> 31))


@inlined
def find(table: Table, code: int, key: int, length: int) -> int:
    """The entry of a key, or -1 - p where p is the empty entry it would go to; `key` is where a wide one's bytes are."""
    entries = table.entries
    count = len(entries)
    wanted = hash_of(code)
    signed = np.int64(code)
    at = (wanted * count) >> 31
    found = -1
    while True:
        word = entries[at]
        if word == _EMPTY:
            found = -1 - at
            break
        if (word >> 32) == wanted:
            record = table.records + (word & _SLOT) * table.stride
            if load64(record) == signed:
                if table.wide == 0:
                    found = at
                    break
                if load32(record + table.length_at) == length and same_bytes(
                    table.heap + load64(record + table.heap_at), key, length
                ):
                    found = at
                    break
        at += 1
        if at == count:
            at = 0
    return found


@inlined
def last_narrow(table: Table, code: int) -> int:
    """The last slot of a narrow key, or -1: what `find` does, without what only wide keys need."""
    entries, records, stride, count = table.entries_at, table.records, table.stride, len(table.entries)
    wanted = hash_of(code)
    signed = np.int64(code)
    at = (wanted * count) >> 31
    found = -1
    word = load64(entries + 8 * at)
    while word != _EMPTY:
        if (word >> 32) == wanted:
            slot = word & _SLOT
            if load64(records + slot * stride) == signed:
                found = slot
                break
        at += 1
        if at == count:
            at = 0
        word = load64(entries + 8 * at)
    return found


@inlined
def find_slot(table: Table, slot: int) -> int:
    """The entry of the key that a stored row has, or of where it would go."""
    record = table.records + slot * table.stride
    key, length = 0, 0
    if table.wide != 0:
        key = table.heap + load64(record + table.heap_at)
        length = load32(record + table.length_at)
    return find(table, np.uint64(load64(record)), key, length)  # type: ignore[arg-type]


@inlined
def last_of(table: Table, at: int) -> int:
    """The last slot of an entry; the one after it in the chain is the first."""
    return table.entries[at] & _SLOT  # type: ignore[no-any-return]


@inlined
def next_of(table: Table, slot: int) -> int:
    """The next slot of the same key."""
    return load32(table.records + slot * table.stride + CHAIN_AT)  # type: ignore[no-any-return]


@inlined
def insert(table: Table, code: int, slot: int) -> None:
    """Add a stored row behind the others of its key."""
    record = table.records + slot * table.stride
    store64(record, np.int64(code))
    at = find_slot(table, slot)
    if at < 0:
        at = -1 - at
        store32(record + CHAIN_AT, slot)
    else:
        last = table.records + (table.entries[at] & _SLOT) * table.stride + CHAIN_AT
        store32(record + CHAIN_AT, load32(last))
        store32(last, slot)
    table.entries[at] = (hash_of(code) << 32) | slot


@inlined
def remove_first(table: Table, at: int) -> None:
    """Remove the first slot of an entry, and the entry with its last one; the slot is free then."""
    entries, state = table.entries, table.state
    last = entries[at] & _SLOT
    first = next_of(table, last)
    following = next_of(table, first)
    if state[4] < len(table.spare):
        table.spare[state[4]] = first
        state[4] += 1
    else:
        store32(table.records + first * table.stride + CHAIN_AT, state[0])
        state[0] = first
        state[3] += 1
    state[1] += 1
    if first != last:
        store32(table.records + last * table.stride + CHAIN_AT, following)
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
def _take_free(table: Table, slots: I64) -> None:
    state = table.state
    for i in range(len(slots)):
        if state[4] > 0:
            state[4] -= 1
            slots[i] = table.spare[state[4]]
        elif state[3] > 0:
            slots[i] = state[0]
            state[0] = next_of(table, state[0])
            state[3] -= 1
        else:
            slots[i] = state[2]
            state[2] += 1
    state[1] -= len(slots)


@kernel
def _codes_of(table: Table, slots: I64, codes: U64) -> None:
    for i in range(len(slots)):
        codes[i] = np.uint64(load64(table.records + slots[i] * table.stride))
