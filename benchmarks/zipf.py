"""How many keys a second do the workload's distributions draw, on one core, and do they need a table to do it?

    python benchmarks/zipf.py

Baselines, measured in the same run: `Generator.integers` for uniform keys; for Zipf the naive way, `Generator.random` and
`searchsorted` in a cumulative table, over 10^6 keys because one of 10^8 would take 800 MB.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from semistream.workload import HotSpot, Keys, TemporalLocality, Uniform, Zipf

N_KEYS = 100_000_000
BASELINE_KEYS = 1_000_000
ROWS = 1_000_000
REPEATS = 5

Draw = Callable[[int], NDArray[np.int64]]


def peak_mib() -> float:
    """Give the most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rates(draw: Draw) -> list[float]:
    """Time some repeats of drawing ROWS keys, each from other positions, in million keys a second."""
    draw(0)
    found = []
    for repeat in range(1, REPEATS + 1):
        begin = time.perf_counter()
        drawn = draw(repeat * ROWS)
        found.append(ROWS / (time.perf_counter() - begin) / 1e6)
        assert drawn.size == ROWS
    return found


def drawing(keys: Keys) -> Draw:
    """Draw from a distribution at the positions from `start` on."""
    return lambda start: keys.draw(start, start + ROWS, seed=1)


def naive_zipf(exponent: float) -> Draw:
    """Draw ranks by inversion in a table of BASELINE_KEYS cumulative probabilities."""
    cumulative = np.cumsum(np.arange(1, BASELINE_KEYS + 1, dtype=np.float64) ** -exponent)
    cumulative /= cumulative[-1]
    rng = np.random.default_rng(1)
    return lambda _: np.searchsorted(cumulative, rng.random(ROWS))


def main() -> None:
    """Print a row for each distribution; memory is read before the baselines build their tables."""
    cases: list[tuple[str, Keys, str]] = [("uniform", Uniform(N_KEYS), "integers")]
    for exponent in (0.5, 1.0, 1.5):
        cases.append(
            (f"zipf {exponent} in-order", Zipf(N_KEYS, exponent, popularity="in-order"), f"zipf {exponent}")
        )
        cases.append((f"zipf {exponent} scattered", Zipf(N_KEYS, exponent), f"zipf {exponent}"))
    cases.append(("hot spot", HotSpot(N_KEYS, N_KEYS // 100), "zipf 1.0"))
    cases.append(("temporal locality", TemporalLocality(N_KEYS), "zipf 1.0"))

    for _, keys, _ in cases:
        keys.draw(0, ROWS, seed=1)  # compiles the kernels and touches one batch of memory
    before = peak_mib()
    ours = [(name, rates(drawing(keys)), baseline) for name, keys, baseline in cases]
    grown = peak_mib() - before

    rng = np.random.default_rng(1)
    baselines = {"integers": rates(lambda _: rng.integers(0, N_KEYS, ROWS))}
    baselines |= {f"zipf {s}": rates(naive_zipf(s)) for s in (0.5, 1.0, 1.5)}

    print(
        f"{N_KEYS:,} keys, {ROWS:,} draws a repeat, median of {REPEATS} (lowest..highest), million keys/s, one core\n"
    )
    print(f"{'distribution':<22}{'keys/s':>8}{'spread':>16}{'baseline':>11}{'ratio':>8}")
    for name, found, baseline in ours:
        base = statistics.median(baselines[baseline])
        rate = statistics.median(found)
        spread = f"{min(found):.0f}..{max(found):.0f}"
        print(f"{name:<22}{rate:>7.0f}M{spread:>16}{base:>10.0f}M{rate / base:>7.1f}x")
    print(
        f"\npeak memory grew by {grown:.1f} MiB while drawing; a table of {N_KEYS:,} probabilities is {N_KEYS * 8 / 2**20:.0f} MiB"
    )


if __name__ == "__main__":
    main()
