"""A window whose oldest tuple decides which tuples leave, in small: only blocks, no keys, no rows, no bytes.

Where one block has a large part of all waiting tuples, its leaving makes room for so many at once that averages say little:
the next tuples come in one gulp. Then it takes following the queue itself to know how many leave together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
_TURNS = 6  # windows' worth of tuples, measured
_WARM = 4
_LEAST_SHARE = 0.005
_MOST_WINDOW, _LEAST_TUPLES = 120_000, 600_000  # followed; a larger window is shrunk to that
_ROUGH_WINDOW, _ROUGH_TUPLES = 8_000, 80_000
_MANY = 30.0  # tuples waiting for a block: whether it is one more or less hardly matters
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
    generator = np.random.default_rng(_SEED)
    most, least = (_ROUGH_WINDOW, _ROUGH_TUPLES) if rough else (_MOST_WINDOW, _LEAST_TUPLES)
    followed, weight, window = _shrunk(chance, count, window, time, most)
    # So that as many come to stay as the window holds, some times over.
    stay = max(total / (total + beside), _LEAST_SHARE)
    tuples = max(least, int((_WARM + _TURNS) * window / stay))
    group = np.cumsum(chance * count)
    numbered = np.ceil(followed).astype(np.int64)
    first = np.cumsum(numbered) - numbered
    waiting = total + beside
    picks = generator.random(tuples) * waiting
    # Who is beside gets block -1; the others a group, and a block in it.
    groups = np.minimum(np.searchsorted(group, picks, side="right"), len(group) - 1)
    blocks = first[groups] + (generator.random(tuples) * followed[groups]).astype(np.int64)
    blocks[picks >= total] = -1
    weights = np.repeat(weight, numbered)
    reads, came = _turn(blocks, weights, window, _WARM * tuples // (_WARM + _TURNS))
    return came / max(reads, 1e-12) / max(waiting, 1e-12)


def _shrunk(chance: F64, count: F64, window: int, time: float, most: int) -> tuple[F64, F64, int]:
    """How many blocks to follow of each kind in a window of fewer places, and how many reads each of theirs stands for.

    Where few wait for a block, there are as many times fewer blocks, for each of which as many wait. Where many do, there
    are as many blocks with fewer tuples each, and what they take of the window at once is the same share.
    """
    times = max(1.0, window / most)
    wait = np.maximum(chance * time, 1e-12)
    fewer = np.maximum(wait / times, np.minimum(wait, _MANY))
    followed = np.maximum(count * wait / times / fewer, np.minimum(count, 1.0))
    fewer = count * wait / times / followed
    return followed, (1 + fewer) / (1 + wait), int(window / times)


@kernel
def _turn(blocks: I64, weights: F64, window: int, warm: int) -> tuple[float, int]:
    """Reads, weighed, and tuples that came, after the warm-up."""
    waiting = np.zeros(len(weights), dtype=np.int64)
    since = np.full(len(weights), -1, dtype=np.int64)  # when the oldest waiting tuple of a block came
    head, came, held, beside, reads, begun = 0, 0, 0, 0, 0.0, -1
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
            return reads, came - max(begun, 0)
        if begun < 0 and came >= warm:
            begun, reads = came, 0.0
        held -= beside
        beside = 0
        # The oldest tuple whose block was not read since it came.
        while blocks[head] < 0 or waiting[blocks[head]] == 0 or since[blocks[head]] > head:
            head += 1
            if head == came:
                break
        if head < came:
            held -= waiting[blocks[head]]
            waiting[blocks[head]] = 0
            reads += weights[blocks[head]]
