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

from semistream.front.recorder import EAGER, FIRST_THRESHOLD, HALVING, LAZY, PERIOD, VICTIMS, least_used
from semistream.kernel import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
SCAN, BLOCK, LOOKUP = (
    0,
    1,
    2,
)  # how rows come to be read: in a cycle, by block when somebody waits, for each tuple
PLACES = 1 << 12  # of the small instance
_ALWAYS = 60.0  # uses, while as many tuples come as there are places: such a key is always in
_WARM = 6 * HALVING  # tuples per place
_MEASURED = 4 * HALVING
_WARM_WAITS = 10
_MEASURED_WAITS = 4
_SEED = 2007


@dataclass(frozen=True)
class Steady:
    """What goes on to the join behind."""

    share: float  # of the stream
    waiting: float = 0.0  # tuples, on average; of blocks alone
    tuples_per_read: float = 1.0  # of the stream; of blocks alone


def steady(
    chance: F64,
    others: int,
    other_chance: float,
    *,
    places: int,
    how: int,
    wait: float,
    together: float,
    small_places: int = PLACES,
) -> Steady:
    """Follow the rules for keys of these chances, then of `others` alike ones.

    `wait` is for how many tuples of the stream a tuple waits behind the front stage; `together` how many rows of a block are
    read at once, or how many tuples look their rows up at once.
    """
    total = len(chance) + others
    if places >= total:
        return Steady(0.0)
    always = int(np.searchsorted(-chance, -_ALWAYS / places, side="right"))
    always = min(always, places - 1)
    free = places - always
    factor = max(1.0, free / small_places)
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
    rough = 1.0 if small_places >= PLACES else 0.4
    warm = int(rough * max(_WARM * every, _WARM_WAITS * waits) / step)
    measured = int(rough * max(_MEASURED * every, _MEASURED_WAITS * waits) / step)
    draws = np.searchsorted(cumulated, generator.random(warm + measured) * cumulated[-1])
    absent, reads, waited, elapsed = _follow(
        np.minimum(draws, len(some) - 1),
        len(some),
        warm,
        small,
        every,
        step,
        how,
        waits,
        max(1, round(together if how == BLOCK else together * scale)),
    )
    through = absent / max(measured, 1) * float(cumulated[-1]) / scale
    return Steady(through, waiting=waited / scale, tuples_per_read=elapsed / max(reads, 1))


@kernel
def _follow(
    draws: I64,
    keys: int,
    warm: int,
    places: int,
    every: float,
    step: float,
    how: int,
    wait: float,
    together: int,
) -> tuple[int, int, float, float]:
    """The rules of FrontStage and FrequencyRecorder, key by key; `every` tuples are as many as the original has places.

    Gives, after the warm-up: tuples that went on, reads, how many tuples waited on average, and time.
    """
    slot_of = np.full(keys, -1, dtype=np.int64)
    key_of = np.full(places, -1, dtype=np.int64)
    uses = np.full(places, -1, dtype=np.int32)
    waiting = np.zeros(keys, dtype=np.int64)
    page_rows = together if how == BLOCK else 1
    pages = keys // page_rows + 1
    room = 1 + (len(draws) if how == LOOKUP else pages)
    due = np.empty(room, dtype=np.int64)  # blocks to be read, or keys to be looked up, and when
    due_time = np.empty(room, dtype=np.float64)
    queued = np.zeros(pages, dtype=np.bool_)
    head, tail = 0, 0
    victims, left, hand = np.empty(max(1, places // VICTIMS), dtype=np.int64), 0, 0
    inside = 0
    threshold, floor = FIRST_THRESHOLD, 0
    evicted, period, until = 0.0, 0.0, HALVING * every
    now, scanned = 0.0, 0
    absent, reads, held, waited, began = 0, 0, 0, 0.0, 0.0
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
                first = due[head] * page_rows
                last = min(keys, first + page_rows) - 1
                queued[due[head]] = False
                if how == LOOKUP:  # as many of this key as look up together
                    waiting[first] = 0
                    begin = head - head % together
                    for j in range(begin, min(begin + together, tail)):
                        waiting[first] += due[j] == first
                head = (head + 1) % room
            if last < first:
                break
            reads += 1
            for other in range(first, last + 1):
                count = waiting[other]
                if count == 0:
                    continue
                waiting[other] = 0
                held -= count
                if count < threshold or slot_of[other] >= 0:
                    continue
                slot = inside
                if inside == places:  # the least used leaves
                    if left == 0:
                        hand = least_used(uses, hand, victims)
                        left = len(victims)
                    left -= 1
                    slot = victims[left]
                    floor = max(floor, int(uses[slot]))
                    slot_of[key_of[slot]] = -1
                    evicted += 1.0
                else:
                    inside += 1
                slot_of[other], key_of[slot], uses[slot] = slot, other, floor + count
        # The tuple.
        period += step
        until -= step
        if i == warm:
            absent, reads, waited, began = 0, 0, 0.0, now
        waited += held * step
        if slot_of[key] >= 0:
            uses[slot_of[key]] += 1
        else:
            absent += 1
            if how == LOOKUP:
                due[tail], due_time[tail] = key, now + wait
                tail += 1
            else:
                waiting[key] += 1
                held += 1
                page = key // page_rows
                if how == BLOCK and not queued[page]:
                    queued[page] = True
                    due[tail], due_time[tail] = page, now + wait
                    tail = (tail + 1) % room
        if until <= 0:
            for slot in range(places):
                if uses[slot] > 0:
                    uses[slot] >>= 1
            floor >>= 1
            until = HALVING * every
        if period >= PERIOD * every:
            share = evicted / period
            if share > EAGER:
                threshold += 1
            elif (share < LAZY or inside < places) and threshold > 1:
                threshold -= 1
            evicted, period = 0.0, 0.0
    elapsed = max(now - began, 1e-12)
    return absent, reads, waited / elapsed, elapsed
