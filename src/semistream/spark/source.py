"""A Spark DataFrame as the source of a master: the rows are sorted, cut into pages and written by a Spark job.

Every task writes one file of pages and sends back what it learnt about it, a few bytes a page; the driver puts these
together. So a master can be larger than any machine's memory, and nothing but the page tables meets on the driver.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructField, YearMonthIntervalType

from semistream.errors import MissingDependencyError, UnsupportedTypeError
from semistream.master.keys import KeyCodec
from semistream.master.part import Part, PartWriter, Progress
from semistream.master.sources import SortBy

SPARK_TYPE = "semistream.spark_type"  # of a column that is stored in another form
_RESULT = "partition int, part binary"


def open_dataframe(frame: DataFrame) -> SparkSource:
    """Take a DataFrame, classic or Connect."""
    if frame.isStreaming:
        raise UnsupportedTypeError(
            "a master from a DataFrame",
            found="a streaming one",
            hint="Give a batch DataFrame; stream it through enrich() instead.",
        )
    names = frame.columns
    # Within the job columns go by number: names may repeat, differ in case only, or hold dots and backticks.
    numbered = frame.toDF(*[f"c{i}" for i in range(len(names))])
    numbered = numbered.select(*[_as_arrow_knows_it(field) for field in numbered.schema])
    # Planning an empty relation gives the schema without running a job.
    schema = numbered.limit(0).toArrow().schema
    fields = [
        _with_spark_type(schema.field(i), spark).with_name(names[i])
        for i, spark in enumerate(numbered.schema)
    ]
    return SparkSource(numbered, pa.schema(fields))


@dataclass(frozen=True)
class SparkSource:
    """Rows of a Spark DataFrame; how many is only known when the job has run."""

    frame: DataFrame
    schema: pa.Schema
    rows: int | None = None

    def write(
        self,
        writer: PartWriter,
        *,
        sort_by: SortBy | None,
        scratch: Path,  # noqa: ARG002 - Spark spills where it is told to
        progress: Progress | None,
    ) -> list[Part]:
        """Write every row as a Spark job, one part per partition."""
        names = self.schema.names
        frame = self.frame
        if sort_by is not None:
            columns = [
                _ordering(f"c{names.index(name)}", descending=sort_by.descending) for name in sort_by.columns
            ]
            # Range partitions hold whole keys and follow each other in key order.
            frame = frame.repartitionByRange(*columns).sortWithinPartitions(*columns)

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            context = TaskContext.get()
            partition = context.partitionId() if context is not None else 0
            part = writer(batch.rename_columns(names) for batch in batches)
            yield pa.RecordBatch.from_pydict(
                {"partition": pa.array([partition], pa.int32()), "part": [part.to_bytes()]}
            )

        with _explained():
            results = frame.mapInArrow(task, _RESULT).toArrow().sort_by("partition")
        codec = KeyCodec(writer.schema.key_types)
        parts = [Part.from_bytes(data.as_py(), codec) for data in results.column("part")]
        if progress is not None:
            progress(sum(part.rows for part in parts))
        return parts

    def read_all(self) -> pa.Table:
        """All rows, on the driver: for changes, which are small against the master."""
        return self.frame.toArrow().rename_columns(self.schema.names)


def _ordering(name: str, *, descending: bool) -> Column:
    column = F.col(name)
    return column.desc_nulls_last() if descending else column.asc()


def _as_arrow_knows_it(field: StructField) -> Column:
    """The column as it is, but year-month intervals, for which PySpark has no Arrow form, as their months."""
    column = F.col(field.name)
    if not isinstance(field.dataType, YearMonthIntervalType):
        return column
    months = column.cast("interval month").cast("int")
    return months.alias(field.name, metadata={SPARK_TYPE: field.dataType.simpleString()})


def _with_spark_type(field: pa.Field, spark: StructField) -> pa.Field:
    kept = {SPARK_TYPE: spark.metadata[SPARK_TYPE]} if SPARK_TYPE in spark.metadata else None
    return field.with_metadata(kept)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Workers that run another Python than the driver's are the commonest stumble of a first run."""
    try:
        yield
    except Exception as error:
        if "No module named 'semistream'" not in str(error):
            raise
        raise MissingDependencyError(
            "semistream on Spark's Python workers",
            found="workers that run a Python without it",
            hint=f"Set PYSPARK_PYTHON={sys.executable} before the session is made, or call "
            "semistream.spark.environment.prepare_environment(); on a cluster install semistream on every executor.",
        ) from error
