"""Any format that Spark can write.

Whether a micro-batch that is given twice is written twice is up to the format. Delta's Spark connector and whoever else knows
`txnAppId` and `txnVersion` is told which one it is. For the others (jdbc, kafka) a mark beside the answers, made when Spark says that
they are written, leaves a crash between those two moments, or within the write: they have every row at least once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import SparkSession

from semistream.pipeline.sinks.marked import unless_marked


@dataclass(frozen=True)
class SparkSink:
    """A format, and where it writes to."""

    spark: SparkSession
    format: str
    path: str | None
    options: dict[str, str]

    def write(
        self, files: list[str], *, query: str, batch: int
    ) -> Literal["written", "there already", "nothing to write"]:
        """Append the rows of a micro-batch, unless it is known that they are there."""
        known = {"txnAppId": query, "txnVersion": str(batch)}
        return unless_marked(files, lambda: self._append(files, known))

    def _append(self, files: list[str], known: dict[str, str]) -> None:
        writer = self.spark.read.parquet(*files).write.format(self.format).mode("append")
        writer.options(**known, **self.options).save(self.path)
