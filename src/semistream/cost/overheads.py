"""What only shows on joins that run: what an iteration costs whatever it does, and how much joining slows reading down.

For each way to read, joins with a small and with a large disk buffer take turns. What their iterations take, less what the prices say of
the counted work (and less the reading, where nothing else goes on meanwhile), is the step. How long their reads take, over what the same
reads take alone, is the factor. Turns are short and alternate, and the median is taken, so that a slow moment of the machine falls on
few of them.

The rest was found to depend neither on the pages of an iteration nor on its tuples (docs/decisions/013-cost-models.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from time import perf_counter

import pyarrow as pa

from semistream.cost.disks import DiskCosts
from semistream.cost.prices import Prices, counted_seconds
from semistream.joins.driver import Driver
from semistream.joins.opening import Opening, open_join
from semistream.joins.registry import Settings
from semistream.joins.sides import JoinShape
from semistream.master import Master
from semistream.workload import Uniform, Workload

_MEMORY = 8 << 20
_BUFFERS = (256 << 10, 512 << 10, 1 << 20)
_LARGE_BUFFER = 4 << 20  # there the reads of a scan are what is waited for
_WARM_S = 0.15
_TURN_S = 0.06
_TURNS = 7
_BATCH, _BATCHES = 1 << 15, 32  # tuples of a batch, and batches: more than the windows hold


@dataclass(frozen=True)
class Turn:
    """What a join did for a while."""

    step_s: float  # of an iteration, beside what is counted
    read_bytes: int  # by an iteration at most
    slowed: float  # how many times as long a scan's reads took as alone


def step_turns(
    algorithms: Sequence[str], master: Master, shape: JoinShape, disk: str, prices: Prices, reads: DiskCosts
) -> dict[str, list[Turn]]:
    """Of each, in some turns. The small reads of a local disk are done before they are waited for."""
    batches = _batches(master)
    return {
        name: _turns(
            [_Running(name, master, shape, batches, disk, buffer) for buffer in _BUFFERS], prices, reads
        )
        for name in algorithms
    }


def scan_turns(master: Master, shape: JoinShape, disk: str, prices: Prices, reads: DiskCosts) -> list[Turn]:
    """Of MESHJOIN with small, middling and large reads: how much joining slows these down."""
    batches, sizes = _batches(master), (_BUFFERS[0], _BUFFERS[-1], _LARGE_BUFFER)
    return _turns([_Running("meshjoin", master, shape, batches, disk, size) for size in sizes], prices, reads)


def _batches(master: Master) -> list[pa.RecordBatch]:
    stream = Workload(Uniform(master.rows), seed=2)
    return [stream.slice(i * _BATCH, (i + 1) * _BATCH) for i in range(_BATCHES)]


def _turns(running: Sequence[_Running], prices: Prices, reads: DiskCosts) -> list[Turn]:
    """One after the other, until all have had some; then they are closed."""
    try:
        for one in running:
            one.turn(prices, reads, _WARM_S)
        return [one.turn(prices, reads, _TURN_S) for _ in range(_TURNS) for one in running]
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

    def turn(self, prices: Prices, reads: DiskCosts, seconds: float) -> Turn:
        """Go on for a while."""
        before, reader, name = replace(self.driver.stats), self.opened.reader, self.opened.opening.name
        read_before = reader.disk.stats.seconds
        began = perf_counter()
        while perf_counter() - began < seconds or self.driver.stats.advances == before.advances:
            next(self.steps)
        elapsed, done = perf_counter() - began, self.driver.stats.since(before)
        reading, page = reader.disk.stats.seconds - read_before, reader.master.page_bytes
        alone = reads.scan_s(max(1, round(done.pages / done.advances)) * page, page, 0) * done.advances
        waited = (
            0.0
            if reader.reads_ahead
            else reading + done.pages * reader.master.rows / reader.master.pages * prices.parse_s
        )
        step = elapsed - counted_seconds(done, waited, prices, name)
        return Turn(max(0.0, float(step)) / done.advances, reader.half_bytes, reading / alone)
