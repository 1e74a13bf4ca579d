"""A source without rows, that moves when somebody who waits is due: a stream on which nothing arrives then gets a micro-batch.

The pipeline writes down when that is; this reads it, in whatever process Spark runs it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StructField, StructType

FORMAT = "semistream-heartbeat"


class Beat(TypedDict):
    """When it last moved, in microseconds since 1970."""

    at_us: int


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(Heartbeat)


class Heartbeat(DataSource):
    """The entry point; the option `path` is the file that says when to beat."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the one column, of which there is never a value."""
        return StructType([StructField("at_us", LongType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Read beats."""
        return HeartbeatReader(Path(self.options["path"]))


class HeartbeatReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beats when the file says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._until_us: int | None = None

    def initialOffset(self) -> Beat:  # noqa: N802
        """Nothing has moved yet."""
        return Beat(at_us=0)

    def latestOffset(self, start: Beat, limit: ReadLimit) -> Beat:  # noqa: ARG002, N802
        """Move if somebody is due."""
        now_us = int(time.time() * 1e6)
        if self._until_us is not None:  # what is available now: one beat, if one is due
            return (
                Beat(at_us=self._until_us)
                if self._until_us > start["at_us"] and self._is_due(now_us)
                else start
            )
        return Beat(at_us=now_us) if self._is_due(now_us) and now_us > start["at_us"] else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """There is nothing to limit."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """One beat is all that can be available."""
        self._until_us = int(time.time() * 1e6)

    def partitions(self, start: Beat, end: Beat) -> list[InputPartition]:  # noqa: ARG002
        """There are no rows."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """There are no rows."""
        return iter(())

    def _is_due(self, now_us: int) -> bool:
        try:
            told = json.loads(self.path.read_text())
        except (OSError, ValueError):  # none yet
            return False
        return bool(told.get("drain")) or (told.get("due_us") is not None and told["due_us"] <= now_us)
