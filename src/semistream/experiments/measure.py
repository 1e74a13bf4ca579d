"""Running one case: the real join over the real pages, warmed up, then counted.

The steady state of MESH section 4.1: let every tuple of some windows pass, then count while some more do. What is counted
is priced by `pricing.py`; on a real disk the wall clock decides instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from semistream.experiments.case import INDEX_LOOPS, Case, Measured
from semistream.experiments.data import joined_on, open_or_build, stream_batches
from semistream.experiments.own_frequency import OwnFrequency
from semistream.experiments.pricing import disk_seconds, predicted_rate, total_seconds
from semistream.experiments.tuning import tuned_settings
from semistream.joins import JoinStats, Settings
from semistream.joins.base import Answers, Join
from semistream.joins.driver import Driver
from semistream.joins.frontstage import FrontStage
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import Opening, open_join
from semistream.joins.reader import index_bytes
from semistream.joins.registry import SCANNING
from semistream.joins.sides import shape_join
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.master import Master
from semistream.master.disk import Disk
from semistream.master.disk.stats import DiskStats
from semistream.memory.window import Window

_REAL_DISKS = ("direct", "buffered")
_REPEATS, _REPEAT_S = 5, 0.4  # of a point on a real disk


def measure(case: Case, folder: Path, *, seed: int) -> Measured:
    """Run a case to its steady state and count."""
    master = open_or_build(case.master, folder, seed=seed)
    batches = stream_batches(case.stream, case.master, folder, seed=seed)
    first = next(batches)
    settings = case.settings or tuned_settings(case, master, first)
    running = Running.start(case, settings, master, chain([first], batches))
    try:
        found = running.counted()
        if case.models:
            found = replace(found, predicted_rate=predicted_rate(case, settings, master, first))
        return found
    finally:
        running.driver.opened.close()


def opening_of(
    case: Case, settings: Settings, master: Master, first: pa.RecordBatch, **reserved: int
) -> Opening:
    """The join of a case, to be opened; `reserved` bytes are for what goes on beside it."""
    shape = shape_join(first.schema, master, on=joined_on(case.master))
    heap = string_bytes_of(shape, first)
    return Opening(case.algorithm, master, shape, case.memory_bytes, case.disk, heap, settings, **reserved)  # type: ignore[arg-type]


@dataclass
class Running:
    """A join that runs without end, and what it had done when the counting began."""

    case: Case
    settings: Settings
    driver: Driver
    steps: Iterator[Answers]
    pending_sum: float = 0.0
    advances_seen: int = 0

    @staticmethod
    def start(
        case: Case,
        settings: Settings,
        master: Master,
        batches: Iterator[pa.RecordBatch],
        *,
        follow: bool = False,
    ) -> Running:
        """Open the join of a case."""
        first = next(batches)
        reserved = 2 * index_bytes(master) if follow else 0
        opening = opening_of(case, settings, master, first, reserve_bytes=reserved)
        opened = open_join(opening)
        if case.newcomers == "own frequency" and isinstance(opened.join, FrontStage):
            opened.join.recorder = OwnFrequency.instead_of(opened.join.recorder)
        driver = Driver(opened, chain([first], batches), follow=follow)
        return Running(case, settings, driver, driver.run())

    @property
    def stats(self) -> JoinStats:
        """Of the join."""
        return self.driver.stats

    @property
    def window(self) -> Window:
        """Where tuples wait."""
        return window_of(self.driver.opened.join)

    @property
    def disk(self) -> Disk:
        """That pages are read through now."""
        return self.driver.opened.reader.disk

    @property
    def behind(self) -> int:
        """Tuples answered by what was read."""
        return self.stats.answered - self.stats.front_hits

    def go_on(self, done: Callable[[], bool]) -> None:
        """Run until that is so."""
        while not done():
            for _ in next(self.steps):
                pass
            join = self.driver.opened.join
            if self.stats.advances != self.advances_seen:
                self.advances_seen = self.stats.advances
                self.pending_sum += join.pending
            if self.case.threshold is not None and isinstance(join, FrontStage):
                join.recorder.threshold = self.case.threshold

    def pass_windows(self, windows: float) -> None:
        """Let so many windows of tuples pass: of a scan, rounds of the master; of an index loop, which has none, some tuples."""
        stats, algorithm = self.stats, self.case.algorithm
        if algorithm in SCANNING:
            pages = stats.pages + windows * self.driver.opened.opening.master.pages
            self.go_on(lambda: stats.pages >= pages)
        elif algorithm in INDEX_LOOPS:
            answered = stats.answered + self.case.looked_up
            self.go_on(lambda: stats.answered >= answered)
        else:
            behind = self.behind + windows * self.window.capacity
            self.go_on(lambda: self.behind >= behind)

    def counted(self) -> Measured:
        """Warm up, then count; on a real disk several times, of which the median counts: it is never alone for long."""
        self.warm_up()
        if self.case.disk not in _REAL_DISKS:
            return self.counted_while(lambda: self.pass_windows(self.case.measured))
        times = [self.counted_while(self.pass_some_time) for _ in range(_REPEATS)]
        return sorted(times, key=lambda each: each.rate)[_REPEATS // 2]

    def pass_some_time(self) -> None:
        """Of the wall clock; and at least the case's windows, but of an index loop, which has none."""
        until = time.perf_counter() + _REPEAT_S
        if self.case.algorithm not in INDEX_LOOPS:
            self.pass_windows(self.case.measured)
        self.go_on(lambda: time.perf_counter() >= until)

    def warm_up(self) -> None:
        """Until the state is steady."""
        join = self.driver.opened.join
        if self.case.algorithm in INDEX_LOOPS:
            seen = self.case.looked_up_warm * (join.hot.table.capacity if isinstance(join, FrontStage) else 0)
            self.go_on(lambda: self.stats.answered >= seen)
        else:
            self.pass_windows(self.case.warm)
            if isinstance(join, FrontStage):  # a small window fills many places slowly
                known = self.case.warm_per_row * join.hot.table.capacity
                self.go_on(lambda: self.stats.answered >= known)

    def counted_while(self, passes: Callable[[], None]) -> Measured:
        """What is done while that passes."""
        stats, disk = replace(self.stats), self.disk.stats.snapshot()
        began, pending, advances = time.perf_counter(), self.pending_sum, self.advances_seen
        passes()
        wall = time.perf_counter() - began
        mean = (self.pending_sum - pending) / max(1, self.advances_seen - advances)
        return self.since(stats, disk, mean, wall)

    def since(self, stats: JoinStats, disk: DiskStats, pending: float, wall: float) -> Measured:
        """What was done since these counts were taken."""
        case, read = self.case, self.disk.stats - disk
        join = self.driver.opened.join
        done = self.stats.since(stats)
        reading = disk_seconds(read, case.disk, latency_factor=case.latency_factor)
        real = case.disk in _REAL_DISKS
        return Measured(
            **{name: getattr(done, name) for name in _COUNTS},
            calls=read.calls,
            seeks=read.seeks,
            bytes=read.bytes,
            disk_seconds=read.seconds if real else reading,
            seconds=wall if real else total_seconds(done, reading, case),
            mean_pending=pending,
            window_tuples=self.window.capacity,
            held=join.hot.table.rows if isinstance(join, FrontStage) else 0,
            scale=case.scale,
            used=dict(self.stats.used),
            settings=asdict(self.settings),
        )


_COUNTS = (
    "answered",
    "rows",
    "misses",
    "front_hits",
    "admitted",
    "advances",
    "pages",
    "probes",
    "front_probes",
    "cached",
    "evicted",
)


def window_of(join: Join) -> Window:
    """The window of any join that has one."""
    if isinstance(join, FrontStage):
        return window_of(join.behind)
    if isinstance(join, XHybridJoin):
        join = join.hybrid
    return join.waiting.window  # type: ignore[attr-defined, no-any-return]
