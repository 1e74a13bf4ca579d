"""A permutation of 0..n-1 that is computed, not stored: which key has popularity rank r.

Each round multiplies by a random odd number and folds the upper half of the bits onto the lower, both one to one on b
bits, where 2^b is the next power of two. A result of n or more is sent round again until it falls below n (cycle
walking: Black and Rogaway, CT-RSA 2002), which keeps the map one to one; fewer than two passes on average. A Feistel
network does the same work on an even number of bits, with up to four passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.limits import MAX_KEYS, require_whole
from semistream.workload.randomness import STEP, mix

ROUNDS = 4


@dataclass(frozen=True)
class Permutation:
    """One of the permutations of 0..`n`-1, chosen by `key`.

    >>> sorted(Permutation(5, key=1).apply(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    n: int
    key: int

    def __post_init__(self) -> None:
        require_whole("n", self.n, 1, MAX_KEYS)

    def apply(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the image of each value, which must be in 0..n-1."""
        out = values.copy()
        self.apply_in_place(out)
        return out

    def apply_in_place(self, values: NDArray[np.int64]) -> None:
        """Replace each value by its image."""
        bits = (self.n - 1).bit_length()
        constants = np.empty(2 * ROUNDS, dtype=np.uint64)
        state = np.uint64(self.key)
        for i in range(2 * ROUNDS):
            constants[i] = mix(state)
            with np.errstate(over="ignore"):
                state = state + STEP
        constants[ROUNDS:] |= np.uint64(1)
        _permute(values, self.n, bits, constants)


@kernel
def _permute(values: NDArray[np.int64], n: int, bits: int, constants: NDArray[np.uint64]) -> None:
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    fold = np.uint64((bits + 1) // 2)
    end = np.uint64(n)
    for i in range(values.size):
        x = np.uint64(values[i])
        while True:
            for r in range(ROUNDS):
                x = ((x + constants[r]) * constants[ROUNDS + r]) & mask
                x ^= x >> fold
            if x < end:
                break
        values[i] = np.int64(x)
