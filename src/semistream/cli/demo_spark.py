"""The demo's Spark: a session that is not heard, and one way to run a stream into a warehouse, whoever joins it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from semistream.cli.demo_choices import COLUMNS
from semistream.cli.demo_warehouse import Warehouse
from semistream.errors import SemistreamError
from semistream.spark.environment import prepare_environment
from semistream.spark.errors import explained
from semistream.spark.metrics import BatchId, Counts, counts_of
from semistream.spark.workload_source import FORMAT, register

WORKERS = 2
_QUERY_ID = "sql.streaming.queryId"  # set by Spark on the thread that runs a micro-batch
_LOOK_EVERY_S = 0.2


@contextlib.contextmanager
def quiet_session(scratch: Path, log: Path) -> Iterator[SparkSession]:
    """A local session whose words, and those of its workers, go to a file, and whose files go to a folder."""
    prepare_environment()
    logging.getLogger("py4j").setLevel(
        logging.CRITICAL
    )  # it tells of connections that end when the session does
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'-Djava.io.tmpdir="{scratch}"',
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(WORKERS),
        "spark.sql.streaming.numRecentProgressUpdates": "100000",  # the report wants every micro-batch
        "spark.sql.streaming.stopTimeout": "20s",
    }
    builder: Any = SparkSession.builder
    builder = builder.master(f"local[{WORKERS}]").appName("semistream demo").config(map=options)
    with _spoken_to(log):  # the JVM keeps what it is born with
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise SemistreamError(
                "starting Spark", found=f"that it did not start ({error})", hint=f"See {log}."
            ) from error
    try:
        register(spark)
        yield spark
    finally:
        with contextlib.suppress(Exception):
            spark.stop()


@contextlib.contextmanager
def _spoken_to(log: Path) -> Iterator[None]:
    """Let what this process and its new children say go to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)
        os.close(file)


def read_stream(spark: SparkSession, options: dict[str, str], **more: str) -> DataFrame:
    """The stream as Spark sees it arrive."""
    reader = spark.readStream.format(FORMAT).options(**options, partitions=str(WORKERS), **more)
    return reader.load()


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch that is in the warehouse."""

    number: int
    rows: int  # put out
    written_at: float  # seconds since 1970
    counts: Counts  # what enrich() did; nothing where another joined


@dataclass
class Flow:
    """A stream on its way into a warehouse: the micro-batches that have arrived there so far."""

    batches: list[MicroBatch] = field(default_factory=list)
    tuples: list[int] = field(default_factory=list)  # of every micro-batch that is done, as Spark tells
    seconds: list[float] = field(
        default_factory=list
    )  # that each took, everything Spark does for it included

    @property
    def rows(self) -> int:
        """How many are in the warehouse."""
        return sum(batch.rows for batch in self.batches)

    def look_at(self, query: StreamingQuery) -> int:
        """Take over what Spark tells of finished micro-batches; gives the position they have come to."""
        position, done = 0, []
        for progress in query.recentProgress:
            position = max(
                position, json.loads(progress["sources"][0]["endOffset"] or "{}").get("position", 0)
            )
            if progress["numInputRows"]:
                done.append(progress)
        self.tuples = [progress["numInputRows"] for progress in done]
        self.seconds = [progress["durationMs"]["triggerExecution"] / 1000 for progress in done]
        return position


def run_stream(
    enriched: DataFrame,
    warehouse: Warehouse,
    *,
    tuples: int,
    checkpoint: Path,
    flow: Flow,
    watch: Callable[[], None] = lambda: None,
    enough: Callable[[], bool] = lambda: False,
) -> Flow:
    """Run a stream until so many of its tuples are answered and in the warehouse, or it is enough.

    Args:
        enriched: The stream, joined; it has the demo's columns.
        warehouse: Where it goes.
        tuples: How many the stream has.
        checkpoint: Where Spark remembers how far it is.
        flow: What is told of every micro-batch as soon as it is written.
        watch: Called now and then.
        enough: Asked now and then whether to stop before the end.
    """

    def write(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        rows = batch.toArrow()
        try:
            warehouse.append(rows, query=query, batch=number)
        except Exception:
            raise
        except (
            BaseException
        ) as error:  # a panic of delta-rs, which would end Spark's thread here and hang the query
            raise RuntimeError(f"the warehouse: {error}") from error
        counts = Counts.total(counts_of(BatchId(query, number)).values())
        if len(rows) or counts.tuples:  # Spark may begin with a micro-batch of nothing
            flow.batches.append(MicroBatch(number, len(rows), time.time(), counts))

    writer = enriched.select(*COLUMNS).writeStream.foreachBatch(write)
    with explained():
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            while flow.look_at(query) < tuples and not enough():
                _still_running(query)
                watch()
                time.sleep(_LOOK_EVERY_S)
            watch()
        finally:
            with contextlib.suppress(Exception):
                query.stop()
    return flow


def _still_running(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise error
    if not query.isActive:
        raise SemistreamError(
            "the demo's stream", found="that it ended early", hint="See spark.log in the demo's folder."
        )
