"""What all generated and replayed data have in common: any rows can be had directly, by their positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import count

import pyarrow as pa

from semistream.errors import InvalidInputError
from semistream.workload.limits import MAX_ROWS, require_range, require_whole

BATCH_ROWS = 65_536


class Sliced(ABC):
    """Rows numbered from 0. The same positions always give the same rows, whoever asks and in whatever order."""

    @property
    @abstractmethod
    def total_rows(self) -> int | None:
        """How many rows there are; None for a stream that never ends."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of every batch."""

    @abstractmethod
    def slice(self, start: int, stop: int) -> pa.RecordBatch:
        """Give the rows `start`..`stop`, without those before them."""

    def arrived_by(self, seconds: float) -> int:  # noqa: ARG002
        """Count the rows that have arrived `seconds` after the beginning; all of them where no arrivals are known."""
        return MAX_ROWS if self.total_rows is None else self.total_rows

    def batches(self, *, batch_rows: int = BATCH_ROWS, start: int = 0) -> Iterator[pa.RecordBatch]:
        """Give all rows from `start` on, in order, a batch at a time; without end when there is no end."""
        require_whole("batch_rows", batch_rows, 1, 2**31 - 1)
        require_range(start, start, self.total_rows)
        end = self.total_rows
        for begin in count(start, batch_rows) if end is None else range(start, end, batch_rows):
            yield self.slice(begin, begin + batch_rows if end is None else min(begin + batch_rows, end))

    def reader(self, *, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """Give all rows as an Arrow reader, which Parquet writers, DuckDB and `build_master` take; one batch is held."""
        if self.total_rows is None:
            raise InvalidInputError(
                "reader()", found="a stream without end", hint="Give it rows=, or use batches()."
            )
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(batch_rows=batch_rows))
