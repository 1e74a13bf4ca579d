"""A window whose oldest tuple decides which tuples leave, in small: only blocks, no keys, no rows, no bytes.

Where one block has a large part of all waiting tuples, its leaving makes room for so many at once that averages say little:
the next tuples come in one gulp. Then it takes following the queue itself to know how many leave together.

What is taken from the queue is not how many reads there were, which is known to no better than the number of reads, but how long
the first who asks for a block waits until it is read. That changes little from read to read, and with it the rest is exact: a
block with chance q that nobody waits for is asked for after 1/q tuples on average, so it is read once in 1/q - 1 + W.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.randomness import derive, mix, state_at, unit

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
_TURNS = 6  # windows' worth of tuples, measured
_WARM = 4
_LEAST_SHARE = 0.005
_MOST_WINDOW, _LEAST_TUPLES = 120_000, 1_200_000  # followed; a larger window is shrunk to that
_ROUGH_WINDOW, _ROUGH_TUPLES = 8_000, 80_000
_MANY = 30.0  # tuples waiting for a block: whether it is one more or less hardly matters
_ENOUGH_READS = 50  # of blocks that are alike, to tell their wait from that of the others
_GUIDES = 1 << 12  # steps of the stream, each with the first group that may be there
_SEED = 2013


def tuples_per_read(
    chance: F64, count: F64, window: int, beside: float, time: float, *, rough: bool = False
) -> float:
    """Tuples of the stream per block read, for blocks of these chances, `count` alike ones each.

    Their chances may sum to less than 1: the other tuples never enter the window. A share `beside` enters and leaves after
    the next read. `time` is about how many tuples come while one waits. `rough` is enough to compare
    settings with.
    """
    total = float(chance @ count)
    most, least = (_ROUGH_WINDOW, _ROUGH_TUPLES) if rough else (_MOST_WINDOW, _LEAST_TUPLES)
    times = max(1.0, window / most)
    followed, small = _shrunk(chance, count, window, time, times)
    # So that as many come to stay as the window holds, some times over.
    stay = max(total / (total + beside), _LEAST_SHARE)
    tuples = max(least, int((_WARM + _TURNS) * small / stay))
    numbered = np.ceil(followed).astype(np.int64)
    first = np.cumsum(numbered) - numbered
    entering = total + beside
    blocks = _drawn(chance * count, first, followed, entering, tuples)
    waits, reads = np.zeros(int(numbered.sum())), np.zeros(int(numbered.sum()))
    _turn(blocks, small, _WARM * tuples // (_WARM + _TURNS), waits, reads)
    wait = times * _mean_waits(np.add.reduceat(waits, first), np.add.reduceat(reads, first))
    # Time is counted in tuples that enter.
    per_tuple = float((count / (entering / np.maximum(chance, 1e-300) - 1.0 + wait)).sum())
    return 1.0 / max(per_tuple, 1e-300) / max(entering, 1e-12)


def _drawn(mass: F64, first: I64, followed: F64, entering: float, tuples: int) -> I32:
    """The block of each tuple that enters: one of `followed` alike ones of a group. -1 for who is beside."""
    upto: F64 = np.cumsum(mass)
    guide = np.searchsorted(upto, np.arange(_GUIDES) * (upto[-1] / _GUIDES), side="right")
    out = np.empty(tuples, dtype=np.int32)
    _draw(mass, upto, guide, first, followed, entering, derive(_SEED, "turnover"), out)
    return out


@kernel
def _draw(
    mass: F64, upto: F64, guide: I64, first: I64, followed: F64, entering: float, key: np.uint64, out: I32
) -> None:
    total, last = upto[-1], len(upto) - 1
    for i in range(len(out)):
        at = unit(mix(state_at(key, i))) * entering
        if at >= total:
            out[i] = -1
            continue
        group = min(guide[int(at / total * len(guide))], last)
        while group < last and upto[group] <= at:
            group += 1
        # How far into the group is as good as another draw.
        inside = 1.0 - (upto[group] - at) / mass[group]
        out[i] = first[group] + max(0, min(int(inside * followed[group]), int(np.ceil(followed[group])) - 1))


def _shrunk(chance: F64, count: F64, window: int, time: float, times: float) -> tuple[F64, int]:
    """How many blocks to follow of each kind where there are so many times fewer tuples, and the window for them.

    Where few wait for a block, there are as many times fewer blocks, for each of which as many wait. Where many do, there
    are as many blocks with fewer tuples each, and what they take of the window at once is the same share. The fewer wait for a
    block, the more of the time it is waited for; so the window is as large as it must be for tuples to wait as long.
    """
    wait = np.maximum(chance * time, 1e-12)
    fewer = np.maximum(wait / times, np.minimum(wait, _MANY))
    followed = np.maximum(count * wait / times / fewer, np.minimum(count, 1.0))
    fewer = count * wait / times / followed
    return followed, max(1, int(window * float(followed @ _held(fewer)) / float(count @ _held(wait))))


def _held(wait: F64) -> F64:
    """Who waits for a block on average, where so many come while its first waits."""
    return np.asarray(wait * (1 + wait / 2) / (1 + wait), np.float64)


def _mean_waits(waits: F64, reads: F64) -> F64:
    """Of blocks that were read often enough their own, of the others what they have together."""
    known = reads >= _ENOUGH_READS
    if reads[~known].sum() >= _ENOUGH_READS:
        rest = waits[~known].sum() / reads[~known].sum()
    else:
        rest = waits.sum() / max(reads.sum(), 1.0)
    return np.where(known, waits / np.maximum(reads, 1.0), rest)


@kernel
def _turn(blocks: I32, window: int, warm: int, waits: F64, reads: F64) -> None:
    """Add up how long the first of a block's tuples waited for its reads, and count these, after the warm-up."""
    waiting = np.zeros(len(reads), dtype=np.int64)
    since = np.full(len(reads), -1, dtype=np.int64)  # when the oldest waiting tuple of a block came
    head, came, held, beside = 0, 0, 0, 0
    while True:
        while held < window and came < len(blocks):
            block = blocks[came]
            if block < 0:
                beside += 1
            else:
                if waiting[block] == 0:
                    since[block] = came
                waiting[block] += 1
            held += 1
            came += 1
        if came == len(blocks):
            return
        held -= beside
        beside = 0
        # The oldest tuple whose block was not read since it came.
        while blocks[head] < 0 or waiting[blocks[head]] == 0 or since[blocks[head]] > head:
            head += 1
            if head == came:
                break
        if head < came:
            block = blocks[head]
            held -= waiting[block]
            waiting[block] = 0
            if came >= warm:
                waits[block] += came - since[block]
                reads[block] += 1
