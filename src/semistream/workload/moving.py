"""Which key a stream tuple carries when what is popular changes while the stream flows.

`HotSpot` slides a hot set over the keys, so that a front stage must let go of yesterday's rows. `TemporalLocality`
is the set-up of CACHING, section 5.2.1: the stream is cut into intervals, and each asks for its own part of the keys.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.keys import Popularity, scatter
from semistream.workload.limits import MAX_KEYS, MAX_ROWS, require_between, require_one_of, require_whole
from semistream.workload.randomness import LANE, below, derive, mix, state_at, unit
from semistream.workload.zipf import fill_zipf


@dataclass(frozen=True)
class HotSpot:
    """A hot set takes `hot_probability` of the stream and moves on by its own width every `drift_rows` tuples.

    The other tuples ask for any key (also a hot one). The set slides by one key at a time, in order of rank, and comes
    round to its beginning after n_keys / hot_keys widths. `drift_rows=0` lets it stand still.

    >>> keys = HotSpot(1000, hot_keys=10, hot_probability=1.0, drift_rows=500, popularity="in-order")
    >>> early, late = keys.draw(0, 50, seed=1), keys.draw(500, 550, seed=1)
    >>> int(early.min()) >= 0 and int(early.max()) < 11, int(late.min()) >= 10 and int(late.max()) < 21
    (True, True)
    """

    n_keys: int
    hot_keys: int
    _: KW_ONLY
    hot_probability: float = 0.9
    drift_rows: int = 10_000_000
    popularity: Popularity = "scattered"

    def __post_init__(self) -> None:
        require_whole("n_keys", self.n_keys, 1, MAX_KEYS)
        require_whole("hot_keys", self.hot_keys, 1, self.n_keys, hint=f"Give 1 to n_keys ({self.n_keys:,}).")
        require_between("hot_probability", self.hot_probability, 0, 1)
        require_whole("drift_rows", self.drift_rows, 0, 10**9)
        require_one_of("popularity", self.popularity, get_args(Popularity))

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the keys of the stream positions `start`..`stop`."""
        ranks = np.empty(stop - start, dtype=np.int64)
        key = derive(seed, "keys")
        _fill_hot_spot(ranks, start, key, self.n_keys, self.hot_keys, self.hot_probability, self.drift_rows)
        return scatter(ranks, self.n_keys, self.popularity, seed=seed)

    def hot_ranks_at(self, position: int) -> tuple[int, int]:
        """Give the first rank of the hot set at a position, and the rank after its last (which may pass n_keys)."""
        moved = position * self.hot_keys // self.drift_rows if self.drift_rows else 0
        first = moved % self.n_keys
        return first, first + self.hot_keys


@kernel
def _fill_hot_spot(
    out: NDArray[np.int64],
    start: int,
    key: np.uint64,
    n_keys: int,
    hot_keys: int,
    hot_probability: float,
    drift_rows: int,
) -> None:
    for i in range(out.size):
        position = start + i
        state = state_at(key, position)
        if unit(mix(state)) < hot_probability:
            first = 0
            if drift_rows > 0:
                # Whole widths and the rest apart: position * hot_keys could pass 2^63.
                widths, rest = position // drift_rows, position % drift_rows
                first = (widths % n_keys) * hot_keys + rest * hot_keys // drift_rows
            out[i] = (first + np.int64(below(state ^ LANE, np.uint64(hot_keys)))) % n_keys
        else:
            out[i] = np.int64(below(state ^ LANE, np.uint64(n_keys)))


@dataclass(frozen=True)
class TemporalLocality:
    """Interval i of the stream asks only for the i-th part of the keys, by Zipf's law within that part.

    CACHING draws 50 million tuples in 25 intervals of 2 million, exponent 1, from a master of R rows in which each
    of R/N keys appears N times: ``TemporalLocality(n_keys=R // N)`` over ``EveryKey(R // N, times=N)``. The paper counts its
    intervals from 1, which would put the last one outside the keys; ours count from 0. After the last interval
    the first comes again.

    >>> keys = TemporalLocality(100, intervals=4, interval_rows=1000)
    >>> drawn = keys.draw(2000, 3000, seed=1)
    >>> int(drawn.min()), int(drawn.max())
    (50, 74)
    """

    n_keys: int
    intervals: int = 25
    _: KW_ONLY
    interval_rows: int = 2_000_000
    exponent: float = 1.0
    popularity: Popularity = "scattered"

    def __post_init__(self) -> None:
        require_whole("n_keys", self.n_keys, 1, MAX_KEYS)
        require_whole(
            "intervals", self.intervals, 1, self.n_keys, hint=f"Give 1 to n_keys ({self.n_keys:,})."
        )
        require_whole("interval_rows", self.interval_rows, 1, MAX_ROWS)
        require_between("exponent", self.exponent, 0, 2)
        require_one_of("popularity", self.popularity, get_args(Popularity))

    def domain(self, interval: int) -> tuple[int, int]:
        """Give the first key of an interval's part and the key after its last; the parts differ by at most one key."""
        part = interval % self.intervals
        return part * self.n_keys // self.intervals, (part + 1) * self.n_keys // self.intervals

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the keys of the stream positions `start`..`stop`."""
        out = np.empty(stop - start, dtype=np.int64)
        key = derive(seed, "keys")
        position = start
        while position < stop:
            interval = position // self.interval_rows
            end = min(stop, (interval + 1) * self.interval_rows)
            first, after = self.domain(interval)
            ranks = out[position - start : end - start]
            fill_zipf(ranks, position, key, n=after - first, exponent=self.exponent)
            scatter(ranks, after - first, self.popularity, seed=seed)
            ranks += first
            position = end
        return out
