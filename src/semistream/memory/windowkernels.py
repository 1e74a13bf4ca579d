"""The loops of the window, compiled: over its records, its queue and its filter.

A record starts with the table's header (table.py), then come its neighbours in the queue and its flags. The queue's ends, its
border and how many are young are one small array that the window keeps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.address import load8, load32, load64, prefetch, store8, store32
from semistream.kernel import inlined, kernel
from semistream.memory import table as tables
from semistream.memory.table import (
    Probes,
    Table,
    approach,
    find,
    find_slot,
    hash_of,
    insert,
    last_narrow,
    last_of,
    next_of,
    remove_first,
)

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_BEFORE, _AFTER, _FLAGS = tables.HEADER_BYTES, tables.HEADER_BYTES + 4, tables.HEADER_BYTES + 8
HEADER_BYTES = _FLAGS + 1
_MATCHED, _YOUNG = 1, 2  # flags
NOBODY = 0xFFFFFFFF
OLDEST, NEWEST, BORDER, YOUNG_COUNT = range(4)  # of the ends; the border is the newest that is not young
_BLOCK = 256  # master rows filtered together
_AT_ONCE = 64  # tuples whose memory is fetched together


def no_ends() -> I64:
    """The ends and the border of an empty queue."""
    ends = np.full(4, NOBODY, dtype=np.int64)
    ends[YOUNG_COUNT] = 0
    return ends


@inlined
def _second(hash_: int) -> int:
    """Another hash, from the first."""
    return (hash_ * 0x9E3779B1) & 0x7FFFFFFF


@inlined
def _set_bits(bits: I64, hash_: int) -> None:
    count = 64 * len(bits)
    at = (hash_ * count) >> 31
    bits[at >> 6] |= 1 << (at & 63)
    at = (_second(hash_) * count) >> 31
    bits[at >> 6] |= 1 << (at & 63)


@kernel
def fill_filter(table: Table, bits: I64) -> None:
    """Make the filter anew, from the keys in the table."""
    bits[:] = 0
    for word in table.entries:
        if word >= 0:
            _set_bits(bits, word >> 32)


@kernel
def link(table: Table, bits: I64, ends: I64, codes: U64, slots: I64) -> None:
    """Put tuples into the table and the filter, and at the end of the queue, in this order; all of them are young."""
    newest = ends[NEWEST]
    some = np.arange(_AT_ONCE)
    for i in range(len(slots)):
        if i % _AT_ONCE == 0:
            approach(table, codes, some[: min(_AT_ONCE, len(slots) - i)] + i)
        slot = slots[i]
        insert(table, codes[i], slot)
        _set_bits(bits, hash_of(codes[i]))
        record = table.records + slot * table.stride
        store8(record + _FLAGS, _YOUNG)
        store32(record + _BEFORE, newest)
        store32(record + _AFTER, NOBODY)
        if newest != NOBODY:
            store32(table.records + newest * table.stride + _AFTER, slot)
        else:
            ends[OLDEST] = slot
        newest = slot
    ends[NEWEST] = newest
    ends[YOUNG_COUNT] += len(slots)


@inlined
def _waited_for(bits: I64, codes: U64, row: int, end: int, perhaps: I64) -> int:
    """Put the rows that somebody may wait for into `perhaps`; give how many."""
    bit_count = 64 * len(bits)
    passed = 0
    for i in range(row, end):
        at = (hash_of(codes[i]) * bit_count) >> 31
        perhaps[passed] = i
        passed += (bits[at >> 6] >> (at & 63)) & 1
    count = 0
    for j in range(passed):
        at = (_second(hash_of(codes[perhaps[j]])) * bit_count) >> 31
        perhaps[count] = perhaps[j]
        count += (bits[at >> 6] >> (at & 63)) & 1
    return count


@kernel
def match(
    table: Table,
    bits: I64,
    probes: Probes,
    row: int,
    done: int,
    mark: int,
    slots: I64,
    rows: I64,
) -> tuple[int, int, int]:
    """Pair rows from `row` on with the tuples of their keys, of the first of which `done` are paired already.

    Gives how many pairs there are, and the row and how many of its tuples to go on with.
    """
    pairs = 0
    data = probes.data.ctypes.data
    perhaps = np.empty(_BLOCK, dtype=np.int64)
    while row < len(probes.codes):
        end = min(row + _BLOCK, len(probes.codes))
        count = _waited_for(bits, probes.codes, row, end, perhaps)
        approach(table, probes.codes, perhaps[:count])
        for j in range(count):
            row = perhaps[j]
            if table.wide == 0:
                last = last_narrow(table, probes.codes[row])
            else:
                begin = probes.offsets[row]
                at = find(table, probes.codes[row], data + begin, probes.offsets[row + 1] - begin)
                last = last_of(table, at) if at >= 0 else -1
            if last < 0:
                continue
            slot = next_of(table, last)
            for _ in range(done):
                slot = next_of(table, slot)
            while True:
                if pairs == len(slots):
                    return pairs, row, done
                slots[pairs] = slot
                rows[pairs] = row
                if mark:
                    flags = table.records + slot * table.stride + _FLAGS
                    store8(flags, load8(flags) | _MATCHED)
                pairs += 1
                done += 1
                if slot == last:
                    break
                slot = next_of(table, slot)
            done = 0
        row = end
    return pairs, row, 0


@kernel
def walk(table: Table, slot: int, out: I64) -> None:
    """Fill `out` with a tuple and those that came after it."""
    for i in range(len(out)):
        out[i] = slot
        slot = load32(table.records + slot * table.stride + _AFTER)


@kernel
def walk_behind(table: Table, slot: int, slots: I64, codes: U64) -> int:
    """Find the tuples that came after one, and their codes; give how many there are."""
    for i in range(len(slots)):
        slot = load32(table.records + slot * table.stride + _AFTER)
        if slot == NOBODY:
            return i
        slots[i] = slot
        codes[i] = np.uint64(load64(table.records + slot * table.stride))
    return len(slots)


@kernel
def walk_back(table: Table, slot: int, out: I64) -> None:
    """Fill `out` with a tuple and those that came before it."""
    for i in range(len(out)):
        out[i] = slot
        slot = load32(table.records + slot * table.stride + _BEFORE)


@kernel
def move_border(table: Table, ends: I64, young: int) -> None:
    """Move the border until so many tuples are young."""
    border = ends[BORDER]
    while ends[YOUNG_COUNT] > young:
        border = ends[OLDEST] if border == NOBODY else load32(table.records + border * table.stride + _AFTER)
        flags = table.records + border * table.stride + _FLAGS
        store8(flags, load8(flags) & _MATCHED)
        ends[YOUNG_COUNT] -= 1
    while ends[YOUNG_COUNT] < young:
        record = table.records + border * table.stride
        store8(record + _FLAGS, load8(record + _FLAGS) | _YOUNG)
        border = load32(record + _BEFORE)
        ends[YOUNG_COUNT] += 1
    ends[BORDER] = border


@kernel
def get_matched(table: Table, slots: I64, out: NDArray[np.bool_]) -> None:
    """Which tuples have met a row."""
    for i in range(len(slots)):
        out[i] = load8(table.records + slots[i] * table.stride + _FLAGS) & _MATCHED != 0


@kernel
def set_matched(table: Table, slots: I64, matched: NDArray[np.bool_]) -> None:
    """Say which tuples have met a row."""
    for i in range(len(slots)):
        flags = table.records + slots[i] * table.stride + _FLAGS
        store8(flags, (load8(flags) & _YOUNG) | (_MATCHED if matched[i] else 0))


@kernel
def all_of_keys(table: Table, slots: I64, out: I64) -> int:
    """Find all tuples that have the key of one of these; give how many there are."""
    count = 0
    for i in range(len(slots)):
        at = find_slot(table, slots[i])
        if at < 0:
            continue  # nobody waits for it any more
        last = last_of(table, at)
        slot = last
        while True:
            slot = next_of(table, slot)
            out[count] = slot
            count += 1
            if slot == last:
                break
    return count


@inlined
def _approach_neighbours(table: Table, slot: int) -> None:
    """Those in the queue, which learn that a tuple has left; where there is none, what is asked for is read by nobody."""
    record = table.records + slot * table.stride
    prefetch(table.records + load32(record + _BEFORE) * table.stride)
    prefetch(table.records + load32(record + _AFTER) * table.stride)


@inlined
def _unlink(table: Table, ends: I64, slot: int) -> None:
    """Take a tuple out of the queue."""
    record = table.records + slot * table.stride
    before, after = load32(record + _BEFORE), load32(record + _AFTER)
    if before != NOBODY:
        store32(table.records + before * table.stride + _AFTER, after)
    else:
        ends[OLDEST] = after
    if after != NOBODY:
        store32(table.records + after * table.stride + _BEFORE, before)
    else:
        ends[NEWEST] = before
    if load8(record + _FLAGS) & _YOUNG:
        ends[YOUNG_COUNT] -= 1
    elif ends[BORDER] == slot:
        ends[BORDER] = before


@kernel
def take_out(
    table: Table, bits: I64, ends: I64, probes: Probes, row: int, slots: I64, rows: I64
) -> tuple[int, int]:
    """Pair rows from `row` on with the tuples of their keys, which leave the table and the queue.

    Gives how many pairs there are, and the row to go on with.
    """
    pairs = 0
    data = probes.data.ctypes.data
    perhaps = np.empty(_BLOCK, dtype=np.int64)
    while row < len(probes.codes):
        end = min(row + _BLOCK, len(probes.codes))
        count = _waited_for(bits, probes.codes, row, end, perhaps)
        approach(table, probes.codes, perhaps[:count])
        if table.wide == 0:
            for j in range(count):
                last = last_narrow(table, probes.codes[perhaps[j]])
                if last >= 0:
                    _approach_neighbours(table, next_of(table, last))
        for j in range(count):
            row = perhaps[j]
            key, length = 0, 0
            if table.wide != 0:
                key = data + probes.offsets[row]
                length = probes.offsets[row + 1] - probes.offsets[row]
            at = find(table, probes.codes[row], key, length)
            if at < 0:
                continue
            last = last_of(table, at)
            while True:
                if pairs == len(slots):
                    return pairs, row
                slot = next_of(table, last)
                remove_first(table, at)
                _unlink(table, ends, slot)
                flags = table.records + slot * table.stride + _FLAGS
                store8(flags, load8(flags) | _MATCHED)
                slots[pairs] = slot
                rows[pairs] = row
                pairs += 1
                if slot == last:
                    break
        row = end
    return pairs, row


@kernel
def release(table: Table, ends: I64, slots: I64, freed: I64) -> int:
    """Take tuples that still wait out of the table and the queue, put them into `freed`; give how many they are."""
    count = 0
    entries, total = table.entries_at, len(table.entries)
    for i in range(len(slots)):
        if i % _AT_ONCE == 0:
            some = slots[i : i + _AT_ONCE]
            for slot in some:
                prefetch(table.records + slot * table.stride)
            for slot in some:
                code = np.uint64(load64(table.records + slot * table.stride))
                prefetch(entries + 8 * ((hash_of(code) * total) >> 31))  # type: ignore[arg-type]
            for slot in some:
                _approach_neighbours(table, slot)
        slot = slots[i]
        at = find_slot(table, slot)
        if at < 0 or next_of(table, last_of(table, at)) != slot:
            continue  # gone already: it matched several rows
        remove_first(table, at)
        _unlink(table, ends, slot)
        freed[count] = slot
        count += 1
    return count
