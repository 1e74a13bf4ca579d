"""The front stage in steady state: which share of the stream it answers, by a small instance of itself.

Who is in the front stage is decided by chance: a key enters when enough tuples happen to wait for it, and leaves when it
happens to be among the least used. Far above the rank of the last place keys are nearly always in, far below nearly never, and
in between nothing short of following the rules gives the share. So they are followed, by a kernel, for one key in `factor`
of the master's, with one place in `factor`: every key there is asked for as often, per place, as in the original, and so
has the same chance to be in. The most popular keys, which are always in, are only counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.front.recorder import (
    _EAGER,
    _FIRST_THRESHOLD,
    _HALVING,
    _LAZY,
    _PERIOD,
    _VICTIMS,
)
from semistream.kernel import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
SCAN, BLOCK, LOOKUP = (
    0,
    1,
    2,
)  # how rows come to be read: in a cycle, by block when somebody waits, for each tuple
_PLACES = 1 << 12  # of the small instance
_ALWAYS = 60.0  # uses, while as many tuples come as there are places: such a key is always in
_WARM = 6 * _HALVING  # tuples per place
_MEASURED = 4 * _HALVING
_WARM_WAITS = 10
_MEASURED_WAITS = 4
_MOST_USES = 1 << 12
_SEED = 2007


@dataclass(frozen=True)
class Steady:
    """What goes on to the join behind: of each of some ranks (ascending) the share of its tuples."""

    ranks: F64
    absent: F64
    share: float  # of the whole stream

    def of(self, ranks: F64) -> F64:
        """The share of each rank's tuples that go on."""
        return np.interp(ranks, self.ranks, self.absent)


def steady(
    chance: F64, others: int, other_chance: float, *, places: int, how: int, wait: float, page_rows: float
) -> Steady:
    """Follow the rules for keys of these chances, then of `others` alike ones.

    `wait` is for how many tuples of the stream a tuple waits behind the front stage, `page_rows` how many rows come together.
    """
    total = len(chance) + others
    if places >= total:
        return Steady(np.zeros(1), np.zeros(1), 0.0)
    always = int(np.searchsorted(-chance, -_ALWAYS / places, side="right"))
    always = min(always, places - 1)
    free = places - always
    factor = max(1.0, free / _PLACES)
    # One key in `factor`, evenly over the ranks.
    ranks = always + (np.arange(int((total - always) / factor)) + 0.5) * factor
    known = np.minimum(ranks.astype(np.int64), len(chance) - 1)
    some: F64 = np.where(ranks < len(chance), chance[known], other_chance)
    small = max(1, round(free / factor))
    scale = small / free
    generator = np.random.default_rng(_SEED)
    order = generator.permutation(len(some))
    cumulated: F64 = np.cumsum(some[order])
    step = scale / float(cumulated[-1])  # tuples of the whole stream per arrival here, in small ones
    every = places * scale  # as many tuples as the original has places, in small ones
    waits = wait * scale
    warm = int(max(_WARM * every, _WARM_WAITS * waits) / step)
    measured = int(max(_MEASURED * every, _MEASURED_WAITS * waits) / step)
    draws = np.searchsorted(cumulated, generator.random(warm + measured) * cumulated[-1])
    asked, absent = np.zeros(len(some), dtype=np.int64), np.zeros(len(some), dtype=np.int64)
    _follow(
        np.minimum(draws, len(some) - 1),
        warm,
        small,
        every,
        step,
        how,
        waits,
        max(1, round(page_rows)),
        asked,
        absent,
    )
    return _by_rank(
        np.asarray(ranks, dtype=np.float64),
        order,
        asked,
        absent,
        always,
        np.asarray(some * factor, dtype=np.float64),
    )


def _by_rank(ranks: F64, order: I64, asked: I64, absent: I64, always: int, chance: F64) -> Steady:
    """Counts of neighbouring ranks together: enough for a smooth share."""
    by = np.empty(len(order), dtype=np.int64)
    by[order] = np.arange(len(order))
    asked, absent = asked[by], absent[by]
    reached = np.cumsum(asked)
    bins = np.minimum(reached * 128 // max(int(reached[-1]), 1), 127)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    came = np.maximum(np.add.reduceat(asked, starts), 1)
    share = np.add.reduceat(absent, starts) / came
    middle = (ranks[starts] + np.append(ranks[starts[1:]], ranks[-1])) / 2
    total = float(np.add.reduceat(chance, starts) @ share)
    return Steady(np.concatenate([[always - 1], middle]), np.concatenate([[0.0], share]), total)


@kernel
def _follow(
    draws: I64,
    warm: int,
    places: int,
    every: float,
    step: float,
    how: int,
    wait: float,
    page_rows: int,
    asked: I64,
    absent: I64,
) -> None:
    """The rules of FrontStage and FrequencyRecorder, key by key; `every` tuples are as many as the original has places."""
    keys = len(asked)
    uses = np.full(keys, -1, dtype=np.int64)
    waiting = np.zeros(keys, dtype=np.int64)
    pages = keys // page_rows + 1
    due_page = np.empty(pages + 1, dtype=np.int64)
    due_time = np.empty(pages + 1, dtype=np.float64)
    queued = np.zeros(pages, dtype=np.bool_)
    head, tail = 0, 0
    victims = np.empty(places // _VICTIMS + 2, dtype=np.int64)
    left = 0  # of the victims
    inside = 0
    threshold, floor = _FIRST_THRESHOLD, 0
    evicted, period, until = 0.0, 0.0, _HALVING * every
    now, scanned = 0.0, 0
    counts = np.empty(_MOST_USES + 1, dtype=np.int64)
    for i in range(len(draws)):
        now += step
        key = draws[i]
        # Rows that are read by now.
        while True:
            first, last = 0, -1
            if how == SCAN:
                upto = int(now / wait * keys)
                if scanned < upto:
                    first = scanned % keys
                    last = first
                    scanned += 1
            elif head != tail and due_time[head] <= now:
                page = due_page[head]
                head = (head + 1) % (pages + 1)
                queued[page] = False
                first, last = page * page_rows, min(keys, (page + 1) * page_rows) - 1
            if last < first:
                break
            for other in range(first, last + 1):
                count = waiting[other]
                if count == 0:
                    continue
                waiting[other] = 0
                if count < threshold or uses[other] >= 0:
                    continue
                if inside == places:
                    # The least used leaves.
                    while True:
                        if left == 0:
                            counts[:] = 0
                            for k in range(keys):
                                if uses[k] >= 0:
                                    counts[min(uses[k], _MOST_USES)] += 1
                            want = max(1, inside // _VICTIMS)
                            level, below = 0, 0
                            while below + counts[level] < want:
                                below += counts[level]
                                level += 1
                            equal = want - below
                            for k in range(keys):
                                if uses[k] == level and equal > 0:
                                    victims[left] = k
                                    left += 1
                                    equal -= 1
                            for k in range(keys):
                                if uses[k] >= 0 and uses[k] < level:
                                    victims[left] = k
                                    left += 1
                        left -= 1
                        victim = victims[left]
                        if uses[victim] >= 0:
                            break
                    floor = max(floor, uses[victim])
                    uses[victim] = -1
                    evicted += 1.0
                    inside -= 1
                uses[other] = floor + count
                inside += 1
        # The tuple.
        period += step
        until -= step
        counting = i >= warm
        if counting:
            asked[key] += 1
        if uses[key] >= 0:
            uses[key] += 1
        else:
            if counting:
                absent[key] += 1
            waiting[key] += 1
            if how == LOOKUP:
                if not queued[key // page_rows]:
                    queued[key // page_rows] = True
                    due_page[tail], due_time[tail] = key // page_rows, now
                    tail = (tail + 1) % (pages + 1)
            elif how == BLOCK and not queued[key // page_rows]:
                queued[key // page_rows] = True
                due_page[tail], due_time[tail] = key // page_rows, now + wait
                tail = (tail + 1) % (pages + 1)
        if until <= 0:
            for k in range(keys):
                if uses[k] > 0:
                    uses[k] >>= 1
            floor >>= 1
            until = _HALVING * every
        if period >= _PERIOD * every:
            share = evicted / period
            if share > _EAGER:
                threshold += 1
            elif (share < _LAZY or inside < places) and threshold > 1:
                threshold -= 1
            evicted, period = 0.0, 0.0
