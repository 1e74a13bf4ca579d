"""A random rate that is bursty at every time scale: a multiplicative cascade with a prescribed Hurst exponent.

The b-model (Wang et al., Data Mining Meets Performance Evaluation: Fast Algorithms for Modeling Bursty Traffic,
ICDE 2002) divides the traffic of an interval b : 1-b between its halves, the larger part to a random side, and
again for each half. With the same b at every level, how bursty traffic is and how long bursts last cannot be
chosen apart. Here each level has its own bias, chosen so that the variance of the rate averaged over m seconds is
exactly variation^2 * m^(2H-2), the law of a self-similar process (as the multifractal wavelet model of Riedi et al., IEEE
Trans. Information Theory 1999, fits its levels). A node's side is a hash of (seed, node): any moment is reached from the
root, 34 years long, in about 45 steps.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.randomness import STEP, mix

HORIZON_S = 2.0**30


def level_biases(hurst: float, variation: float, cell_s: float) -> NDArray[np.float64]:
    """Give, from the root down, how far each level's division departs from one half; the leaves are `cell_s` long.

    With E[X^2] = 1 + V for the normalised rate X of an interval and V = variation^2 * seconds^(2H-2), a division 1/2 +- d
    multiplies E[X^2] by 1 + 4 d^2. For H of 1/2 or more, d stays under 1/2.
    """
    levels = round(math.log2(HORIZON_S / cell_s))
    seconds = HORIZON_S / 2.0 ** np.arange(levels + 1)
    second_moment = 1.0 + variation**2 * seconds ** (2.0 * hurst - 2.0)
    growth: NDArray[np.float64] = second_moment[1:] / second_moment[:-1]
    return np.sqrt(growth - 1.0) / 2.0


@kernel
def _left_share(key: np.uint64, level: int, index: int, bias: float) -> float:
    node = mix(mix(key + np.uint64(level)) + np.uint64(index) * STEP)
    return 0.5 + bias if node & np.uint64(1) else 0.5 - bias


@kernel
def fill_moments(
    out: NDArray[np.float64],
    works: NDArray[np.float64],
    key: np.uint64,
    biases: NDArray[np.float64],
    rate: float,
) -> None:
    """Find the moments by which the cascade has brought the given amounts of work, in ascending order.

    Work is the integral of the rate; `rate` is its mean. Inside a cell the rate is constant.
    """
    begins, ends, cell_begins_s, cell_s = 0.0, 0.0, 0.0, 0.0
    for i in range(works.size):
        work = works[i]
        if work < begins or work >= ends:
            begins, mass = 0.0, rate * HORIZON_S
            cell_begins_s, cell_s = 0.0, HORIZON_S
            index = 0
            for level in range(biases.size):
                left = mass * _left_share(key, level, index, biases[level])
                cell_s *= 0.5
                index *= 2
                if work >= begins + left:
                    begins += left
                    mass -= left
                    cell_begins_s += cell_s
                    index += 1
                else:
                    mass = left
            ends = begins + mass
        out[i] = cell_begins_s + cell_s * (work - begins) / (ends - begins)


@kernel
def work_by(moment_s: float, key: np.uint64, biases: NDArray[np.float64], rate: float) -> float:
    """Give the work that the cascade has brought by a moment."""
    work, mass = 0.0, rate * HORIZON_S
    begins_s, span_s = 0.0, HORIZON_S
    index = 0
    for level in range(biases.size):
        left = mass * _left_share(key, level, index, biases[level])
        span_s *= 0.5
        index *= 2
        if moment_s >= begins_s + span_s:
            work += left
            mass -= left
            begins_s += span_s
            index += 1
        else:
            mass = left
    return work + mass * min(1.0, (moment_s - begins_s) / span_s)
