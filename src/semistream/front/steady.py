"""The front stage in steady state: which share of the stream it answers, by a small instance of itself.

Who is in the front stage is decided by chance: a key enters when enough tuples happen to wait for it, and leaves when it
happens to be among the least used. Far above the rank of the last place keys are nearly always in, far below nearly never, and
in between nothing short of following the rules gives the share. So they are followed, by a kernel, for one key in `factor`
of the master's, with one place in `factor` and as much less of a window: every key there is asked for as often, per place, as in
the original, and so has the same chance to be in. The most popular keys, which are always in, are only counted; so are the rarest,
of which none is asked for twice.

The window is followed too, since it sets the pace: it is filled until it is full, and then somebody leaves. Over a scan those
leave who have seen all of it, and rows go by as fast as tuples come in; of those that look up, the oldest; over blocks, who
waits for the block of the oldest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.front.following import BLOCK, LOOKUP, NO_BLOCKS, SCAN, Blocks, behind_of, follow, instance
from semistream.front.recorder import HALVING, VICTIMS
from semistream.kernel import kernel
from semistream.workload.randomness import LANE, derive, mix, state_at, unit

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
PLACES = 1 << 12  # of the small instance
BATCH_ROWS = 2048  # tuples that come by together; the recorder looks at its threshold between them
_ALWAYS = 60.0  # uses, while as many tuples come as there are places: such a key is always in
_KEYS_PER_PLACE = 64  # that are told apart
_WARM = 5 * HALVING  # tuples per place
_MEASURED = 6 * HALVING
_WARM_WINDOWS = 6
_MEASURED_WINDOWS = 6
_LEAST_ARRIVALS = 400_000  # of the small instance, measured
_MOST_ARRIVALS = 4_000_000
_ROUGH = 0.4  # of all that, for an instance of fewer places
_ROUGHLY_A_PLACE = 160  # arrivals at most, there
_MOST_WINDOW, _LEAST_WINDOW = 1 << 16, 1 << 8  # changes several times while those come
_MANY = 4.0  # tuples of the small instance that wait for a block: its part of the window matters
_ALIKE = 16.0  # that wait for a block which stands for many others
_BLOCKS_APART = 1 << 12
_KNOWN_FROM = 64  # tuples that left with others: how many do on average is known
_ARRANGEMENTS = 4
_SEED = 2007
__all__ = ["BLOCK", "LOOKUP", "PLACES", "SCAN", "Keys", "Steady", "steady"]


@dataclass(frozen=True)
class Steady:
    """What goes on to the join behind."""

    share: float  # of the stream
    tuples_per_read: float = 1.0  # of the stream; of blocks alone


@dataclass(frozen=True)
class Keys:
    """How often keys are asked for, the most popular first: one by one, then `others` that are alike."""

    chance: F64
    below: F64  # sums of them, from 0 on
    others: int
    other_chance: float

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.chance) + self.others

    def upto(self, rank: F64) -> F64:
        """The share of the stream that asks for keys of lower ranks."""
        known = len(self.chance)
        near = np.minimum(rank, known)
        whole = np.minimum(near.astype(np.int64), known - 1)
        inside = self.below[whole] + (near - whole) * self.chance[whole]
        return np.asarray(inside + np.maximum(rank - known, 0.0) * self.other_chance, np.float64)

    def beyond(self, rank: float) -> float:
        """The share of the stream that asks for keys of this rank and higher ones."""
        return 1.0 - float(self.upto(np.array([rank]))[0])


def steady(
    keys: Keys,
    *,
    places: int,
    window: int,
    how: int,
    together: float,
    in_order: bool = False,
    small_places: int = PLACES,
) -> Steady:
    """Follow the rules for keys of these chances.

    `together` is how many rows of a block are read at once, how many tuples look their rows up at once, or how many reads make a
    scan; `in_order` says that blocks have neighbours in popularity.
    """
    if places >= keys.count:
        return Steady(0.0)
    always = len(keys.chance) - int(np.searchsorted(keys.chance[::-1], _ALWAYS / places))
    always = min(always, places - 1)
    least = max(keys.beyond(float(places)), 1e-6)
    most_window = _most_window(least / (1.0 - float(keys.below[always])), small_places)
    factor = max(1.0, (places - always) / small_places, window / most_window)
    small = max(1, round((places - always) / factor))
    scale = small / (places - always)
    # One key in `factor`: as popular as that many neighbours are on average.
    total = max(1, int((keys.count - always) * scale))
    told_apart = min(total, _KEYS_PER_PLACE * max(small_places, small))
    edges: F64 = always + np.arange(told_apart + 1.0) * ((keys.count - always) / total)
    chance: F64 = np.diff(keys.upto(edges)) * (total / (keys.count - always))
    all_of_them = (1.0 - float(keys.below[always])) * (total / (keys.count - always))
    step = scale / all_of_them  # tuples of the whole stream per arrival here, in small ones
    every = places * scale  # as many tuples as the original has places, in small ones
    warm, measured = _arrivals(every / step, window * scale / least / step, small_places)
    # Of a scan, who comes between two reads, and the rows of a read; otherwise all that wait, and who looks up together.
    places_behind = max(1, round(window * scale / (together if how == SCAN else 1.0)))
    pace = {
        SCAN: told_apart * places_behind / max(window * scale, 1.0),
        BLOCK: 0.0,
        LOOKUP: 1.0 + (together - 1.0) * scale,
    }
    blocks = NO_BLOCKS
    if how == BLOCK and in_order:
        demand = window / least * scale
        blocks = _ordered(keys, edges[:-1], together, scale, places, demand)
    elif how == BLOCK:
        blocks = _scattered(told_apart, total, keys.count / together, scale, window * scale)
    # Where nothing is shrunk, which keys share a block is chance as in the original: the mean of some arrangements is meant.
    runs = _ARRANGEMENTS if factor == 1.0 and small_places >= PLACES else 1
    absent_mass, left, reads = 0.0, 0, 0.0
    for seed in range(_SEED, _SEED + runs):
        placed = chance if in_order else chance[np.random.default_rng(seed).permutation(told_apart)]
        behind = behind_of(places_behind, blocks.size)
        absent_mass += follow(
            instance(placed, small, max(1, min(small, int(every) // VICTIMS))),
            behind,
            _drawn(placed, all_of_them, warm + measured, seed),
            warm,
            how,
            blocks,
            pace[how],
            np.array([step, every, BATCH_ROWS * scale, all_of_them]),
        )
        left += int(behind.left_of.sum())
        reads += _reads(blocks, behind.reads_of, behind.left_of)
    share = absent_mass / runs / all_of_them * (1.0 - float(keys.below[always]))
    # Where so few wait that nobody had to leave, reads hardly count.
    return Steady(share, max(left, 1) / max(reads, 1e-12) / max(share, 1e-12))


def _reads(blocks: Blocks, reads_of: I64, left_of: I64) -> float:
    """How many reads of the original stand for those of the small instance, for as many tuples as left here.

    A block is asked for by its first tuple, and m others leave with it: here m = aW, if a ask for it in a unit of time and it takes W
    until it is read, and f m in the original. There it is read (1 + m) / (1 + f m) times as often for a tuple. m is a mean: of a
    block, or of neighbours together if few left with each.
    """
    read = np.flatnonzero(reads_of)
    if max(blocks.fewer, blocks.others_fewer) <= 1.0 or not len(read):
        return float(reads_of[read].sum())
    reads, others = reads_of[read], left_of[read] - reads_of[read]
    first = read < blocks.apart
    group = np.cumsum(others) // _KNOWN_FROM
    starts = np.flatnonzero((np.diff(group, prepend=-1) != 0) | (np.diff(first, prepend=False) != 0))
    count = np.add.reduceat(reads, starts)
    m = np.add.reduceat(others, starts) / count
    fewer = np.where(first[starts], blocks.fewer, blocks.others_fewer)
    return float((count * (1.0 + m) / (1.0 + fewer * m)).sum())


def _ordered(keys: Keys, rank: F64, together: float, scale: float, places: int, waits: float) -> Blocks:
    """Neighbours in popularity share a block.

    Of the first ones each is a good part of the window, as in the original: there are as many of them, with fewer keys and fewer
    who wait. Of the others there are fewer. `waits` is how many of these tuples come while one waits, of a block that
    all ask for.
    """
    first = np.arange(min(int(keys.count / together) + 1, _BLOCKS_APART) + 1) * together
    asked = np.diff(keys.upto(np.clip(first, places, keys.count)))
    many = np.flatnonzero(asked * waits >= _MANY)
    apart = int(many[-1]) + 1 if len(many) and scale < 1.0 else 0
    rows = max(keys.count - apart * together, 0.0)
    asking = keys.beyond(max(apart * together, float(places)))
    others, fewer = _fewer(rows / together, scale, asking * waits)
    near = (rank / together).astype(np.int64)
    far = apart + ((rank - apart * together) * (others / max(rows, 1.0))).astype(np.int64)
    count = max(1, apart + math.ceil(others))
    block_of = np.minimum(np.where(near < apart, near, far), count - 1)
    return Blocks(block_of, int(min(block_of[-1] + 1, count - 1)), count, apart, 1.0 / scale, fewer)


def _scattered(told_apart: int, total: int, blocks: float, scale: float, waiting: float) -> Blocks:
    """A key's block has nothing to do with its popularity."""
    wanted, fewer = _fewer(blocks, scale, waiting)
    size = max(1, round(wanted))
    if told_apart == total:  # in any order
        return Blocks(np.arange(told_apart) * size // told_apart, 0, size, 0, 1.0, fewer)
    block_of = np.empty(told_apart, dtype=np.int64)
    _scatter(block_of, size)
    return Blocks(block_of, 0, size, 0, 1.0, fewer)


def _fewer(blocks: float, scale: float, waiting: float) -> tuple[float, float]:
    """How many blocks stand for so many, and how many times fewer tuples wait for one of them.

    As many times fewer as there are tuples, so that as many wait for each. But where that leaves a handful of blocks for all of the
    window, there are more of them, as long as some tuples wait for each.
    """
    found = min(blocks, max(blocks * scale, waiting / _ALIKE))
    return found, found / (blocks * scale) if blocks else 1.0


@kernel
def _scatter(block_of: I64, count: int) -> None:
    for key in range(len(block_of)):
        block_of[key] = int(unit(mix(state_at(LANE, key))) * count)


def _most_window(waiting: float, small_places: int) -> int:
    """How many may wait in the small instance, if at least this share of the arrivals does: the window is to change while they come."""
    if small_places >= PLACES:
        return _MOST_WINDOW
    change = _ROUGHLY_A_PLACE * small_places * waiting / (_ROUGH * _WARM_WINDOWS)
    return max(_LEAST_WINDOW, int(min(change, _MOST_WINDOW * small_places / (PLACES // 2))))


def _arrivals(places: float, windows: float, small_places: int) -> tuple[int, int]:
    """To warm up and to measure; so many arrivals come for every place, and so many change the window once."""
    warm = max(_WARM * places, _WARM_WINDOWS * windows)
    measured = max(_MEASURED * places, _MEASURED_WINDOWS * windows)
    if small_places < PLACES:
        most = _ROUGHLY_A_PLACE * small_places
        warm, measured = (min(_ROUGH * value, most) for value in (warm, measured))
    else:
        measured = max(measured, _LEAST_ARRIVALS)
    return int(min(warm, _MOST_ARRIVALS)) + 1, int(min(measured, _MOST_ARRIVALS)) + 1


def _drawn(chance: F64, total: float, count: int, seed: int) -> I32:
    """Keys that are asked for, one after the other; -1 for one of the rarest."""
    cumulated: F64 = np.cumsum(chance)
    guide = np.searchsorted(cumulated, np.linspace(0.0, total, len(chance) + 1)[:-1], side="right")
    out = np.empty(count, dtype=np.int32)
    _draw(cumulated, guide, total, derive(seed, "front stage"), out)
    return out


@kernel
def _draw(cumulated: F64, guide: I64, total: float, key: np.uint64, out: I32) -> None:
    keys = len(cumulated)
    for i in range(len(out)):
        at = unit(mix(state_at(key, i)))
        found = guide[int(at * len(guide))]
        while found < keys and cumulated[found] <= at * total:
            found += 1
        out[i] = found if found < keys else -1
