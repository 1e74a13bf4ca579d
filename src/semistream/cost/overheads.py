"""What an iteration costs whatever it does, measured on joins that run.

For each way to read, joins with a small and with a large disk buffer take turns. What their iterations take, less what the prices say of
the counted work (and less the reading, where nothing else goes on meanwhile), is the step. Turns are short and alternate, and the
median is taken, so that a slow moment of the machine falls on few of them.

The rest was found to depend neither on the pages of an iteration nor on its tuples (docs/decisions/013-cost-models.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from time import perf_counter

import pyarrow as pa

from semistream.cost.prices import Prices, counted_seconds
from semistream.joins.driver import Driver
from semistream.joins.opening import Opening, open_join
from semistream.joins.registry import Settings
from semistream.joins.sides import JoinShape
from semistream.master import Master
from semistream.workload import Uniform, Workload

_MEMORY = 8 << 20
_BUFFERS = (256 << 10, 512 << 10, 1 << 20)
_WARM_S = 0.15
_TURN_S = 0.06
_TURNS = 7
_BATCH, _BATCHES = 1 << 15, 32  # tuples of a batch, and batches: more than the windows hold


def step_seconds(
    algorithms: Sequence[str], master: Master, shape: JoinShape, disk: str, prices: Prices
) -> dict[str, list[float]]:
    """Of each, in some turns. The small reads of a local disk are done before they are waited for."""
    stream = Workload(Uniform(master.rows), seed=2)
    batches = [stream.slice(i * _BATCH, (i + 1) * _BATCH) for i in range(_BATCHES)]
    return {
        name: _turns([_Running(name, master, shape, batches, disk, buffer) for buffer in _BUFFERS], prices)
        for name in algorithms
    }


def _turns(running: Sequence[_Running], prices: Prices) -> list[float]:
    """One after the other, until all have had some; then they are closed."""
    try:
        for one in running:
            one.turn(prices, _WARM_S)
        return [max(0.0, one.turn(prices, _TURN_S)) for _ in range(_TURNS) for one in running]
    finally:
        for one in running:
            one.opened.close()


class _Running:
    """A join over a stream without end."""

    def __init__(
        self,
        algorithm: str,
        master: Master,
        shape: JoinShape,
        batches: list[pa.RecordBatch],
        disk: str,
        buffer: int,
    ) -> None:
        settings = Settings(disk_buffer=buffer)
        self.opened = open_join(Opening(algorithm, master, shape, _MEMORY, disk, 0.0, settings))
        self.driver = Driver(self.opened, cycle(batches))
        self.steps = self._steps()

    def _steps(self) -> Iterator[None]:
        for answers in self.driver.run():
            for _ in answers:
                pass
            yield

    def turn(self, prices: Prices, seconds: float) -> float:
        """Go on for a while; what an iteration took beside what is counted."""
        before, reader = replace(self.driver.stats), self.opened.reader
        read_before = reader.disk.stats.seconds
        began = perf_counter()
        while perf_counter() - began < seconds or self.driver.stats.advances == before.advances:
            next(self.steps)
        elapsed, done = perf_counter() - began, self.driver.stats.since(before)
        reading = 0.0 if reader.reads_ahead else reader.disk.stats.seconds - read_before
        return (
            float(elapsed - counted_seconds(done, reading, prices, self.opened.opening.name)) / done.advances
        )
