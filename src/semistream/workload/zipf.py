"""Zipf's law over up to 10^9 ranks: exact, about 10 ns a draw, from a table of 16 KiB whatever the number of ranks.

P(rank k) is proportional to k^-s. Ranks are cut into segments: 1..63 alone, then every octave [2^j, 2^(j+1)) in 64
equal parts. A draw picks a segment with a chance proportional to (size x probability of its first rank), a rank
uniformly inside it, and keeps the rank k with chance (first/k)^s, else starts again: P(k) comes out proportional to
size * first^-s * 1/size * (first/k)^s = k^-s, with no sum approximated anywhere. As first/k is never below 64/65, the
power is computed for fewer than 1.6 % of the draws at exponent 1; the others are settled by one comparison.

Rejection-inversion (Hoermann and Derflinger, ACM TOMACS 1996) is equally exact and needs no table, but pays a logarithm
and an exponential for every draw. Devroye (Non-Uniform Random Variate Generation, 1986, VIII) has the strip method.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.alias import alias_table
from semistream.workload.randomness import LANE, STEP, mix, state_at, unit

SPLIT_BITS = 6
SPLIT = 1 << SPLIT_BITS
TABLE_BITS = 11
OFFSET_BITS = 24
"""Bits of a draw that place a rank inside its segment; the largest segment of 2^30 ranks has 2^23."""


def fill_zipf(out: NDArray[np.int64], start: int, key: np.uint64, *, n: int, exponent: float) -> None:
    """Fill `out` with ranks 0..n-1, the most popular first, for the positions from `start` on."""
    _fill(out, start, key, n, exponent, _table(n, exponent), _surely_kept(exponent))


@lru_cache(maxsize=64)
def _table(n: int, exponent: float) -> NDArray[np.uint64]:
    segment = np.arange(1 << TABLE_BITS)
    shift = np.maximum((segment >> SPLIT_BITS) - 1, 0)
    first = np.where(segment < SPLIT, segment, (SPLIT + segment % SPLIT) << shift)
    weights = np.zeros(segment.size)
    used = (first >= 1) & (first <= n)
    weights[used] = (1 << shift[used]) * first[used].astype(np.float64) ** -exponent
    return alias_table(weights, TABLE_BITS)


def _surely_kept(exponent: float) -> np.uint64:
    return np.uint64(int((SPLIT / (SPLIT + 1)) ** exponent * 2.0 ** (64 - OFFSET_BITS)))


@kernel
def _fill(
    out: NDArray[np.int64],
    start: int,
    key: np.uint64,
    n: int,
    exponent: float,
    table: NDArray[np.uint64],
    surely_kept: np.uint64,
) -> None:
    slot_mask = np.uint64((1 << TABLE_BITS) - 1)
    split_mask = np.uint64(SPLIT - 1)
    last = np.uint64(n)
    for i in range(out.size):
        state = state_at(key, start + i)
        while True:
            choice = mix(state)
            segment = choice & slot_mask
            entry = table[segment]
            if (choice >> np.uint64(TABLE_BITS)) >= (entry >> np.uint64(TABLE_BITS)):
                segment = entry & slot_mask
            if segment < np.uint64(2 * SPLIT):
                rank = segment
                break
            place = mix(state ^ LANE)
            shift = (segment >> np.uint64(SPLIT_BITS)) - np.uint64(1)
            first = (np.uint64(SPLIT) + (segment & split_mask)) << shift
            rank = first + (place & ((np.uint64(1) << shift) - np.uint64(1)))
            if rank <= last:
                keep = place >> np.uint64(OFFSET_BITS)
                if keep < surely_kept:
                    break
                # Forty bits decide nearly always; here they are extended so that the comparison is exact.
                exact = (np.float64(keep) + unit(mix(place))) * 2.0 ** (OFFSET_BITS - 64)
                if exact < (np.float64(first) / np.float64(rank)) ** exponent:
                    break
            state = (choice ^ place) + STEP
        out[i] = np.int64(rank) - 1


def zipf_mass(n: int, exponent: float) -> float:
    """Sum k^-exponent for k = 1..n: directly at first, by Euler and Maclaurin's formula for the rest.

    The share of a Zipf stream that goes to its `top` most popular keys is zipf_mass(top, s) / zipf_mass(n, s).

    >>> round(zipf_mass(4, 1.0), 12) == round(1 + 1 / 2 + 1 / 3 + 1 / 4, 12)
    True
    """
    head = min(n, 1000)
    total = float(np.sum(np.arange(1, head + 1, dtype=np.float64)[::-1] ** -exponent))
    if n == head:
        return total
    a, b, s = float(head), float(n), exponent
    span = np.log(b / a)
    integral = span if s == 1.0 else a ** (1 - s) * np.expm1((1 - s) * span) / (1 - s)
    ends = (b**-s - a**-s) / 2  # a itself is in the head already
    slopes = -s * (b ** (-s - 1) - a ** (-s - 1)) / 12
    thirds = s * (s + 1) * (s + 2) * (b ** (-s - 3) - a ** (-s - 3)) / 720
    return total + float(integral + ends + slopes + thirds)
