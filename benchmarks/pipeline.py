"""How many tuples a second does a pipeline answer that lets them wait for a shared scan, against Spark's own join?

A master of 100 million rows (12 GB), a uniform stream: no row is hot, so every algorithm has to read nearly all of the master.
meshjoin reads a tenth of it in each micro-batch, and a tuple is answered after ten; Spark's stream-static join reads all of it
for every micro-batch. Both get the same micro-batches, the same session and the noop sink; a figure is the median time
from one micro-batch's end to the next one's, when as many leave as arrive.

    python pipeline.py          needs 25 GB of disk
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

import semistream as ss
from data import ROOT, SEED, products_parquet
from enrich import LARGE, TASKS, Query, linked, lookup_store, session, static_join, write_stream
from measure import Case, Ratio, alternate, report
from semistream.master import Master
from semistream.workload import Uniform, Workload

BATCH_ROWS = 200_000
CYCLES = 10
MEASURED = 6
MEMORY = "256MB"  # of each task; Spark's join has the session's memory, which is more
SESSION = "1g"
REPEATS = 3


def stream_files(batches: int) -> Path:
    """Parquet files of sales that ask for every product alike, two per micro-batch."""
    sales = Workload(Uniform(LARGE), seed=SEED)
    return write_stream(ROOT / f"uniform-sales-{LARGE}-{BATCH_ROWS}", sales, BATCH_ROWS, batches)


class Patient:
    """The pipeline, run from nothing with every turn."""

    def __init__(self, spark: SparkSession, master: Master, files: Path) -> None:
        self.spark, self.master, self.files = spark, master, files
        self.schema = spark.read.parquet(str(files)).schema

    def __call__(self) -> float:
        """The median seconds of a micro-batch after the first cycle; what it read is checked."""
        ends: list[float] = []
        pages: list[int] = []

        def tell(batch: object) -> None:
            ends.append(time.perf_counter())
            pages.append(batch.pages)  # type: ignore[attr-defined]

        with tempfile.TemporaryDirectory() as scratch:
            source = linked(self.files, CYCLES + MEASURED, Path(scratch, "in"))
            file = Path(scratch, "pipeline.toml")
            file.write_text(self.description(source, Path(scratch, "state")))
            ended = ss.Pipeline.from_file(file).run(spark=self.spark, tell=tell)
        answered = next(iter(ended.accounts.values())).answered
        if answered != (MEASURED + 1) * BATCH_ROWS or not ended.adds_up:
            sys.exit(f"{answered:,} tuples were answered: {ended}")
        most = max(pages[CYCLES:]) * CYCLES / self.master.pages
        print(f"  a micro-batch read at most {most:.3f} / {CYCLES} of the master", file=sys.stderr)
        if most > 1.05:
            sys.exit("that is more than 1.05 / cycles")
        return float(median(b - a for a, b in pairwise(ends[-MEASURED - 1 :])))

    def description(self, source: Path, state: Path) -> str:
        """The pipeline as a file."""
        return f"""
[pipeline]
trigger = "available-now"
state = "{state}"
[source]
format = "parquet"
path = "{source}"
schema = "{", ".join(f"{f.name} {f.dataType.simpleString()}" for f in self.schema)}"
[source.options]
maxFilesPerTrigger = {TASKS}
[[enrich]]
master = "{self.master.path}"
on = "product_id"
algorithm = "meshjoin"
memory = "{MEMORY}"
max_delay = "24h"
cycles = {CYCLES}
[sink]
format = "noop"
"""


def main() -> int:
    """Measure and report."""
    spark, master = session(SESSION), lookup_store(LARGE)
    files = stream_files(CYCLES + MEASURED)
    cases: dict[str, Case] = {
        "pipeline, meshjoin": Patient(spark, master, files),
        "Spark's join": Query(spark, "a", files, static_join(spark, "inner", LARGE), warm=1, turn=2),
    }
    products_parquet(LARGE)
    figures = alternate(cases, repeats=REPEATS)
    rates = {name: [BATCH_ROWS / seconds for seconds in values] for name, values in figures.items()}
    ratios = [Ratio("meshjoin / Spark's join", "pipeline, meshjoin", "Spark's join", at_least=3)]
    return 0 if report("pipeline over a uniform stream", rates, ratios, unit="tuples/s", seed=SEED) else 1


if __name__ == "__main__":
    sys.exit(main())
