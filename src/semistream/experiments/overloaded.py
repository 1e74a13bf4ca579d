"""A join under a stream that is faster than it: what it serves while it sheds the rest."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from semistream.errors import InvalidInputError
from semistream.experiments.case import Case, Measured
from semistream.experiments.data import open_or_build, stream_batches
from semistream.experiments.measure import Running, opening_of
from semistream.experiments.pricing import disk_seconds, predicted_rate, total_seconds
from semistream.experiments.tuning import tuned_settings
from semistream.joins.driver import Driver
from semistream.joins.opening import open_join
from semistream.joins.paced import STREAM_SHARE
from semistream.joins.paced_opening import paced_driver
from semistream.shedding import Shedding, Timed
from semistream.workload import Constant


def measure_shedding(case: Case, folder: Path, *, seed: int) -> Measured:
    """Run a case whose tuples arrive at a multiple of the rate that it is predicted to serve; what is shed is dropped."""
    master = open_or_build(case.master, folder, seed=seed)
    batches = stream_batches(case.stream, case.master, folder, seed=seed)
    first = next(batches)
    settings = case.settings or tuned_settings(case, master, first)
    served = predicted_rate(case, settings, master, first)
    if served is None:
        raise InvalidInputError(
            f"shedding with {case.algorithm}", found="no model of its rate", hint="Use a Zipf stream."
        )
    opening = opening_of(case, settings, master, first, stream_bytes=int(STREAM_SHARE * case.memory_bytes))
    source = chain([first], batches)
    driver = Driver(open_join(opening), source)

    def now() -> float:
        reading = disk_seconds(driver.opened.reader.disk.stats, case.disk, latency_factor=case.latency_factor)
        return total_seconds(driver.stats, reading, case)

    strategy = Shedding(case.sheds, fate="dropped", position=case.position)  # type: ignore[arg-type]
    paced = paced_driver(driver, source, Timed(Constant(case.overload * served), now), strategy, None)
    try:
        return Running(case, settings, driver, paced.run()).counted()
    finally:
        driver.opened.close()
