"""Where answers go. A sink takes the files of a micro-batch exactly once, however often it is given them.

delta.py     a Delta table through delta-rs: an application transaction (query, micro-batch) in the commit
duckdb.py    a DuckDB table: rows and the micro-batch's number in one transaction
parquet.py   a folder of Parquet files: one file a micro-batch, named by it
files.py     a folder of files in another format of Spark's: a folder for each micro-batch, taken over by a rename
spark.py     any other format, through spark.write: at least once
marked.py    how the last two remember what they have written
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from semistream.errors import SemistreamError, StoreError
from semistream.pipeline.config import SinkConfig
from semistream.pipeline.sinks.delta import DeltaSink
from semistream.pipeline.sinks.duckdb import DuckDBSink
from semistream.pipeline.sinks.files import FORMATS, FileSink
from semistream.pipeline.sinks.parquet import ParquetSink
from semistream.pipeline.sinks.spark import SparkSink

Done = Literal["written", "there already", "nothing to write"]


class Sink(Protocol):
    """A warehouse."""

    def write(self, files: list[str], *, query: str, batch: int) -> Done:
        """Add the rows of a micro-batch, unless they are there."""


@dataclass(frozen=True)
class Guarded:
    """A sink whose failures are told in our words, whatever they are."""

    sink: Sink
    name: str

    def write(self, files: list[str], *, query: str, batch: int) -> Done:
        """Add the rows of a micro-batch, unless they are there."""
        with _told(self.name):
            return self.sink.write(files, query=query, batch=batch)


def open_sink(config: SinkConfig, schema: pa.Schema, spark: SparkSession) -> Guarded:
    """The warehouse of a pipeline; a package that it needs and is not there is told now."""
    name = f"the {config.format} sink {config.path or ''}".rstrip()
    with _told(name):
        return Guarded(_open(config, schema, spark), name)


def _open(config: SinkConfig, schema: pa.Schema, spark: SparkSession) -> Sink:
    path = config.path or ""
    if config.format == "delta":
        return DeltaSink.open(path, schema)
    if config.format == "duckdb":
        return DuckDBSink.open(path, config.table, schema)
    if config.format == "parquet":
        return ParquetSink.open(path)
    if config.format in FORMATS and path and "://" not in path:
        return FileSink(spark, config.format, Path(path), config.options)
    return SparkSink(spark, config.format, config.path, config.options)


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except (SemistreamError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except (
        BaseException
    ) as error:  # delta-rs panics with one that is no Exception, and would hang Spark's query
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise StoreError(
            name, found=first[0], hint="What was decided stays in the ledger: run it again."
        ) from error
