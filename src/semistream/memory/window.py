"""The window: stream tuples that wait for their master rows, in arrival order, removable at random.

The papers' hash table H_S and queue Q as one structure inside the budget: a record a tuple (rowstore.py), a table from
keys to tuples (table.py), and a doubly linked list through the slots that says who came first.

    record    | code | chain | before | after | flags | the tuple |       a slot each
    table     key -> first .. last            all tuples of a key, oldest first
    queue     oldest <-> .. border <-> .. newest    before and after; those behind the border are flagged young
    filter    eight bits a tuple              clear where no waiting tuple can have a key: small enough for the cache
    pairs     slot, row                       what a match found, until it is put out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.address import load8, load32, load64, prefetch, store8, store32
from semistream.kernel import inlined, kernel
from semistream.memory import table as tables
from semistream.memory.budget import Budget, capacity_within
from semistream.memory.leaves import Leaf, Rows
from semistream.memory.rowstore import RecordLayout, RowStore, string_bytes
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
_HEADER_BYTES = _FLAGS + 1
_MATCHED, _YOUNG = 1, 2  # flags
_NOBODY = 0xFFFFFFFF
_PAIRS = 1 << 14  # put out at a time; a small window has no more than it has tuples
_PAIR_BYTES = 16
_SPARE, _SPARE_BYTES = 1 << 13, 4  # places left lately that are known one by one: the next tuples take them
_SPARE_FROM = 1 << 16  # places: a smaller window stays in the cache
_OLDEST, _NEWEST, _BORDER, _YOUNG_COUNT = (
    0,
    1,
    2,
    3,
)  # of the ends; the border is the newest that is not young
_FILTER_BITS = 8  # a tuple, two of them set: one in twenty keys that nobody waits for passes
_STALE = 4  # the filter is made anew when one in so many places was left since: bits are only ever set
_BLOCK = 256  # master rows filtered together
_AT_ONCE = 64  # tuples whose memory is fetched together


@dataclass
class Window:
    """Room for `capacity` tuples; `waiting` of it is taken."""

    store: RowStore
    table: Table
    pair_slots: I64
    pair_rows: I64
    filter: I64
    capacity: int
    left: int = 0  # since the filter was made
    released: int = 0  # ever
    _ends: I64 = field(default_factory=lambda: np.array([_NOBODY, _NOBODY, _NOBODY, 0], dtype=np.int64))

    @staticmethod
    def layout(leaves: Sequence[Leaf]) -> RecordLayout:
        """The records of tuples of these leaves."""
        return RecordLayout.of(leaves, _HEADER_BYTES)

    @staticmethod
    def bytes_for(layout: RecordLayout, capacity: int, heap_bytes_per_tuple: float) -> int:
        """Bytes of a window of this capacity."""
        return (
            layout.bytes_for(capacity, heap_bytes_per_tuple)
            + tables.bytes_for(capacity)
            + min(capacity, _PAIRS) * _PAIR_BYTES
            + _spare_places(capacity) * _SPARE_BYTES
            + _filter_words(capacity) * 8
        )

    @staticmethod
    def capacity_for(layout: RecordLayout, nbytes: int, heap_bytes_per_tuple: float) -> int:
        """The most tuples whose window takes at most `nbytes`."""
        return capacity_within(nbytes, lambda slots: Window.bytes_for(layout, slots, heap_bytes_per_tuple))

    @staticmethod
    def allocate(
        budget: Budget,
        layout: RecordLayout,
        capacity: int,
        heap_bytes_per_tuple: float,
        *,
        wide: bool,
        who: str,
    ) -> Window:
        """A window inside the budget. For wide keys the first leaf of the layout is the key's bytes."""
        store = RowStore.allocate(budget, "window", layout, capacity, heap_bytes_per_tuple, who=who)
        pairs = min(capacity, _PAIRS)
        return Window(
            store=store,
            table=tables.allocate(
                budget, "window", store, capacity, wide=wide, who=who, spare=_spare_places(capacity)
            ),
            pair_slots=budget.array("window", pairs, "i8", who=who),  # type: ignore[arg-type]
            pair_rows=budget.array("window", pairs, "i8", who=who),  # type: ignore[arg-type]
            filter=budget.array("window", _filter_words(capacity), "i8", who=who),  # type: ignore[arg-type]
            capacity=capacity,
        )

    @property
    def waiting(self) -> int:
        """How many tuples wait."""
        return self.capacity - self.room

    @property
    def room(self) -> int:
        """How many more can wait, strings aside."""
        return int(self.table.state[tables.FREE])

    def codes(self, slots: I64) -> U64:
        """The codes of tuples."""
        return tables.codes_of(self.table, slots)

    def matched(self, slots: I64) -> NDArray[np.bool_]:
        """Which tuples have met a row."""
        out = np.empty(len(slots), dtype=np.bool_)
        _get_matched(self.table, slots, out)
        return out

    def mark(self, slots: I64, matched: NDArray[np.bool_]) -> None:
        """Say which tuples have met a row."""
        _set_matched(self.table, slots, matched)

    def fits(self, rows: Rows, at: I64) -> int:
        """How many of these rows, from the first on, can be admitted now."""
        count = min(self.room, len(at))
        if not self.store.layout.has_heap:
            return count
        sizes = np.cumsum(string_bytes(rows, at[:count]))
        return int(np.searchsorted(sizes, self.store.heap_room, side="right"))

    def admit(self, rows: Rows, at: I64, codes: U64) -> I64:
        """Let the rows at positions `at` wait, in this order; `codes` are theirs and they must fit. Gives their slots."""
        slots = tables.take_free(self.table, len(at))
        self.store.put(rows, at, slots)
        _link(self.table, self.filter, self._ends, codes, slots)
        return slots

    def match(
        self, probes: Probes, start: tuple[int, int], *, mark: bool = True
    ) -> tuple[I64, I64, tuple[int, int]]:
        """Pair master rows with waiting tuples of the same key, and mark these as matched.

        Starts with a row, and with so many of the tuples of its key done already. Gives the slots and the rows of the
        pairs, valid until the next match, and where to go on; the row past the last when all is done.
        """
        pairs, row, done = _match(
            self.table,
            self.filter,
            probes,
            start[0],
            start[1],
            1 if mark else 0,
            self.pair_slots,
            self.pair_rows,
        )
        return self.pair_slots[:pairs], self.pair_rows[:pairs], (int(row), int(done))

    def take_out(self, probes: Probes, start: int) -> tuple[I64, I64, int]:
        """Pair master rows with waiting tuples of the same key, who leave: no other row is for them.

        What they came with stays readable until tuples are admitted again. Gives the pairs, valid until the next match, and the
        row to go on with; the one past the last when all is done.
        """
        pairs, row = _take_out(
            self.table, self.filter, self._ends, probes, start, self.pair_slots, self.pair_rows
        )
        self._freed(self.pair_slots[:pairs])
        return self.pair_slots[:pairs], self.pair_rows[:pairs], int(row)

    def oldest(self, count: int) -> I64:
        """The slots of the oldest tuples, oldest first."""
        out = np.empty(min(count, self.waiting), dtype=np.int64)
        _walk(self.table, int(self._ends[_OLDEST]), out)
        return out

    def behind(self, slot: int, count: int) -> tuple[I64, U64]:
        """The tuples that came next after a waiting one, oldest first, and their codes."""
        slots, codes = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint64)
        found = _walk_behind(self.table, slot, slots, codes)
        return slots[:found], codes[:found]

    def at(self, position: float, count: int) -> I64:
        """The slots of the tuple at a position of the queue, 0 the newest and 1 the oldest, and of those before it.

        The border stays where it is asked for, so that finding it again takes as long as it has moved.
        """
        count = min(count, self.waiting)
        _move_border(self.table, self._ends, min(int(position * self.waiting), self.waiting - count))
        out = np.empty(count, dtype=np.int64)
        _walk_back(self.table, int(self._ends[_BORDER]), out)
        return out

    def same_key(self, slots: I64) -> I64:
        """All waiting tuples that have the key of one of these, which have distinct keys."""
        out = np.empty(self.waiting, dtype=np.int64)
        count = _all_of_keys(self.table, slots, out)
        return out[:count]

    def release(self, slots: I64) -> None:
        """Let tuples go; of one key the oldest must come first. Slots may repeat."""
        freed = np.empty(len(slots), dtype=np.int64)
        count = _release(self.table, self._ends, slots, freed)
        self._freed(freed[:count])

    def _freed(self, slots: I64) -> None:
        self.store.free(slots)
        self.left += len(slots)
        self.released += len(slots)
        if self.left * _STALE > self.capacity:
            _fill_filter(self.table, self.filter)
            self.left = 0


def _spare_places(capacity: int) -> int:
    return _SPARE if capacity >= _SPARE_FROM else 0


def _filter_words(capacity: int) -> int:
    return _FILTER_BITS * capacity // 64 + 1


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
def _fill_filter(table: Table, bits: I64) -> None:
    bits[:] = 0
    for word in table.entries:
        if word >= 0:
            _set_bits(bits, word >> 32)


@kernel
def _link(table: Table, bits: I64, ends: I64, codes: U64, slots: I64) -> None:
    newest = ends[1]
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
        store32(record + _AFTER, _NOBODY)
        if newest != _NOBODY:
            store32(table.records + newest * table.stride + _AFTER, slot)
        else:
            ends[0] = slot
        newest = slot
    ends[1] = newest
    ends[3] += len(slots)


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
def _match(
    table: Table,
    bits: I64,
    probes: Probes,
    row: int,
    done: int,
    mark: int,
    slots: I64,
    rows: I64,
) -> tuple[int, int, int]:
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
def _walk(table: Table, slot: int, out: I64) -> None:
    for i in range(len(out)):
        out[i] = slot
        slot = load32(table.records + slot * table.stride + _AFTER)


@kernel
def _walk_behind(table: Table, slot: int, slots: I64, codes: U64) -> int:
    for i in range(len(slots)):
        slot = load32(table.records + slot * table.stride + _AFTER)
        if slot == _NOBODY:
            return i
        slots[i] = slot
        codes[i] = np.uint64(load64(table.records + slot * table.stride))
    return len(slots)


@kernel
def _walk_back(table: Table, slot: int, out: I64) -> None:
    for i in range(len(out)):
        out[i] = slot
        slot = load32(table.records + slot * table.stride + _BEFORE)


@kernel
def _move_border(table: Table, ends: I64, young: int) -> None:
    border = ends[2]
    while ends[3] > young:
        border = ends[0] if border == _NOBODY else load32(table.records + border * table.stride + _AFTER)
        flags = table.records + border * table.stride + _FLAGS
        store8(flags, load8(flags) & _MATCHED)
        ends[3] -= 1
    while ends[3] < young:
        record = table.records + border * table.stride
        store8(record + _FLAGS, load8(record + _FLAGS) | _YOUNG)
        border = load32(record + _BEFORE)
        ends[3] += 1
    ends[2] = border


@kernel
def _get_matched(table: Table, slots: I64, out: NDArray[np.bool_]) -> None:
    for i in range(len(slots)):
        out[i] = load8(table.records + slots[i] * table.stride + _FLAGS) & _MATCHED != 0


@kernel
def _set_matched(table: Table, slots: I64, matched: NDArray[np.bool_]) -> None:
    for i in range(len(slots)):
        flags = table.records + slots[i] * table.stride + _FLAGS
        store8(flags, (load8(flags) & _YOUNG) | (_MATCHED if matched[i] else 0))


@kernel
def _all_of_keys(table: Table, slots: I64, out: I64) -> int:
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
    if before != _NOBODY:
        store32(table.records + before * table.stride + _AFTER, after)
    else:
        ends[0] = after
    if after != _NOBODY:
        store32(table.records + after * table.stride + _BEFORE, before)
    else:
        ends[1] = before
    if load8(record + _FLAGS) & _YOUNG:
        ends[3] -= 1
    elif ends[2] == slot:
        ends[2] = before


@kernel
def _take_out(
    table: Table, bits: I64, ends: I64, probes: Probes, row: int, slots: I64, rows: I64
) -> tuple[int, int]:
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
def _release(table: Table, ends: I64, slots: I64, freed: I64) -> int:
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
            for (
                slot
            ) in some:  # and the neighbours in the queue; those that have none ask for what nobody reads
                record = table.records + slot * table.stride
                prefetch(table.records + load32(record + _BEFORE) * table.stride)
                prefetch(table.records + load32(record + _AFTER) * table.stride)
        slot = slots[i]
        at = find_slot(table, slot)
        if at < 0 or next_of(table, last_of(table, at)) != slot:
            continue  # gone already: it matched several rows
        remove_first(table, at)
        _unlink(table, ends, slot)
        freed[count] = slot
        count += 1
    return count
