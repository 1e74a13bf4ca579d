"""How many tuples have arrived by now: what a join must know to see that it is overloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a worker on Spark has no use for workloads
    from semistream.workload.arrivals import Arrivals


class ArrivalClock(Protocol):
    """Tells how much of a stream has arrived. A consumer of a broker has its offsets; a replay has `Timed`."""

    def arrived(self) -> int:
        """How many tuples have arrived since the stream began. It never falls."""
        ...

    def wait_for(self, count: int) -> None:
        """Return when so many have arrived; a source that blocks until it has some need do nothing here."""
        ...


@dataclass
class Timed:
    """Tuples that arrive at the times of an arrival process, on any clock.

    Args:
        arrivals: When tuples arrive, in seconds since the stream began.
        now: Seconds since then that the join has been busy, or that have passed.
        rows: How many tuples there are, if it is known.
        seed: Of the arrivals.
        wait: Lets time pass when there is nothing to do. None is for virtual time: it jumps.

    In real time, with `started = time.monotonic()`: `now=lambda: time.monotonic() - started, wait=time.sleep`. On a
    simulated disk, whose time passes when it reads: `now=lambda: joined.stats.disk_seconds`.
    """

    arrivals: Arrivals
    now: Callable[[], float]
    _: KW_ONLY
    rows: int | None = None
    seed: int = 0
    wait: Callable[[float], None] | None = None
    idle_s: float = field(default=0.0, init=False)  # by which virtual time jumped

    @property
    def seconds(self) -> float:
        """The time it is."""
        return self.now() + self.idle_s

    def arrived(self) -> int:
        """How many tuples have arrived by now."""
        count = self.arrivals.arrived_by(self.seconds, seed=self.seed)
        return count if self.rows is None else min(count, self.rows)

    def wait_for(self, count: int) -> None:
        """Let time pass until so many have arrived."""
        if self.rows is not None and count > self.rows:
            return
        left = float(self.arrivals.times(count - 1, count, seed=self.seed)[0]) - self.seconds
        if left > 0 and self.wait is not None:
            self.wait(left)
        elif left > 0:
            self.idle_s += left
