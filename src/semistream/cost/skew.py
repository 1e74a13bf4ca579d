"""How skewed a stream is, from a sample of its keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.cost.misses import Misses
from semistream.errors import InvalidInputError

MOST = 2.0
_LEAST_SAMPLE = 200
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


def estimated_skew(codes: NDArray[np.uint64], master_rows: int, misses: Misses | None = None) -> float:
    """The exponent for which so many tuples would ask for so many distinct keys.

    The number of distinct keys is the one statistic of a sample that needs no ranks, which a sample does not show: they
    fall steadily as skew grows. Tuples that have no row say nothing of it.
    """
    if len(codes) < _LEAST_SAMPLE or master_rows < 2:
        raise InvalidInputError(
            "estimating the skew of a stream",
            found=f"a sample of {len(codes):,} tuples for a master of {master_rows:,} rows",
            hint=f"Give at least {_LEAST_SAMPLE} tuples, or skew= itself.",
        )
    tuples, distinct = len(codes), float(len(np.unique(codes)))
    if misses is not None:
        distinct -= misses.keys * tuples
        tuples -= round(misses.share * tuples)
    low, high = 0.0, MOST
    for _ in range(30):
        middle = (low + high) / 2
        more = expected_distinct(tuples, master_rows, middle) > distinct
        low, high = (middle, high) if more else (low, middle)
    return (low + high) / 2


def expected_distinct(tuples: int, master_rows: int, skew: float) -> float:
    """Distinct keys among so many tuples of a Zipf stream."""
    mass, count = _grouped(master_rows, skew)
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
