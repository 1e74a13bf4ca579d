"""A master that changes while a join runs: what a join serves from one version to the next, the move included.

Every so many tuples some rows, anywhere in the master, get new values. Who waits is answered from the version that was
current when it arrived; then the join moves on, keeps the rows in memory whose pages did not change, and fills its window
anew. So a period is whole: what is counted is the tuples of one version and everything that was read for them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from semistream.experiments.case import Case, Measured
from semistream.experiments.data import changed_rows, open_or_build, stream_batches
from semistream.experiments.measure import Running
from semistream.experiments.tuning import tuned_settings
from semistream.joins.registry import FRONTED
from semistream.master import Master, open_master
from semistream.master.disk import Disk
from semistream.master.disk.stats import DiskStats

CHANGED_SHARE = 0.001  # of the master's rows, with each version
_WARM_VERSIONS = (
    1  # for joins that keep rows from one version to the next; the others begin each with nothing
)


def measure_updates(case: Case, folder: Path, *, seed: int) -> Measured:
    """Run a case whose master has a new version every `version_every` tuples, and count one period."""
    built = open_or_build(case.master, folder, seed=seed)
    own = Path(mkdtemp(prefix="updated-", dir=folder))  # whose versions nobody else sees
    try:
        shutil.copytree(built.path, own / "master")
        return _Updating(case, open_master(own / "master"), folder, seed).run()
    finally:
        shutil.rmtree(own, ignore_errors=True)


@dataclass
class _Updating:
    case: Case
    master: Master
    folder: Path
    seed: int
    disks: list[Disk] = field(default_factory=list)  # one a version

    def batches(self) -> Iterator[pa.RecordBatch]:
        """One a version: the driver looks for a newer one before each."""
        stream = stream_batches(
            self.case.stream,
            self.case.master,
            self.folder,
            seed=self.seed,
            batch_rows=self.case.version_every,
        )
        changed = round(CHANGED_SHARE * self.case.master.rows)
        for number in count():
            if number:
                rows = changed_rows(self.case.master, changed, seed=self.seed + number)
                self.master = self.master.upsert(rows)
            yield next(stream)

    def run(self) -> Measured:
        """Some versions to warm up, then one that counts."""
        batches = self.batches()
        first = next(batches)
        settings = self.case.settings or tuned_settings(self.case, self.master, first)
        running = Running.start(self.case, settings, self.master, chain([first], batches), follow=True)
        try:
            stats = running.stats
            self.disks.append(running.disk)
            warm = _WARM_VERSIONS if self.case.algorithm in FRONTED else 0
            self._go_on(running, warm)
            began, before = replace(stats), self._read()
            self._go_on(running, warm + 1)
            counted = running.since(began, running.disk.stats.snapshot(), 0.0, 0.0)
            read = self._read() - before
            return replace(counted, calls=read.calls, seeks=read.seeks, bytes=read.bytes)
        finally:
            running.driver.opened.close()

    def _go_on(self, running: Running, versions: int) -> None:
        """Until the join has moved so often."""

        def done() -> bool:
            if running.disk is not self.disks[-1]:
                self.disks.append(running.disk)
            return running.stats.versions >= versions

        running.go_on(done)

    def _read(self) -> DiskStats:
        """Through all of them."""
        every = [disk.stats for disk in self.disks]
        return DiskStats(
            sum(each.calls for each in every),
            sum(each.bytes for each in every),
            sum(each.seeks for each in every),
        )
