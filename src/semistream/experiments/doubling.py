"""A master that doubles while a join runs: the rate, piece by piece, before and after."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from semistream.experiments.case import Case, Measured
from semistream.experiments.data import MasterSpec, appended_rows, open_or_build, stream_batches
from semistream.experiments.measure import Running
from semistream.experiments.pricing import disk_seconds, total_seconds
from semistream.experiments.tuning import tuned_settings
from semistream.master import Master
from semistream.master.disk.stats import DiskStats

PIECES = 20  # half of them before the master doubles; one is as many tuples as have room to wait


def measure_doubling(case: Case, folder: Path, *, seed: int) -> Measured:
    """Run a case whose master doubles half-way; its timeline, seconds and reads are of all pieces, its answers of all of the run."""
    own = folder / "doubling"
    shutil.rmtree(own, ignore_errors=True)  # a master that was doubled is no use for another run
    try:
        return _Doubling(case, open_or_build(case.master, own, seed=seed), own, seed).run()
    finally:
        shutil.rmtree(own, ignore_errors=True)


@dataclass
class _Doubling:
    case: Case
    master: Master
    folder: Path
    seed: int
    grown: bool = False
    ended: bool = False
    reads: list[DiskStats] = field(default_factory=list)  # of all pieces, one disk after the other

    @property
    def whole(self) -> MasterSpec:
        """What the master becomes."""
        return replace(self.case.master, rows=2 * self.case.master.rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """A stream over the keys there are: half of them, and from the change on all."""
        half = stream_batches(self.case.stream, self.case.master, self.folder, seed=self.seed)
        while not self.grown:
            yield next(half)
        for rows in appended_rows(self.case.master):
            self.master.append(rows)
        whole = stream_batches(self.case.stream, self.whole, self.folder, seed=self.seed + 1)
        while not self.ended:
            yield next(whole)

    def run(self) -> Measured:
        """Piece by piece."""
        batches = self.batches()
        first = next(batches)
        settings = self.case.settings or tuned_settings(self.case, self.master, first)
        running = Running.start(self.case, settings, self.master, chain([first], batches), follow=True)
        began = replace(running.stats)
        timeline: list[tuple[int, float]] = []
        try:
            for piece in range(PIECES):
                self.grown = piece >= PIECES // 2
                timeline.append(self._piece(running))
            self.ended = True
            for (
                answers
            ) in running.steps:  # who still waits is answered too, so that every answer can be counted
                for _ in answers:
                    pass
            done = running.stats.since(began)
            seconds = sum(seconds for _, seconds in timeline)
            counted = running.since(began, running.disk.stats.snapshot(), 0.0, 0.0)
            return replace(
                counted,
                answered=done.answered,
                seconds=seconds,
                timeline=tuple(timeline),
                calls=sum(read.calls for read in self.reads),
                seeks=sum(read.seeks for read in self.reads),
                bytes=sum(read.bytes for read in self.reads),
                disk_seconds=sum(self._priced(read) for read in self.reads),
            )
        finally:
            running.driver.opened.close()

    def _piece(self, running: Running) -> tuple[int, float]:
        stats, disk = replace(running.stats), running.disk
        before = disk.stats.snapshot()
        running.pass_windows(1.0)
        reads = [disk.stats - before]
        if running.disk is not disk:  # another version was moved to
            reads.append(running.disk.stats.snapshot())
        self.reads += reads
        done = running.stats.since(stats)
        return done.answered, total_seconds(done, sum(map(self._priced, reads)), self.case)

    def _priced(self, read: DiskStats) -> float:
        return disk_seconds(read, self.case.disk, latency_factor=self.case.latency_factor)
