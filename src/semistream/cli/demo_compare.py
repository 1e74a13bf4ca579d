"""The same stream through enrich() and through Spark's own stream-static join, side by side.

Both get the same tuples in the same micro-batches, as fast as they take them, and write the same rows into a Delta table
of the same kind. Spark has the master as Parquet, and a hint to broadcast the micro-batch: without it Spark, which
cannot know how small a micro-batch is, sorts and shuffles the whole master for every one, and is far slower.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from semistream.cli.demo_check import fingerprint_of
from semistream.cli.demo_choices import SALES, TABLE_NAME, Choices
from semistream.cli.demo_spark import Flow, read_stream, run_stream
from semistream.cli.demo_warehouse import Warehouse
from semistream.master import Master
from semistream.spark.enrich import enrich

# Micro-batches. Both joins are slow at first, when code is compiled and caches are empty.
_WARM, _MEASURED, _AT_LEAST = 2, 6, 3
_LIMIT_S = 30.0
_FILE_ROWS = 1_000_000


@dataclass(frozen=True)
class Side:
    """One join's micro-batches: those that count."""

    seconds: list[float]
    tuples: int

    @property
    def median_s(self) -> float:
        """Of a micro-batch."""
        return statistics.median(self.seconds)

    @property
    def rate_per_s(self) -> float:
        """The service rate: tuples a second, over all that count."""
        return self.tuples / sum(self.seconds)


@dataclass(frozen=True)
class Comparison:
    """What was compared."""

    ours: Side
    sparks: Side
    batch_tuples: int
    first: int  # of the micro-batches that count
    last: int
    parquet_bytes: int
    problems: list[str]


def compare(
    choices: Choices, spark: SparkSession, master: Master, starts_at: datetime, scratch: Path
) -> Comparison:
    """Run both, and look at the micro-batches that both have done once they are warm."""
    size = max(1, min(round(choices.rate_per_s), choices.tuples // (_WARM + _MEASURED)))  # a second's worth
    tuples = min(choices.tuples, size * (_WARM + _MEASURED))
    options = choices.stream_options(tuples=tuples, starts_at=starts_at)
    sales = read_stream(spark, options, pace="none", max_rows_per_batch=str(size))
    ours = enrich(sales, master, on="product_id", memory=choices.memory_bytes, algorithm=choices.algorithm)
    parquet = _as_parquet(master, scratch / "products")
    products = spark.read.parquet(str(parquet))
    sparks = F.broadcast(sales).join(products, "product_id")

    our_flow, our_table = _run(ours, scratch / "ours", tuples)
    spark_flow, spark_table = _run(sparks, scratch / "sparks", tuples)
    done = min(len(our_flow.seconds), len(spark_flow.seconds))
    warm = min(_WARM, done - 1)
    counted = slice(warm, done)
    compared = sum(our_flow.tuples[:done])
    found = fingerprint_of(our_table.dataset(), scratch, tuples=compared)
    expected = fingerprint_of(spark_table.dataset(), scratch, tuples=compared)
    return Comparison(
        ours=Side(our_flow.seconds[counted], sum(our_flow.tuples[counted])),
        sparks=Side(spark_flow.seconds[counted], sum(spark_flow.tuples[counted])),
        batch_tuples=size,
        first=warm + 1,
        last=done,
        parquet_bytes=sum(file.stat().st_size for file in parquet.iterdir()),
        problems=found.differences(expected),
    )


def _run(joined: DataFrame, folder: Path, tuples: int) -> tuple[Flow, Warehouse]:
    folder.mkdir()
    table = Warehouse.create(folder / "sales", SALES, name=TABLE_NAME)
    flow, began = Flow(), time.monotonic()

    def enough() -> bool:
        return time.monotonic() - began > _LIMIT_S and len(flow.seconds) >= _WARM + _AT_LEAST

    run_stream(joined, table, tuples=tuples, checkpoint=folder / "checkpoint", flow=flow, enough=enough)
    return flow, table


def _as_parquet(master: Master, folder: Path) -> Path:
    """The master's rows as Parquet files of a size that Spark reads well."""
    folder.mkdir()
    some: list[pa.RecordBatch] = []
    rows = 0

    def write() -> None:
        number = len(list(folder.iterdir()))
        pq.write_table(pa.Table.from_batches(some, master.schema), folder / f"{number}.parquet")

    for batch in master.scan():
        some.append(batch)
        rows += len(batch)
        if rows >= _FILE_ROWS:
            write()
            some, rows = [], 0
    if some:
        write()
    return folder
