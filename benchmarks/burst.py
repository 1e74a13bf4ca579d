"""Does a pipeline on Spark get over a burst: ten times the load for a minute, in real time?

    python burst.py [--strategy considering | upfront | random]

CHYBRIDJOIN within 5 % of a master of 10 million rows (4 KiB pages, `direct` disk), Zipf 0.5, into Parquet files, micro-batches
of 4 seconds at most. First its capacity is measured: the stream is given out as fast as it is taken, without shedding. Then the stream
arrives by the clock at 0.3 of that, and for 60 seconds at ten times as many. The pipeline sheds what it cannot serve, and
goes on until nobody is shed or waits any more. At the end every tuple that arrived must be in the files, once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import semistream as ss
from data import ROWS, SEED
from enrich import BUDGET, lookup_store, session
from measure import Ratio, report
from semistream.master import Master
from semistream.pipeline.report import BatchReport
from semistream.spark.listener import BatchMetrics
from semistream.workload.arrivals import Bursty

SKEW = 0.5
QUIET_SHARE = 0.3  # of the capacity, which a run may find to be twice what the one before found
FACTOR, BURST_S, PERIOD_S = 10.0, 60.0, 1200.0
CAPACITY_BATCHES, CAPACITY_ROWS = 8, 800_000
LONGEST_S = 900.0  # the whole run; a backlog that does not shrink is told, not waited for


@dataclass
class Watched:
    """What a pipeline told while it ran."""

    began: float = field(default_factory=time.monotonic)
    told: list[tuple[float, BatchReport]] = field(default_factory=list)
    used: list[float] = field(default_factory=list)  # of the budget, by micro-batch
    resident: list[int] = field(default_factory=list)

    def tell(self, batch: BatchReport) -> None:
        """A micro-batch is in the warehouse."""
        self.told.append((time.monotonic() - self.began, batch))

    def metrics(self, batch: BatchMetrics) -> None:
        """What its tasks counted."""
        if batch.counts.budget_bytes:
            self.used.append(batch.counts.used_bytes / batch.counts.budget_bytes)
            self.resident.append(batch.counts.peak_rss_bytes)


def description(
    folder: Path, master: Master, source: dict[str, object], strategy: str, batch_rows: int
) -> Path:
    """The pipeline as a file."""
    options = "\n".join(f'{name} = "{value}"' for name, value in source.items())
    file = folder / "burst.toml"
    file.write_text(f"""
[pipeline]
trigger = "1s"
[source]
format = "semistream-workload"
[source.options]
keys = "zipf"
n_keys = {ROWS}
exponent = {SKEW}
popularity = "scattered"
columns = "sale_id:position,product_id:key,quantity:int32:1:9"
max_rows_per_batch = {batch_rows}
{options}
[[enrich]]
master = "{master.path}"
on = "product_id"
columns = ["price"]
algorithm = "chybridjoin"
memory = "{BUDGET}"
disk = "direct"
versions = "pinned"
[sink]
format = "parquet"
path = "out"
[overload]
strategy = "{strategy}"
batch_time = "4s"
""")
    return file


def capacity(spark: SparkSession, master: Master) -> float:
    """Tuples a second, when there are always more than it takes; the first half warms it up."""
    ends: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        rows = CAPACITY_BATCHES * CAPACITY_ROWS
        pipeline = ss.Pipeline.from_file(
            description(
                Path(scratch), master, {"rows": rows, "pace": "none", "seed": SEED}, "none", CAPACITY_ROWS
            )
        )

        def tell(_: BatchReport) -> None:
            ends.append(time.monotonic())
            if len(ends) == CAPACITY_BATCHES:
                pipeline.stop()

        pipeline.run(spark=spark, tell=tell)
    half = CAPACITY_BATCHES // 2
    return CAPACITY_ROWS / median(np.diff(ends[half:]))


def bursty(quiet: float) -> tuple[Bursty, int, float]:
    """Arrivals whose first burst begins soon, the seed for that, and when it begins."""
    rate = quiet * (PERIOD_S + (FACTOR - 1) * BURST_S) / PERIOD_S
    arrivals = Bursty(rate, burst_factor=FACTOR, burst_s=BURST_S, period_s=PERIOD_S)
    for seed in range(10_000):
        before, after = (arrivals.arrived_by(s, seed=seed) for s in (20.0, 30.0))
        if before <= quiet * 20 * 1.01 and after > quiet * 30 * 1.5:
            begins = next(
                s for s in np.arange(20.0, 30.0, 0.1) if arrivals.arrived_by(s, seed=seed) > quiet * s * 1.05
            )
            return arrivals, seed, float(begins)
    raise AssertionError("no burst begins between 20 and 30 seconds")


def overloaded(spark: SparkSession, master: Master, quiet: float, strategy: str) -> dict[str, float]:
    """The burst, and what came of it."""
    arrivals, seed, begins = bursty(quiet)
    watched = Watched()
    listener = ss.MetricsListener(to=watched.metrics)
    with tempfile.TemporaryDirectory() as scratch:
        source = {"arrivals": "bursty", "rate": arrivals.rate, "burst_factor": FACTOR, "burst_s": BURST_S}
        source |= {"period_s": PERIOD_S, "seed": seed}
        pipeline = ss.Pipeline.from_file(description(Path(scratch), master, source, strategy, 10**9))

        def tell(batch: BatchReport) -> None:
            watched.tell(batch)
            at, left = watched.told[-1][0], sum(w.tuples for w in batch.waiting)
            print(
                f"  {at:6.1f} s  {batch.seconds:5.2f} s  {batch.rows:>9,} rows  {batch.load:<10} {left:>11,} shed",
                file=sys.stderr,
            )
            over = at > begins + BURST_S + 10 and not left and batch.load == "calm"
            if over or at > LONGEST_S:
                pipeline.stop()

        spark.streams.addListener(listener)
        ended = pipeline.run(spark=spark, tell=tell)
        spark.streams.removeListener(listener)
        (accounts,) = ended.accounts.values()
        files = sorted(Path(scratch, "out").glob("*.parquet"))
        ids = np.concatenate(
            [pq.read_table(file, columns=["sale_id"])["sale_id"].to_numpy() for file in files]
        )
    ids.sort()
    if (
        not ended.adds_up
        or accounts.answered != accounts.arrived
        or not np.array_equal(ids, np.arange(accounts.arrived))
    ):
        sys.exit(f"{accounts.arrived:,} arrived, {len(ids):,} are in the warehouse: {ended}")
    shed = [(at, sum(w.tuples for w in batch.waiting)) for at, batch in watched.told]
    most = max(count for _, count in shed)
    if not most:
        sys.exit("nobody was shed: that was no overload")
    print(
        f"all {accounts.arrived:,} tuples are in the warehouse, once; at most {most:,} were shed at a time, and all came back"
    )
    return {
        "arrived": float(accounts.arrived),
        "shed at a time, at most": float(most),
        "seconds from the burst's end until nobody is shed": shed[-1][0] - begins - BURST_S,
        "slowest micro-batch, seconds": max(batch.seconds for _, batch in watched.told),
        "memory used / budget": max(watched.used),
        "resident megabytes of a worker, at most": max(watched.resident) / 1e6,
    }


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="considering", choices=["considering", "upfront", "random"])
    strategy = parser.parse_args().strategy
    spark, master = session("2g"), lookup_store()
    able = capacity(spark, master)
    print(
        f"capacity {able:,.0f} tuples/s; quiet {QUIET_SHARE * able:,.0f}, burst {FACTOR * QUIET_SHARE * able:,.0f}"
    )
    found = overloaded(spark, master, QUIET_SHARE * able, strategy)
    figures = (
        {"capacity, tuples/s": [able]} | {name: [value] for name, value in found.items()} | {"bound": [1.0]}
    )
    ratios = [Ratio("memory used / budget", "memory used / budget", "bound", at_most=1.0)]
    return 0 if report(f"burst {strategy}", figures, ratios, unit="see names", seed=SEED) else 1


if __name__ == "__main__":
    sys.exit(main())
