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
_LEAST_TUPLES = 200_000
_LEAST_SHARE = 0.005
_SEED = 2013


def tuples_per_read(chance: F64, count: F64, window: int, beside: float) -> float:
    """Tuples of the stream per block read, for blocks of these chances, `count` alike ones each.

    Their chances may sum to less than 1: the other tuples never enter the window. A share `beside` enters and leaves after
    the next read.
    """
    total = float(chance @ count)
    generator = np.random.default_rng(_SEED)
    # So that as many come to stay as the window holds, some times over.
    stay = max(total / (total + beside), _LEAST_SHARE)
    tuples = max(_LEAST_TUPLES, int((_WARM + _TURNS) * window / stay))
    group = np.cumsum(chance * count)
    first = np.concatenate([[0.0], np.cumsum(count)[:-1]])
    waiting = total + beside
    picks = generator.random(tuples) * waiting
    # Who is beside gets block -1; the others a group, and a block in it.
    groups = np.minimum(np.searchsorted(group, picks, side="right"), len(group) - 1)
    blocks = (first[groups] + np.floor(generator.random(tuples) * count[groups])).astype(np.int64)
    blocks[picks >= total] = -1
    used, blocks = np.unique(blocks, return_inverse=True)
    blocks = blocks.astype(np.int64) - (1 if used[0] == -1 else 0)
    reads, came = _turn(blocks, int(blocks.max()) + 1, window, _WARM * tuples // (_WARM + _TURNS))
    return came / max(reads, 1) / max(waiting, 1e-12)


@kernel
def _turn(blocks: I64, count: int, window: int, warm: int) -> tuple[int, int]:
    """Reads, and tuples that came, after the warm-up."""
    waiting = np.zeros(count, dtype=np.int64)
    since = np.full(count, -1, dtype=np.int64)  # when the oldest waiting tuple of a block came
    head, came, held, beside, reads, begun = 0, 0, 0, 0, 0, -1
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
            begun, reads = came, 0
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
            reads += 1
