"""The rules of the front stage and of the windows behind it, followed key by key: no rows, no bytes.

The rules are those of FrequencyRecorder, FrontStage and the joins; see there for what they are and why.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semistream.front.recorder import EAGER, FIRST_THRESHOLD, HALVING, LAZY, PERIOD, least_used
from semistream.kernel import inlined, kernel
from semistream.workload.randomness import LANE, mix, state_at, unit

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
SCAN, BLOCK, LOOKUP = 0, 1, 2  # who leaves a full window
_ROOM, _THRESHOLD, _FLOOR, _EVICTED, _LEFT, _HAND = range(6)
_HELD, _HEAD, _FREE, _ASKED = range(4)


class Instance(NamedTuple):
    """Of a front stage and who waits behind it."""

    chance: F64  # by key
    slot_of: I64
    waiting: I64  # how many of those that leave
    key_of: I64  # by slot: -1 nobody, or one of the rarest
    uses: I32
    victims: I64
    free: I64  # slots
    now: I64  # _ROOM, _THRESHOLD, ...
    inside: F64  # the share of the stream that asks for who is in


class Behind(NamedTuple):
    """Who waits."""

    key: I64  # by place
    after: I64  # the next place of the same block, or the next free one; -1 after the last
    last_of: I64  # by block: the place of its last tuple
    asked_for: I64  # blocks, in the order in which they were
    leaving: I64  # keys
    now: I64  # _HELD, _HEAD, ...
    reads_of: I64  # by block
    left_of: I64  # by block: who left with those


class Blocks(NamedTuple):
    """Which rows are read together."""

    block_of: I64  # by key
    rarest_from: int  # the first block that may have one of the rarest keys
    size: int  # how many there are
    apart: int  # so many of the first stand for themselves
    fewer: float  # so many times fewer wait for one of these than in the original
    others_fewer: float  # and for one of the others


NO_BLOCKS = Blocks(np.empty(0, dtype=np.int64), 0, 0, 0, 1.0, 1.0)


def behind_of(window: int, blocks: int) -> Behind:
    """Nobody yet."""
    return Behind(
        np.empty(window, dtype=np.int64),
        np.append(np.arange(1, window, dtype=np.int64), -1),
        np.full(max(blocks, 1), -1, dtype=np.int64),
        np.empty(window, dtype=np.int64),
        np.empty(window, dtype=np.int64),
        np.zeros(4, dtype=np.int64),
        np.zeros(max(blocks, 1), dtype=np.int64),
        np.zeros(max(blocks, 1), dtype=np.int64),
    )


def instance(chance: F64, places: int, victims: int) -> Instance:
    """With nobody in it; so many victims are found at a time."""
    keys = len(chance)
    return Instance(
        chance,
        np.full(keys, -1, dtype=np.int64),
        np.zeros(keys, dtype=np.int64),
        np.full(places, -1, dtype=np.int64),
        np.full(places, -1, dtype=np.int32),
        np.empty(victims, dtype=np.int64),
        np.arange(places, dtype=np.int64),
        np.array([places, FIRST_THRESHOLD, 0, 0, 0, 0], dtype=np.int64),
        np.zeros(1),
    )


@kernel
def follow(
    small: Instance,
    behind: Behind,
    draws: I32,
    warm: int,
    how: int,
    blocks: Blocks,
    together: float,
    scales: F64,
) -> float:
    """The rules of FrontStage and FrequencyRecorder, and of the windows behind: a scan, by block, or a look-up each.

    Gives, after the warm-up, the share of the stream whose keys were not in; `behind` has how many left by block.
    """
    step, every, batch, total = scales
    keys, window = len(small.chance), len(behind.key)
    until, period, came, more, scanned = HALVING * every, 0.0, 0.0, 0.0, 0
    mass = 0.0
    room = window + (int(together) + 2 if how == SCAN else 0)
    worthy, met = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    for i in range(len(draws)):
        if i == warm:
            mass = 0.0
            behind.reads_of[:] = 0
            behind.left_of[:] = 0
        key = int(draws[i])
        mass += total - small.inside[0]
        period, until, came = period + step, until - step, came + step
        if key >= 0 and small.slot_of[key] >= 0:
            small.uses[small.slot_of[key]] += 1
        else:
            if how != BLOCK:
                _queue(behind, key)
                if how == SCAN and key >= 0:
                    small.waiting[key] += 1
            elif key >= 0:
                _ask(behind, key, blocks.block_of[key])
            else:
                any_of = blocks.size - blocks.rarest_from
                _ask(behind, key, blocks.rarest_from + int(unit(mix(state_at(LANE, -i))) * any_of))
        full = behind.now[_HELD] == window
        ended = came >= batch
        if ended:
            came -= batch
        if full or ended:  # the recorder is told
            if until <= 0.0:
                _halve(small)
                until = HALVING * every
            if period >= PERIOD * every:
                _adapt(small, small.now[_EVICTED] / period)
                period = 0.0
        if full:
            more += together
            if how == SCAN:
                count = _oldest(behind, window)
                _passed(small, behind.leaving, count, scanned, int(more), worthy, met)
                scanned = (scanned + int(more)) % keys
            elif how == LOOKUP:
                _met(small, behind.leaving, _oldest(behind, int(more)), met)
            else:
                block = behind.asked_for[behind.now[_HEAD]]
                count = _block(behind)
                _met(small, behind.leaving, count, met)
                behind.reads_of[block] += 1
                behind.left_of[block] += count
            more -= int(more)
    return mass / max(len(draws) - warm, 1)


@inlined
def _queue(behind: Behind, key: int) -> None:
    """A tuple waits, behind all others."""
    at = behind.now[_HEAD] + behind.now[_HELD]
    behind.key[at if at < len(behind.key) else at - len(behind.key)] = key
    behind.now[_HELD] += 1


@inlined
def _oldest(behind: Behind, count: int) -> int:
    """The oldest leave."""
    count, head = min(count, behind.now[_HELD]), behind.now[_HEAD]
    for i in range(count):
        behind.leaving[i] = behind.key[head]
        head = head + 1 if head + 1 < len(behind.key) else 0
    behind.now[_HEAD] = head
    behind.now[_HELD] -= count
    return count


@inlined
def _ask(behind: Behind, key: int, block: int) -> None:
    """A tuple waits for a block. All tuples of a block leave together, so blocks are read in the order of first tuples."""
    place = behind.now[_FREE]
    behind.now[_FREE] = behind.after[place]
    behind.now[_HELD] += 1
    behind.key[place] = key
    if behind.last_of[block] < 0:
        at = behind.now[_HEAD] + behind.now[_ASKED]
        behind.asked_for[at if at < len(behind.asked_for) else at - len(behind.asked_for)] = block
        behind.now[_ASKED] += 1
    behind.after[place] = behind.last_of[block]
    behind.last_of[block] = place


@inlined
def _block(behind: Behind) -> int:
    """Who waits for the block of the oldest leaves."""
    block = behind.asked_for[behind.now[_HEAD]]
    behind.now[_HEAD] = (behind.now[_HEAD] + 1) % len(behind.asked_for)
    behind.now[_ASKED] -= 1
    place, count = behind.last_of[block], 0
    behind.last_of[block] = -1
    while place >= 0:
        behind.leaving[count] = behind.key[place]
        count += 1
        following = behind.after[place]
        behind.after[place] = behind.now[_FREE]
        behind.now[_FREE] = place
        place = following
    behind.now[_HELD] -= count
    return count


@inlined
def _met(small: Instance, leaving: I64, count: int, met: I64) -> None:
    """Rows that so many tuples met: those that enough of them met come in."""
    for i in range(count):
        if leaving[i] >= 0:
            small.waiting[leaving[i]] += 1
    worthy = 0
    for i in range(count):
        key, times = leaving[i], 1
        if key >= 0:
            times, small.waiting[key] = small.waiting[key], 0
        if times >= small.now[_THRESHOLD] and (key < 0 or small.slot_of[key] < 0):
            leaving[worthy], met[worthy] = key, times
            worthy += 1
    if worthy:
        _take_in(small, leaving, worthy, met)


@inlined
def _passed(small: Instance, rare: I64, count: int, first: int, rows: int, keys: I64, met: I64) -> None:
    """Rows that a scan brought, with all that wait for them; of the rarest keys as many as came meanwhile."""
    worthy, key = 0, first
    for _ in range(rows):
        if key >= len(small.chance):
            key = 0
        times, small.waiting[key] = small.waiting[key], 0
        if times >= small.now[_THRESHOLD] and small.slot_of[key] < 0:
            keys[worthy], met[worthy] = key, times
            worthy += 1
        key += 1
    if small.now[_THRESHOLD] == 1:
        for i in range(count):
            if rare[i] < 0:
                keys[worthy], met[worthy] = -1, 1
                worthy += 1
    if worthy:
        _take_in(small, keys, worthy, met)


@inlined
def _take_in(small: Instance, keys: I64, worthy: int, met: I64) -> None:
    """So many keys come in, in place of the least used."""
    now = small.now
    coming = min(worthy, len(small.uses))
    while now[_ROOM] < coming:
        if now[_LEFT] == 0:
            now[_LEFT] = min(len(small.victims), len(small.uses) - now[_ROOM])
            now[_HAND] = least_used(small.uses, now[_HAND], small.victims[: now[_LEFT]])
        short = min(coming - now[_ROOM], now[_LEFT])
        now[_LEFT] -= short
        now[_EVICTED] += short
        now[_FLOOR] = max(now[_FLOOR], small.uses[small.victims[now[_LEFT]]])
        for i in range(now[_LEFT], now[_LEFT] + short):
            slot = small.victims[i]
            small.uses[slot] = -1
            small.free[now[_ROOM]] = slot
            now[_ROOM] += 1
            key = small.key_of[slot]
            if key >= 0:
                small.slot_of[key] = -1
                small.inside[0] -= small.chance[key]
    for i in range(coming):
        now[_ROOM] -= 1
        slot, key = small.free[now[_ROOM]], keys[i]
        small.key_of[slot], small.uses[slot] = key, now[_FLOOR] + met[i]
        if key >= 0:
            small.slot_of[key] = slot
            small.inside[0] += small.chance[key]


@inlined
def _halve(small: Instance) -> None:
    """Old glory fades."""
    for slot in range(len(small.uses)):
        if small.uses[slot] > 0:
            small.uses[slot] >>= 1
    small.now[_FLOOR] >>= 1


@inlined
def _adapt(small: Instance, share: float) -> None:
    """Move the threshold, by how often somebody was let go."""
    if share > EAGER:
        small.now[_THRESHOLD] += 1
    elif (share < LAZY or small.now[_ROOM] > 0) and small.now[_THRESHOLD] > 1:
        small.now[_THRESHOLD] -= 1
    small.now[_EVICTED] = 0
