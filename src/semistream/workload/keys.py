"""Which key a stream tuple carries: the distributions that stay as they are while the stream flows.

Keys are the integers 0..n_keys-1. A distribution first draws a *popularity rank*, 0 for the most popular; `popularity`
says which key has that rank: "in-order" (key 0 is the most popular, so hot rows share pages when the master is sorted
by key) or "scattered" (a permutation that depends on the seed, so that a hot row's neighbours are cold).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from semistream.workload.limits import MAX_KEYS, MAX_ROWS, require_between, require_one_of, require_whole
from semistream.workload.permutation import Permutation
from semistream.workload.randomness import derive, integers
from semistream.workload.zipf import fill_zipf, zipf_mass

Popularity = Literal["scattered", "in-order"]


class Keys(Protocol):
    """A distribution of keys: a pure function of (seed, position)."""

    @property
    def n_keys(self) -> int:
        """How many keys there are; each drawn key is in 0..n_keys-1."""
        ...

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the keys of the stream positions `start`..`stop`."""
        ...


def scatter(ranks: NDArray[np.int64], n_keys: int, popularity: Popularity, *, seed: int) -> NDArray[np.int64]:
    """Turn popularity ranks into keys, in place, and return them."""
    if popularity == "scattered":
        Permutation(n_keys, key=int(derive(seed, "popularity"))).apply_in_place(ranks)
    return ranks


@dataclass(frozen=True)
class Uniform:
    """Every key is as likely as any other.

    >>> Uniform(6).draw(0, 5, seed=1).tolist() == Uniform(6).draw(0, 9, seed=1)[:5].tolist()
    True
    """

    n_keys: int

    def __post_init__(self) -> None:
        require_whole("n_keys", self.n_keys, 1, MAX_KEYS)

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the keys of the stream positions `start`..`stop`."""
        return integers(start, stop, derive(seed, "keys"), self.n_keys)


@dataclass(frozen=True)
class Zipf:
    """The k-th most popular key is drawn with a chance proportional to k^-exponent; exponent 0 is uniform.

    >>> round(Zipf(100_000_000, exponent=1.0).share(1_000_000), 2)  # the hottest 1 % of the keys
    0.76
    """

    n_keys: int
    exponent: float = 1.0
    _: KW_ONLY
    popularity: Popularity = "scattered"

    def __post_init__(self) -> None:
        require_whole("n_keys", self.n_keys, 1, MAX_KEYS)
        require_between(
            "exponent",
            self.exponent,
            0,
            2,
            hint="Give one from 0 (uniform) to 2 (most tuples ask for one key).",
        )
        require_one_of("popularity", self.popularity, get_args(Popularity))

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the keys of the stream positions `start`..`stop`."""
        ranks = np.empty(stop - start, dtype=np.int64)
        fill_zipf(ranks, start, derive(seed, "keys"), n=self.n_keys, exponent=self.exponent)
        return scatter(ranks, self.n_keys, self.popularity, seed=seed)

    def share(self, top: int) -> float:
        """Give the share of the stream that asks for the `top` most popular keys."""
        require_whole("top", top, 1, self.n_keys)
        return zipf_mass(top, self.exponent) / zipf_mass(self.n_keys, self.exponent)

    def popular(self, top: int, *, seed: int) -> NDArray[np.int64]:
        """Give the `top` most popular keys, the most popular first: the order of a master laid out by frequency."""
        require_whole("top", top, 1, self.n_keys)
        return scatter(np.arange(top, dtype=np.int64), self.n_keys, self.popularity, seed=seed)


@dataclass(frozen=True)
class EveryKey:
    """Every key exactly `times` times before any comes again: the key column of a master.

    "in-order" gives 0, 0, 1, 1, ...; "scattered" gives the same rows in random order, as in the papers' unsorted masters.

    >>> EveryKey(3, times=2, popularity="in-order").draw(0, 6, seed=0).tolist()
    [0, 0, 1, 1, 2, 2]
    """

    n_keys: int
    times: int = 1
    _: KW_ONLY
    popularity: Popularity = "scattered"

    def __post_init__(self) -> None:
        require_whole("n_keys", self.n_keys, 1, MAX_KEYS)
        require_whole(
            "times", self.times, 1, MAX_KEYS // self.n_keys, hint=f"Keep n_keys * times within {MAX_KEYS:,}."
        )
        require_one_of("popularity", self.popularity, get_args(Popularity))

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the keys of the positions `start`..`stop`."""
        require_whole("stop", stop, start, MAX_ROWS)
        rows = self.n_keys * self.times
        places = np.arange(start, stop, dtype=np.int64) % rows
        return scatter(places, rows, self.popularity, seed=seed) // self.times
