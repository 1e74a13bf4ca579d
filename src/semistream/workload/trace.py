"""Replay of a trace: recorded tuples, in the order of their files, at their own times or at those of a process.

Only the files' footers are read when a trace is opened. A slice reads the row groups (Parquet) or batches (Arrow) it
touches and keeps the last few, so that a replay in order reads each once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.workload.arrivals import Arrivals
from semistream.workload.limits import require_range
from semistream.workload.sliced import Sliced

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")


@dataclass(frozen=True)
class Piece:
    """A row group of a Parquet file or a batch of an Arrow file, and the position of its first row."""

    path: str
    index: int
    first: int
    rows: int


@dataclass(frozen=True)
class Trace(Sliced):
    """Recorded tuples as a stream; make one with `open_trace`.

    Args:
        pieces: Where the rows are, in order.
        columns: Their schema.
        arrival: The column with each tuple's arrival, a timestamp or a number of seconds, never decreasing.
        arrivals: The process that times the tuples where no column does.
        seed: The seed of that process.
    """

    pieces: tuple[Piece, ...]
    columns: pa.Schema
    _: KW_ONLY
    arrival: str | None = None
    arrivals: Arrivals | None = None
    seed: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return self.columns

    @property
    def total_rows(self) -> int:
        """How many tuples were recorded."""
        return self.pieces[-1].first + self.pieces[-1].rows if self.pieces else 0

    def slice(self, start: int, stop: int) -> pa.RecordBatch:
        """Give the tuples `start`..`stop`, reading only the pieces that hold them."""
        require_range(start, stop, self.total_rows)
        parts = []
        index = self._piece_of(start)
        while start < stop:
            piece = self.pieces[index]
            table = _read(piece.path, piece.index, self.schema)
            n = min(stop, piece.first + piece.rows) - start
            parts.append(table.slice(start - piece.first, n))
            start += n
            index += 1
        whole = pa.concat_tables(parts) if parts else self.schema.empty_table()
        columns = [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in whole.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def arrived_by(self, seconds: float) -> int:
        """Count the tuples that had arrived `seconds` after the first; all of them where nothing times them."""
        if self.arrivals is not None:
            return min(self.arrivals.arrived_by(seconds, seed=self.seed), self.total_rows)
        if self.arrival is None or self.total_rows == 0:
            return self.total_rows
        begin = self._moments(0)[0]
        piece = bisect_right(range(len(self.pieces)), seconds, key=lambda i: self._moments(i)[0] - begin) - 1
        if piece < 0:
            return 0
        arrived = int(np.searchsorted(self._moments(piece) - begin, seconds, side="right"))
        return self.pieces[piece].first + arrived

    def _piece_of(self, position: int) -> int:
        return bisect_right(self.pieces, position, key=lambda p: p.first) - 1

    def _moments(self, index: int) -> NDArray[np.float64]:
        piece = self.pieces[index]
        return _read_moments(piece.path, piece.index, self.schema, str(self.arrival))


def open_trace(
    paths: str | Path | Iterable[str | Path],
    *,
    arrival: str | None = None,
    arrivals: Arrivals | None = None,
    seed: int = 0,
) -> Trace:
    """Open Parquet or Arrow files as a stream: a file, a directory (its files in order of name), or a list of either.

    Args:
        paths: Where the tuples were recorded.
        arrival: The column with each tuple's arrival.
        arrivals: A process to time the tuples by instead.
        seed: The seed of that process.
    """
    if arrival is not None and arrivals is not None:
        raise InvalidInputError(
            "arrival= and arrivals=", found="both", hint="Time a trace by its column or by a process."
        )
    files = [f for p in ([paths] if isinstance(paths, str | Path) else paths) for f in _files(Path(p))]
    if not files:
        raise InvalidInputError(
            "a trace of []", found="no file", hint="Give a Parquet or Arrow file, or a directory of them."
        )
    pieces: list[Piece] = []
    first = 0
    for path in files:
        for index, rows in enumerate(_piece_rows(path)):
            if rows:
                pieces.append(Piece(str(path), index, first, rows))
                first += rows
    schema = _plain(_schema(files[0]))
    if arrival is not None:
        _require_moments(schema, arrival)
    for path in files[1:]:
        if not _plain(_schema(path)).equals(schema):
            raise InvalidInputError(
                f"trace file {path}",
                found="other columns than in the first file",
                hint=f"Bring it to {schema}.",
            )
    return Trace(tuple(pieces), schema, arrival=arrival, arrivals=arrivals, seed=seed)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(f for f in path.iterdir() if f.suffix in PARQUET + ARROW)
        if not found:
            hint = f"A trace is made of files that end in {', '.join(PARQUET + ARROW)}."
            raise InvalidInputError(f"trace {path}", found="no Parquet or Arrow file there", hint=hint)
        return found
    if not path.is_file() or path.suffix not in PARQUET + ARROW:
        found_ = f"a file that ends in {path.suffix!r}" if path.is_file() else "no such file"
        raise InvalidInputError(
            f"trace {path}", found=found_, hint="Give a Parquet or Arrow file, or a directory of them."
        )
    return [path]


def _schema(path: Path) -> pa.Schema:
    if path.suffix in PARQUET:
        return pq.read_schema(path)
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).schema


def _plain(schema: pa.Schema) -> pa.Schema:
    """Replace the view types that Spark cannot take, and drop the writers' notes and null promises."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([(f.name, plain.get(f.type, f.type)) for f in schema])


def _require_moments(schema: pa.Schema, column: str) -> None:
    if column not in schema.names:
        raise InvalidInputError(
            f"arrival={column!r}", found=f"columns {', '.join(schema.names)}", hint="Name one of them."
        )
    kind = schema.field(column).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        hint = "Name a column of timestamps or of seconds."
        raise InvalidInputError(f"arrival={column!r}", found=f"a column of {kind}", hint=hint)


def _piece_rows(path: Path) -> list[int]:
    if path.suffix in PARQUET:
        footer = pq.read_metadata(path)
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        return [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]


@lru_cache(maxsize=3)
def _read(path: str, index: int, schema: pa.Schema) -> pa.Table:
    if path.endswith(PARQUET):
        with pq.ParquetFile(path) as parquet:
            table = parquet.read_row_group(index, use_threads=False)
    else:
        # Read, not mapped: Spark may limit the virtual memory of a Python worker.
        with pa.OSFile(path) as source:
            table = pa.Table.from_batches([pa.ipc.open_file(source).get_batch(index)])
    return table.cast(schema).combine_chunks()


@lru_cache(maxsize=64)
def _read_moments(path: str, index: int, schema: pa.Schema, column: str) -> NDArray[np.float64]:
    values = _read(path, index, schema)[column].combine_chunks()
    kind = values.type
    scale = 1.0
    if pa.types.is_timestamp(kind):
        scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[kind.unit]
        values = values.cast(pa.int64())
    moments: NDArray[np.float64] = values.to_numpy(zero_copy_only=False).astype(np.float64) * scale
    if np.isnan(moments).any() or (np.diff(moments) < 0.0).any():
        hint = "Sort the trace by its arrivals and fill what is missing."
        raise InvalidInputError(
            f"arrival={column!r}", found=f"{path}: times that go back or are missing", hint=hint
        )
    return moments
