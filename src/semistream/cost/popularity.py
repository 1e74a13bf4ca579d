"""How often keys, and blocks of the master, are asked for: Zipf's law of any exponent, summed exactly.

The papers treat exponent 1 alone and take its sums as integrals; here ranks are summed one by one up to a million, and by
Euler's and Maclaurin's formula beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from semistream.front.steady import Keys
from semistream.workload.zipf import zipf_mass

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
_ONE_BY_ONE = 1 << 20  # ranks that are kept apart
_SCATTERED = 1 << 17  # ranks whose place matters
_APART = 1 << 12  # blocks, the most popular, that are kept apart
_GROUPS = 1 << 12  # that the others are put together into
_POPULAR = 1 << 8  # ranks whose neighbours in a block matter
_WAYS = 64  # to scatter them
_WAITS = np.array([0.3, 1.0, 4.0, 16.0, 64.0])  # tuples that come while the first waits, per block
_SEED = 20071


@dataclass(frozen=True)
class Ranks:
    """The chances of keys, the most popular first: one by one, then all the others with the chance they have on average."""

    chance: F64  # of each of the first keys
    below: F64  # their sums, from 0 on
    others: int  # how many more there are
    other_chance: float  # of each of them

    @staticmethod
    def of(rows: int, skew: float) -> Ranks:
        """Of Zipf's law over the rows of a master."""
        return _ranks(rows, float(skew))

    def top(self, count: float) -> float:
        """The share of the stream that asks for the `count` most popular keys."""
        whole = min(int(count), len(self.chance))
        share = float(self.below[whole])
        beyond = min(max(count - len(self.chance), 0.0), self.others)
        return share + beyond * self.other_chance

    @property
    def keys(self) -> Keys:
        """For the small instance of a front stage."""
        return Keys(self.chance, self.below, self.others, self.other_chance)

    @property
    def total(self) -> float:
        """The share of the stream that this is."""
        return float(self.below[-1]) + self.others * self.other_chance


@lru_cache(maxsize=16)
def _ranks(rows: int, skew: float) -> Ranks:
    mass = zipf_mass(rows, skew) if rows else 1.0
    head = min(rows, _ONE_BY_ONE)
    chance = np.arange(1, head + 1, dtype=np.float64) ** -skew / mass
    others, below = rows - head, np.concatenate([[0.0], np.cumsum(chance)])
    return Ranks(chance, below, others, (1.0 - float(below[-1])) / others if others else 0.0)


@dataclass(frozen=True)
class Blocks:
    """Blocks of the master by the chance that a tuple asks for one; alike ones are put together."""

    chance: F64
    count: F64

    @property
    def total(self) -> float:
        """The share of the stream that asks for any of them."""
        return float(self.chance @ self.count)


def scattered(ranks: Ranks, block_rows: float) -> Blocks:
    """Of a master whose order has nothing to do with popularity: rows fall into blocks at random.

    Which of the most popular rows happen to share a block matters: with 300 blocks and skew 1.5 one master costs up to 4 % more
    or less than the next, and nobody knows which it is. So many ways to scatter those rows are looked at, and the one is taken
    that comes nearest to the mean of all.
    """
    rows = len(ranks.chance) + ranks.others
    blocks = max(1, round(rows / block_rows))
    generator = np.random.default_rng(_SEED)
    first = ranks.chance[:_SCATTERED]  # of the others a block has so many that all blocks have alike
    popular = min(_POPULAR, rows // 8)
    if rows > len(first):
        places = generator.integers(0, blocks, len(first))
    else:
        places = generator.permutation(rows) * blocks // rows
    even = max(0.0, ranks.total - float(first.sum())) / blocks
    mass = first.copy()
    mass[:popular] = 0.0
    used, inverse = (
        (np.arange(blocks), places) if blocks <= 4 * len(first) else np.unique(places, return_inverse=True)
    )
    chance = np.asarray(np.bincount(inverse, weights=mass, minlength=len(used)) + even, np.float64)
    if popular:
        slots = rows if len(used) == blocks else len(used)
        ways = np.array([generator.choice(slots, popular, replace=False) for _ in range(_WAYS)])
        ways = ways * len(used) // slots
        at = ways[_usual(chance, first[:popular], ways)]
        chance += np.bincount(at, weights=first[:popular], minlength=len(used))
    count = np.ones(len(chance))
    if blocks > len(chance):
        chance, count = np.append(chance, even), np.append(count, blocks - len(chance))
    return _grouped(chance, count)


def _usual(chance: F64, popular: F64, ways: I64) -> int:
    """The way to add popular rows to blocks that comes nearest to the mean of all ways.

    Compared is how often blocks are read: the sum of q / (1 + q T), for waits T from short to long.
    """
    times = len(chance) * _WAITS
    reads = np.empty((len(ways), len(times)))
    for i, way in enumerate(ways):
        touched, inverse = np.unique(way, return_inverse=True)
        asked = chance[touched] + np.bincount(inverse, weights=popular)
        reads[i] = _reads(asked, times) - _reads(chance[touched], times)
    off = (reads - reads.mean(axis=0)) * (1.0 + _WAITS)  # of all reads, about
    return int((off**2).sum(axis=1).argmin())


def _reads(asked: F64, times: F64) -> F64:
    return np.asarray((asked / (1.0 + np.outer(times, asked))).sum(axis=1), np.float64)


def by_rank(ranks: Ranks, block_rows: float, skip_rows: float = 0.0) -> Blocks:
    """Of a master in the order of popularity, without the rows that are always in memory."""
    rows = len(ranks.chance) + ranks.others
    blocks = max(1, round(rows / block_rows))
    first = int(skip_rows // block_rows)
    near = np.arange(first, min(first + _APART, blocks) + 1, dtype=np.float64)
    far = np.geomspace(near[-1], blocks, _GROUPS) if near[-1] < blocks else np.empty(0)
    edges = np.unique(np.concatenate([near, np.round(far)]))
    at = np.maximum(edges * rows / blocks, skip_rows)
    share = np.diff(ranks.keys.upto(at))
    count = np.diff(edges)
    return Blocks(share / np.maximum(count, 1), count)


def _grouped(chance: F64, count: F64) -> Blocks:
    """The most popular ones apart, the others in groups of alike ones."""
    order = np.argsort(-chance, kind="stable")
    chance, count = chance[order], count[order]
    if len(chance) <= _APART + _GROUPS:
        return Blocks(chance, count)
    starts = np.unique(
        np.concatenate([np.arange(_APART), np.geomspace(_APART, len(chance) - 1, _GROUPS).astype(np.int64)])
    )
    total = np.add.reduceat(count, starts)
    return Blocks(np.add.reduceat(chance * count, starts) / total, total)
