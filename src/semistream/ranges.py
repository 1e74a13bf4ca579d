"""Ranges of numbers as arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def spread(first: I64, counts: I64) -> I64:
    """For each i the numbers first[i] .. first[i] + counts[i] - 1, one after the other.

    >>> spread(np.array([5, 0, 7]), np.array([2, 0, 3])).tolist()
    [5, 6, 7, 8, 9]
    """
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)
