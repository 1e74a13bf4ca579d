"""How skewed a stream is, from a sample of its keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.cost.popularity import Ranks
from semistream.errors import InvalidInputError

MOST = 2.0
_LEAST_SAMPLE = 200


def check_skew(skew: float) -> float:
    """An exponent that the models know."""
    if not 0.0 <= skew <= MOST:
        raise InvalidInputError(
            f"skew={skew}",
            found="no exponent of Zipf's law between 0 and 2",
            hint="Give 0 for a uniform stream, about 1 for sales or clicks, or sample= to have it estimated.",
        )
    return float(skew)


def estimated_skew(codes: NDArray[np.uint64], master_rows: int) -> float:
    """The exponent for which so many tuples would ask for so many distinct keys.

    The number of distinct keys is the one statistic of a sample that needs no ranks, which a sample does not show: they
    fall steadily as skew grows.
    """
    if len(codes) < _LEAST_SAMPLE or master_rows < 2:
        raise InvalidInputError(
            "estimating the skew of a stream",
            found=f"a sample of {len(codes):,} tuples for a master of {master_rows:,} rows",
            hint=f"Give at least {_LEAST_SAMPLE} tuples, or skew= itself.",
        )
    distinct = float(len(np.unique(codes)))
    low, high = 0.0, MOST
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if expected_distinct(len(codes), master_rows, middle) > distinct else (low, middle)
        )
    return (low + high) / 2


def expected_distinct(tuples: int, master_rows: int, skew: float) -> float:
    """Distinct keys among so many tuples of a Zipf stream."""
    ranks = Ranks.of(master_rows, skew)
    first = -np.expm1(tuples * np.log1p(-np.minimum(ranks.chance, 1 - 1e-12)))
    return float(first.sum()) - ranks.others * float(np.expm1(tuples * np.log1p(-ranks.other_chance)))
