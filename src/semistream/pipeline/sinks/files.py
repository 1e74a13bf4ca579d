"""A folder of files in one of Spark's own formats: every micro-batch's appear once, however often it is written.

Spark writes them into a folder of its own, whose name readers leave out. When that is complete a rename says so, and from then
on it is not written again: its files are moved among the others, by whoever comes first or comes back.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession

from semistream.pipeline.sinks.marked import unless_marked

FORMATS = ("avro", "csv", "json", "orc", "text", "xml")


@dataclass(frozen=True)
class FileSink:
    """A format of files, and their folder, on a file system that renames at once."""

    spark: SparkSession
    format: str
    folder: Path
    options: dict[str, str]

    def write(
        self, files: list[str], *, query: str, batch: int
    ) -> Literal["written", "there already", "nothing to write"]:
        """Add the rows of a micro-batch, unless they are there."""
        done = unless_marked(files, lambda: self._move_in(files, f"{batch:012d}-{query}"))
        if done == "written":
            # Nothing but Spark's own marks is left; also of one that was killed here.
            for old in self.folder.glob(f".*-{query}*"):
                shutil.rmtree(old, ignore_errors=True)
        return done

    def _move_in(self, files: list[str], name: str) -> None:
        complete = self.folder / f".{name}"
        if not complete.exists():
            aside = self.folder / f".{name}-{uuid.uuid4().hex[:12]}.tmp"  # a JVM may outlive its driver
            rows = self.spark.read.parquet(*files)
            rows.write.format(self.format).options(**self.options).save(str(aside))
            aside.rename(complete)
        for part in complete.glob("part-*"):
            part.rename(self.folder / f"{name}-{part.name}")
