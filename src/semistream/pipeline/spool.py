"""Files that tasks write into a micro-batch's folder: Parquet for what people may read, Arrow for what the next job takes.

Rows go from a task straight into a file and never back through the JVM. A file's name has the task's attempt in it, and the
driver takes over only files that a task which succeeded has told of, so an attempt that died leaves nothing but garbage.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from pyspark import TaskContext

from semistream.errors import StoreError

_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Written:
    """A file with rows in it."""

    kind: str  # "answered", "arrived", "dead", or how it waits (see waiting.py)
    stage: int  # of the enrichment it is about; -1 for answers
    slot: int
    name: str  # below the micro-batch's folder
    rows: int
    since_us: int = 0  # when the oldest tuple arrived
    entered_us: int = 0  # when the one that has waited longest for this join began to
    skip: int = 0  # rows at its beginning that wait no longer

    def to_json(self) -> dict[str, Any]:
        """As a record of JSON."""
        return asdict(self)


@dataclass
class Spool:
    """The files of one task."""

    folder: Path
    task: str
    _writers: dict[tuple[str, int, int], _Open] = field(default_factory=dict)

    @staticmethod
    def of_task(folder: str) -> Spool:
        """For the task that this process runs."""
        context = TaskContext.get()
        task = (
            "0"
            if context is None
            else f"{context.stageId()}-{context.partitionId()}-{context.taskAttemptId()}"
        )
        return Spool(Path(folder), task)

    def write(
        self, kind: str, stage: int, slot: int, batch: pa.RecordBatch, ages: tuple[int, int] = (0, 0)
    ) -> None:
        """Add rows to the file of their kind; `ages` are the oldest arrival and entry among them."""
        if not len(batch):
            return
        key = kind, stage, slot
        with _told(self.folder):
            if key not in self._writers:
                self._writers[key] = _Open.new(self.folder, kind, stage, slot, self.task, batch.schema)
            self._writers[key].add(batch, ages)

    def close(self) -> list[Written]:
        """Everything that was written."""
        with _told(self.folder):
            for writer in self._writers.values():
                writer.flush()
                writer.writer.close()
        return [
            Written(kind, stage, slot, writer.name, writer.rows, *writer.ages)
            for (kind, stage, slot), writer in self._writers.items()
        ]


@dataclass
class _Open:
    writer: Any
    name: str
    rows: int = 0
    ages: tuple[int, int] = (0, 0)
    held: list[pa.RecordBatch] = field(default_factory=list)  # until they are worth a group of rows
    held_rows: int = 0

    @staticmethod
    def new(folder: Path, kind: str, stage: int, slot: int, task: str, schema: pa.Schema) -> _Open:
        ending = "arrow" if kind == "arrived" else "parquet"
        if kind == "shed":  # it may stay while other micro-batches, of other runs, come and go
            task = f"{task}-{uuid.uuid4().hex[:12]}"
        name = f"{kind}/{max(stage, 0)}-{slot}-{task}.{ending}"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        opened: Any = (
            pa.ipc.new_file(str(path), schema) if ending == "arrow" else pq.ParquetWriter(str(path), schema)
        )
        return _Open(opened, name)

    def add(self, batch: pa.RecordBatch, ages: tuple[int, int]) -> None:
        self.ages = ages if not self.rows else (min(self.ages[0], ages[0]), min(self.ages[1], ages[1]))
        self.rows += len(batch)
        self.held.append(batch)
        self.held_rows += len(batch)
        if self.held_rows >= _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        if self.held:
            self.writer.write_batch(pa.concat_batches(self.held))
        self.held, self.held_rows = [], 0


def read_arrived(paths: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of Arrow files, one batch after the other."""
    for path in paths:
        with _told(Path(path)), pa.ipc.open_file(pa.OSFile(path)) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def read_parquet(path: str, first: int = 0, count: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, in their order; `count` of them from `first` on."""
    with _told(Path(path)), pq.ParquetFile(path) as file:
        groups, at = [], 0  # groups without a row that is wanted are not read
        end = file.metadata.num_rows if count is None else first + count
        before = 0
        for number in range(file.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if at + rows <= first:
                before = at + rows
            elif at < end:
                groups.append(number)
            at += rows
        at = before
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups):
            begin, stop = max(first - at, 0), min(end - at, len(batch))
            at += len(batch)
            if stop > begin:
                yield batch.slice(begin, stop - begin)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        if isinstance(error, StoreError):
            raise
        found = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise StoreError(
            f"the ledger's {path}",
            found=found,
            hint="The state folder must be on a file system that the driver and all workers share, and have room.",
        ) from error
