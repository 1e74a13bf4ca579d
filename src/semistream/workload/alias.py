"""Draw from any finite distribution with one look-up: Walker's alias method in whole numbers.

A table of 2^b slots, each shared by at most two outcomes. Low bits of a random word choose the slot, the other
64 - b bits decide between its two outcomes. The probabilities are multiples of 2^-64 and add up to exactly one, so
the resolution is that of the random word, not of accumulated floating-point sums.
(Walker, ACM TOMS 1977; built in linear time as by Vose, IEEE TSE 1991.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def alias_table(weights: NDArray[np.float64], bits: int) -> NDArray[np.uint64]:
    """Build the table: each slot holds its threshold in the upper 64 - `bits` bits and its other outcome below.

    Args:
        weights: One for each outcome, none negative; at most 2^`bits` of them.
        bits: Logarithm of the number of slots.
    """
    slots = 1 << bits
    full = 1 << (64 - bits)
    padded = np.zeros(slots)
    padded[: weights.size] = weights
    masses = [int(m) for m in padded / padded.sum() * 2.0**64]
    masses[int(np.argmax(padded))] += (1 << 64) - sum(masses)

    threshold = [full - 1] * slots
    other = list(range(slots))
    poor = [i for i, mass in enumerate(masses) if mass < full]
    rich = [i for i, mass in enumerate(masses) if mass > full]
    while poor:
        taker, giver = poor.pop(), rich[-1]
        threshold[taker], other[taker] = masses[taker], giver
        masses[giver] -= full - masses[taker]
        if masses[giver] <= full:
            rich.pop()
            if masses[giver] < full:
                poor.append(giver)
    return np.array([(t << bits) | o for t, o in zip(threshold, other, strict=True)], dtype=np.uint64)
