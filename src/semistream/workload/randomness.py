"""Randomness by position: the i-th draw is a hash of (seed, i), so no draw needs the ones before it.

A Spark task, a replayed micro-batch and a resumed run each ask for the positions they need and get the same numbers.
The hash is splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): a counter
stepped by an odd constant, then a mixer that passes BigCrush. Every purpose (keys, arrivals, each column) has
its own 64-bit key, so that streams of numbers for different purposes are unrelated.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel

STEP = np.uint64(0x9E3779B97F4A7C15)
LANE = np.uint64(0xD1342543DE82EF95)
"""Turns a state into a second, unrelated one: the second draw of the same position."""


def derive(seed: int, purpose: str) -> np.uint64:
    """Give the key of one purpose under one seed.

    >>> derive(7, "keys") == derive(7, "keys"), derive(7, "keys") == derive(7, "quantity")
    (np.True_, np.False_)
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


@kernel
def mix(state: np.uint64) -> np.uint64:
    """Hash 64 bits to 64 bits, one to one; every output bit depends on every input bit."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def state_at(key: np.uint64, position: int) -> np.uint64:
    """Give the counter of a position; `mix` of it is the position's first draw."""
    return key + np.uint64(position) * STEP


@kernel
def unit(bits: np.uint64) -> np.float64:
    """Turn 64 random bits into a number strictly between 0 and 1: with 53 bits and a half, the last would round to 1."""
    return (np.float64(bits >> np.uint64(12)) + 0.5) * 2.0**-52


@kernel
def below(state: np.uint64, bound: np.uint64) -> np.uint64:
    """Draw a whole number under `bound` (at most 2^30), each exactly as likely as the others.

    Multiply and shift; the few products that would favour a number are drawn again (Lemire, ACM TOMACS 2019). 34 random
    bits times 30 fit in 64.
    """
    low_bits = np.uint64((1 << 34) - 1)
    while True:
        bits = mix(state)
        product = (bits >> np.uint64(30)) * bound
        low = product & low_bits
        if low >= bound or low >= np.uint64(1 << 34) % bound:
            return product >> np.uint64(34)
        state = bits + STEP


@kernel
def fill_below(out: NDArray[np.int64], start: int, key: np.uint64, bound: int) -> None:
    """Fill `out` with draws under `bound` for the positions from `start` on."""
    top = np.uint64(bound)
    for i in range(out.size):
        out[i] = np.int64(below(state_at(key, start + i), top))


@kernel
def fill_unit_at(out: NDArray[np.float64], positions: NDArray[np.int64], key: np.uint64) -> None:
    """Fill `out` with the number strictly between 0 and 1 of each of the `positions`."""
    for i in range(out.size):
        out[i] = unit(mix(state_at(key, positions[i])))


def integers(start: int, stop: int, key: np.uint64, bound: int) -> NDArray[np.int64]:
    """Draw whole numbers under `bound` for the positions `start`..`stop`.

    >>> key = derive(7, "dice")
    >>> bool((integers(0, 9, key, 6)[4:] == integers(4, 9, key, 6)).all())
    True
    """
    out = np.empty(stop - start, dtype=np.int64)
    fill_below(out, start, key, bound)
    return out


def units_at(positions: NDArray[np.int64], key: np.uint64) -> NDArray[np.float64]:
    """Draw a number strictly between 0 and 1 for each of the positions."""
    out = np.empty(positions.size, dtype=np.float64)
    fill_unit_at(out, positions, key)
    return out
