"""A workload as a Spark source: ``spark.readStream.format("semistream-workload")``, and ``spark.read`` alike.

Options are those of `Workload.from_options` (or a trace's: ``path``, ``arrival``; or ``dataset=products``), and

- ``partitions`` (2): into how many tasks a micro-batch is cut;
- ``max_rows_per_batch`` (1,000,000): a micro-batch never has more;
- ``pace`` ("wall-clock"): a tuple is held back until its arrival time has come; "none" gives it out at once.

An offset is how many tuples were given out and when the stream began. Tuples are a pure function of their positions, so
a restart continues without gap or duplicate and a replayed micro-batch has the same rows. ``availableNow`` gives out all
``rows`` and stops; for a stream without end, all that have arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, TypedDict, get_args

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from semistream.errors import InvalidInputError
from semistream.workload import Sliced, Workload
from semistream.workload.limits import MAX_ROWS, require_one_of, require_whole
from semistream.workload.options import parse_source, parse_whole
from semistream.workload.sliced import BATCH_ROWS

FORMAT = "semistream-workload"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Pace = Literal["wall-clock", "none"]


class Offset(TypedDict):
    """How far the stream has been given out, and when it began, in microseconds since 1970."""

    position: int
    began_us: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A source and how it is given out."""

    source: Sliced
    partitions: int = 2
    max_rows_per_batch: int = 1_000_000
    pace: Pace = "wall-clock"
    began_us: int | None = None

    def __post_init__(self) -> None:
        require_whole("partitions", self.partitions, 1, 100_000)
        require_whole("max_rows_per_batch", self.max_rows_per_batch, 1, MAX_ROWS)
        require_one_of("pace", self.pace, get_args(Pace))

    @classmethod
    def from_options(cls, options: dict[str, str]) -> Settings:
        """Read the settings; an option that means nothing is an error."""
        left = {name.lower(): text for name, text in options.items()}
        own: dict[str, int] = {}
        for name in ("partitions", "max_rows_per_batch"):
            if name in left:
                own[name] = parse_whole(name, left.pop(name))
        pace = left.pop("pace", "wall-clock")
        source = parse_source(left, also=("partitions", "max_rows_per_batch", "pace"))
        if isinstance(source, Workload) and "starts_at" in left:
            own["began_us"] = (source.starts_at - EPOCH) // timedelta(microseconds=1)
        return cls(source=source, pace=pace, **own)  # type: ignore[arg-type]  # checked above


@dataclass(frozen=True)
class Range(InputPartition):
    """The tuples of one task."""

    start: int
    stop: int
    began_us: int | None


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(WorkloadSource)


class WorkloadSource(DataSource):
    """The entry point of the format; Spark makes one for each query."""

    @classmethod
    def name(cls) -> str:
        """Give the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Give the columns."""
        return from_arrow_schema(_for_spark(self._settings().source.schema))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Read the whole stream as a batch."""
        return WorkloadReader(self._settings())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Read the stream micro-batch by micro-batch."""
        return WorkloadStreamReader(self._settings())

    def _settings(self) -> Settings:
        return Settings.from_options(dict(self.options))


class WorkloadReader(DataSourceReader):
    """The whole stream at once, whatever its arrival times."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def partitions(self) -> list[Range]:
        """Cut the stream into tasks."""
        rows = self.settings.source.total_rows
        if rows is None:
            raise InvalidInputError("spark.read", found="a stream without end", hint="Set the option rows.")
        return _ranges(0, rows, self.settings.partitions, None)

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        """Make the tuples of one task."""
        return _read(self.settings.source, partition)


class WorkloadStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream as it arrives."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.clock = clock
        self._stops_at_us: int | None = None
        self._latest: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Begin now, or at the moment that ``starts_at`` names."""
        began_us = self.settings.began_us
        return Offset(position=0, began_us=self._now_us() if began_us is None else began_us)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Give how far a micro-batch from `start` may go."""
        available = max(self._available(start["began_us"]), start["position"])
        self._latest = Offset(position=available, began_us=start["began_us"])
        if isinstance(limit, ReadMaxRows):
            return Offset(
                position=min(available, start["position"] + limit.max_rows), began_us=start["began_us"]
            )
        if available == MAX_ROWS:
            hint = "Set the option rows, or a trigger that respects max_rows_per_batch."
            raise InvalidInputError("all rows in one micro-batch", found="a stream without end", hint=hint)
        return self._latest

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Bound every micro-batch."""
        return ReadMaxRows(self.settings.max_rows_per_batch)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Tell the query's progress how far the stream itself has come, beyond the bound."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let nothing in that arrives from now on."""
        self._stops_at_us = self._now_us()

    def partitions(self, start: Offset, end: Offset) -> list[Range]:
        """Cut a micro-batch into tasks.

        The beginning is taken from `end`: only that is in the checkpoint when the first micro-batch is replayed.
        """
        return _ranges(start["position"], end["position"], self.settings.partitions, end["began_us"])

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:
        """Make the tuples of one task."""
        return _read(self.settings.source, partition)

    def _available(self, began_us: int) -> int:
        source = self.settings.source
        everything = MAX_ROWS if source.total_rows is None else source.total_rows
        if self._stops_at_us is not None:
            if source.total_rows is not None:
                return everything
            return source.arrived_by((self._stops_at_us - began_us) / 1e6)
        if self.settings.pace == "none":
            return everything
        return source.arrived_by((self._now_us() - began_us) / 1e6)

    def _now_us(self) -> int:
        return int(self.clock() * 1e6)


def _ranges(start: int, stop: int, partitions: int, began_us: int | None) -> list[Range]:
    n = min(partitions, stop - start)
    cuts = [start + (stop - start) * i // n for i in range(n + 1)] if n > 0 else []
    return [Range(a, b, began_us) for a, b in pairwise(cuts)]


def _read(source: Sliced, part: Range) -> Iterator[pa.RecordBatch]:
    if isinstance(source, Workload) and part.began_us is not None:
        source = replace(source, starts_at=EPOCH + timedelta(microseconds=part.began_us))
    schema = _for_spark(source.schema)
    for begin in range(part.start, part.stop, BATCH_ROWS):
        batch = source.slice(begin, min(begin + BATCH_ROWS, part.stop))
        yield batch if batch.schema.equals(schema) else batch.cast(schema)


def _for_spark(schema: pa.Schema) -> pa.Schema:
    """Bring a trace's columns to the types that Spark has for them: times to the microsecond in UTC, plain strings."""
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.date64(): pa.date32()}
    utc = pa.timestamp("us", tz="UTC")
    return pa.schema(
        [(f.name, utc if pa.types.is_timestamp(f.type) else plain.get(f.type, f.type)) for f in schema]
    )
