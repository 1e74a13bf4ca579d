"""How skewed a stream is, from a sample of its keys."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from semistream.cost.misses import Misses
from semistream.errors import InvalidInputError

MOST = 2.0
_LEAST_SAMPLE = 200
_MOST_PARTS = 64  # of a sample that is larger than the master
_ONE_BY_ONE = 1 << 12
_GROUPS = 1 << 11
_NEAR_ONE = 1e-7  # of the exponent: there the integral is a logarithm


def check_skew(skew: float) -> float:
    """An exponent that the models know."""
    if not 0.0 <= skew <= MOST:
        raise InvalidInputError(
            f"skew={skew}",
            found="no exponent of Zipf's law between 0 and 2",
            hint="Give 0 for a uniform stream, about 1 for sales or clicks, or sample= to have it estimated.",
        )
    return float(skew)


def estimated_skew(codes: NDArray[np.uint64], keys: int, misses: Misses | None = None) -> float:
    """The exponent for which so many tuples would ask for so many distinct keys of a master that has `keys`.

    The number of distinct keys is the one statistic of a sample that needs no ranks, which a sample does not show: they
    fall steadily as skew grows. Tuples that have no row say nothing of it. Nor do tuples that ask for every key there is, so a
    sample that is larger than the master is looked at in parts, none of which is.
    """
    missed = misses or Misses()
    known = len(codes) - round(missed.share * len(codes))
    if known < _LEAST_SAMPLE or keys < 1:
        raise InvalidInputError(
            "estimating the skew of a stream",
            found=f"a sample of {known:,} tuples that have a row, for a master of {keys:,} keys",
            hint=f"Give at least {_LEAST_SAMPLE} such tuples, or skew= itself.",
        )
    if keys == 1:
        return 0.0
    share = known / len(codes)
    part = min(len(codes), math.ceil(keys / share))
    parts = np.sort(codes[: len(codes) // part * part].reshape(-1, part)[:_MOST_PARTS], axis=1)
    distinct = 1.0 + float(np.mean(np.count_nonzero(parts[:, 1:] != parts[:, :-1], axis=1)))
    distinct -= (
        _distinct_of(missed.share * part, missed.keys * len(codes))
        if part < len(codes)
        else missed.keys * part
    )
    low, high = 0.0, MOST
    for _ in range(30):
        middle = (low + high) / 2
        more = expected_distinct(round(share * part), keys, middle) > distinct
        low, high = (middle, high) if more else (low, middle)
    return (low + high) / 2


def _distinct_of(draws: float, keys: float) -> float:
    """Distinct keys among draws from so many that are alike."""
    return keys * -math.expm1(-draws / keys) if keys else 0.0


def expected_distinct(tuples: int, keys: int, skew: float) -> float:
    """Distinct keys among so many tuples of a Zipf stream."""
    mass, count = _grouped(keys, skew)
    chance = mass / count / mass.sum()
    never = np.exp(tuples * np.log1p(-np.minimum(chance, 1 - 1e-12)))
    return float(count @ (1 - never))


def _grouped(rows: int, skew: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Zipf's law, not normed: the first ranks one by one, then groups of neighbours, whose sums are integrals; and their sizes."""
    first = np.arange(1, min(rows, _ONE_BY_ONE) + 1, dtype=np.float64)
    if rows <= _ONE_BY_ONE:
        return first**-skew, np.ones(len(first))
    edges = np.unique(np.round(np.geomspace(_ONE_BY_ONE, rows, _GROUPS))) + 0.5
    below = np.log(edges) if abs(skew - 1) < _NEAR_ONE else edges ** (1 - skew) / (1 - skew)
    mass, count = np.diff(below), np.diff(edges)
    return np.concatenate([first**-skew, mass]), np.concatenate([np.ones(len(first)), count])
