"""When stream tuples arrive.

Every process gives the time of the i-th arrival, in seconds since the stream began, as a pure function of (seed, i), and
its inverse, how many have arrived by a moment: the first stamps the tuples, the second paces a live stream. Those that
vary their rate run one Poisson process (poisson.py) on a clock that goes faster when the rate is higher.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.workload.cascade import fill_moments, level_biases, work_by
from semistream.workload.limits import MAX_ROWS, require_above, require_between
from semistream.workload.poisson import unit_rate_count, unit_rate_times
from semistream.workload.randomness import derive, units_at


class Arrivals(Protocol):
    """An arrival process: a pure function of (seed, position)."""

    @property
    def rate(self) -> float:
        """How many tuples arrive in a second, on average."""
        ...

    def times(self, start: int, stop: int, *, seed: int) -> NDArray[np.float64]:
        """Give the arrival times of the positions `start`..`stop`, in seconds, never decreasing."""
        ...

    def arrived_by(self, seconds: float, *, seed: int) -> int:
        """Count the tuples that have arrived by a moment."""
        ...


@dataclass(frozen=True)
class Constant:
    """One tuple every 1/rate seconds.

    >>> Constant(rate=4.0).times(0, 4, seed=0).tolist()
    [0.25, 0.5, 0.75, 1.0]
    """

    rate: float = 100_000.0

    def __post_init__(self) -> None:
        require_above("rate", self.rate, 0)

    def times(self, start: int, stop: int, *, seed: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Give the arrival times of the positions `start`..`stop`, in seconds."""
        return np.arange(start + 1, stop + 1, dtype=np.float64) / self.rate

    def arrived_by(self, seconds: float, *, seed: int) -> int:  # noqa: ARG002
        """Count the tuples that have arrived by a moment."""
        return min(max(0, math.floor(seconds * self.rate)), MAX_ROWS)


@dataclass(frozen=True)
class Poisson:
    """Independent arrivals: the number in any second varies by the square root of its mean."""

    rate: float = 100_000.0

    def __post_init__(self) -> None:
        require_above("rate", self.rate, 0)

    def times(self, start: int, stop: int, *, seed: int) -> NDArray[np.float64]:
        """Give the arrival times of the positions `start`..`stop`, in seconds."""
        return unit_rate_times(start, stop, derive(seed, "arrivals")) / self.rate

    def arrived_by(self, seconds: float, *, seed: int) -> int:
        """Count the tuples that have arrived by a moment."""
        return unit_rate_count(seconds * self.rate, derive(seed, "arrivals"))


@dataclass(frozen=True)
class Bursty:
    """One burst in every period, at a random moment of it: `burst_factor` times the quiet rate for `burst_s` seconds.

    `rate` is the mean over quiet times and bursts.

    >>> round(Bursty(rate=1000.0, burst_factor=10.0, burst_s=1.0, period_s=10.0).quiet_rate)
    526
    """

    rate: float = 100_000.0
    _: KW_ONLY
    burst_factor: float = 10.0
    burst_s: float = 1.0
    period_s: float = 10.0

    def __post_init__(self) -> None:
        require_above("rate", self.rate, 0)
        require_above("period_s", self.period_s, 0)
        require_between("burst_factor", self.burst_factor, 1, 1e6)
        require_above("burst_s", self.burst_s, 0)
        if self.burst_s >= self.period_s:
            raise InvalidInputError(
                f"burst_s={self.burst_s!r}",
                found=f"period_s={self.period_s!r}",
                hint="A burst must fit in its period.",
            )

    @property
    def quiet_rate(self) -> float:
        """The rate between bursts."""
        return self.rate * self.period_s / (self.period_s + (self.burst_factor - 1.0) * self.burst_s)

    def times(self, start: int, stop: int, *, seed: int) -> NDArray[np.float64]:
        """Give the arrival times of the positions `start`..`stop`, in seconds."""
        works = unit_rate_times(start, stop, derive(seed, "arrivals"))
        period_work = self.rate * self.period_s
        period = np.floor(works / period_work)
        work = works - period * period_work
        begins_s = self._burst_begins_s(period.astype(np.int64), seed)
        quiet, fast = self.quiet_rate, self.quiet_rate * self.burst_factor
        before = quiet * begins_s
        burst = fast * self.burst_s
        within = np.where(
            work < before,
            work / quiet,
            np.where(
                work < before + burst,
                begins_s + (work - before) / fast,
                begins_s + self.burst_s + (work - before - burst) / quiet,
            ),
        )
        moments: NDArray[np.float64] = period * self.period_s + within
        return moments

    def arrived_by(self, seconds: float, *, seed: int) -> int:
        """Count the tuples that have arrived by a moment."""
        if seconds <= 0.0:
            return 0
        period = math.floor(seconds / self.period_s)
        within = seconds - period * self.period_s
        begins_s = float(self._burst_begins_s(np.array([period]), seed)[0])
        in_burst = min(max(within - begins_s, 0.0), self.burst_s)
        work = period * self.rate * self.period_s
        work += self.quiet_rate * (within + (self.burst_factor - 1.0) * in_burst)
        return unit_rate_count(work, derive(seed, "arrivals"))

    def _burst_begins_s(self, periods: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        return units_at(periods, derive(seed, "bursts")) * (self.period_s - self.burst_s)


@dataclass(frozen=True)
class SelfSimilar:
    """Bursts within bursts: averaging over a longer time hardly smooths the rate.

    The rate averaged over m seconds has a coefficient of variation of ``variation * m**(hurst - 1)``: with hurst 0.5 it
    falls like that of independent arrivals, near 1 it hardly falls. Measured traffic has 0.7 to 0.9. The law holds from about
    sixteen arrivals up to years; below, arrivals are Poisson.
    """

    rate: float = 100_000.0
    _: KW_ONLY
    hurst: float = 0.8
    variation: float = 0.5

    def __post_init__(self) -> None:
        require_above("rate", self.rate, 0)
        require_between("hurst", self.hurst, 0.5, 0.99)
        require_between("variation", self.variation, 0, 10)

    def times(self, start: int, stop: int, *, seed: int) -> NDArray[np.float64]:
        """Give the arrival times of the positions `start`..`stop`, in seconds."""
        works = unit_rate_times(start, stop, derive(seed, "arrivals"))
        moments = np.empty_like(works)
        fill_moments(moments, works, derive(seed, "cascade"), self._biases(), self.rate)
        return moments

    def arrived_by(self, seconds: float, *, seed: int) -> int:
        """Count the tuples that have arrived by a moment."""
        if seconds <= 0.0:
            return 0
        work = work_by(seconds, derive(seed, "cascade"), self._biases(), self.rate)
        return unit_rate_count(work, derive(seed, "arrivals"))

    def _biases(self) -> NDArray[np.float64]:
        return level_biases(self.hurst, self.variation, 2.0 ** round(math.log2(16.0 / self.rate)))
