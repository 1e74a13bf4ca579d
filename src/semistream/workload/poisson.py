"""A Poisson process whose i-th arrival can be computed without the i-1 before it.

The time of the n-th arrival of a unit-rate process is Gamma(n)-distributed, and given the times of two arrivals
n apart, the one half-way divides the time between them by a Beta(n/2, n/2) share. So a binary tree of such shares, each a
hash of (seed, node), leads from one draw for 2^44 arrivals down to the block of 1,024 that holds any position
(Lukacs' independence of sums and ratios makes this exact: a gamma bridge). Inside a block the gaps are
exponential, scaled to the block's length. 34 levels of two gamma draws cost a few microseconds a block.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.limits import MAX_ROWS
from semistream.workload.randomness import LANE, STEP, mix, state_at, unit

BLOCK_ROWS = 1024
BLOCKS = MAX_ROWS // BLOCK_ROWS


@kernel
def gamma(shape: float, state: np.uint64) -> float:
    """Draw from the gamma distribution, shape at least 1 (Marsaglia and Tsang, ACM TOMS 2000)."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        first = mix(state)
        second = mix(state ^ LANE)
        third = mix(second + STEP)
        normal = math.sqrt(-2.0 * math.log(unit(first))) * math.cos(2.0 * math.pi * unit(second))
        v = (1.0 + c * normal) ** 3
        if v > 0.0 and math.log(unit(third)) < 0.5 * normal * normal + d - d * v + d * math.log(v):
            return d * v
        state = (first ^ third) + STEP


@kernel
def _left_share(key: np.uint64, first: int, blocks: int) -> float:
    """Give the share of a node's time that its left half takes; a node is its first block and its length."""
    node = mix(mix(key + np.uint64(blocks)) + np.uint64(first) * STEP)
    shape = 0.5 * blocks * BLOCK_ROWS
    left = gamma(shape, mix(node))
    right = gamma(shape, mix(node + STEP))
    return left / (left + right)


@kernel
def block_start(block: int, key: np.uint64) -> float:
    """Give the time at which a block starts, descending from the root."""
    elapsed = 0.0
    length = gamma(np.float64(BLOCKS) * BLOCK_ROWS, key)
    first, blocks = 0, BLOCKS
    while blocks > 1 and block > first:
        left = length * _left_share(key, first, blocks)
        blocks //= 2
        if block >= first + blocks:
            elapsed += left
            length -= left
            first += blocks
        else:
            length = left
    return elapsed


@kernel
def block_at(time: float, key: np.uint64) -> int:
    """Give the block during which a moment falls."""
    remaining = time
    length = gamma(np.float64(BLOCKS) * BLOCK_ROWS, key)
    first, blocks = 0, BLOCKS
    while blocks > 1:
        left = length * _left_share(key, first, blocks)
        blocks //= 2
        if remaining >= left:
            remaining -= left
            length -= left
            first += blocks
        else:
            length = left
    return first


@kernel
def _fill_block(out: NDArray[np.float64], block: int, key: np.uint64) -> None:
    gaps = key ^ LANE
    total = 0.0
    for i in range(BLOCK_ROWS):
        total -= math.log(unit(mix(state_at(gaps, block * BLOCK_ROWS + i))))
        out[i] = total
    begins, ends = block_start(block, key), block_start(block + 1, key)
    for i in range(BLOCK_ROWS):
        out[i] = begins + out[i] / total * (ends - begins)


@kernel
def fill_times(out: NDArray[np.float64], start: int, key: np.uint64) -> None:
    """Fill `out` with the times of the arrivals from number `start` on, at one arrival a second on average."""
    block_times = np.empty(BLOCK_ROWS)
    done = 0
    while done < out.size:
        block, offset = (start + done) // BLOCK_ROWS, (start + done) % BLOCK_ROWS
        _fill_block(block_times, block, key)
        n = min(BLOCK_ROWS - offset, out.size - done)
        out[done : done + n] = block_times[offset : offset + n]
        done += n


def unit_rate_times(start: int, stop: int, key: np.uint64) -> NDArray[np.float64]:
    """Give the times of the arrivals `start`..`stop` of a Poisson process of rate one."""
    out = np.empty(stop - start)
    fill_times(out, start, key)
    return out


def unit_rate_count(time: float, key: np.uint64) -> int:
    """Count the arrivals of that process up to and including a moment."""
    if time <= 0.0:
        return 0
    block = int(block_at(time, key))
    first = max(block - 1, 0) * BLOCK_ROWS  # the moment may be the very end of the block before
    last = min(block + 2, BLOCKS) * BLOCK_ROWS
    return first + int(np.searchsorted(unit_rate_times(first, last, key), time, side="right"))
