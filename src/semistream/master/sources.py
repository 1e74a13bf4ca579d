"""Where a master's rows come from: Arrow data, Parquet files, or another engine's table.

A source knows two ways of handing its rows to a writer of parts: in the order it has them, or sorted. A local source
does it in this process; a source of another engine (Spark) runs the writer where the rows are.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidInputError, MissingDependencyError
from semistream.master.keys import KeyCodec, Keys, NarrowKeys
from semistream.master.part import Part, PartWriter, Progress, drop_null_keys, key_codes
from semistream.master.schema import MasterSchema
from semistream.master.sort import ExternalSort

# Loaded by name and only when such a source comes: this folder must not know Spark.
_ENGINES = {"pyspark": "semistream.spark.source"}
_FILES = "semistream.master.files"  # the same way: pyarrow.dataset takes 40 MB, and readers of a store have no use for it


@dataclass(frozen=True)
class SortBy:
    """The order of the rows: by the master's key, or by a frequency column from the highest down."""

    columns: tuple[str, ...]
    descending: bool = False


class Source(Protocol):
    """Rows with a schema, that can be written as parts."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, as the source has them."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, if that is known beforehand."""

    def write(
        self, writer: PartWriter, *, sort_by: SortBy | None, scratch: Path, progress: Progress | None
    ) -> list[Part]:
        """Write every row with `writer`; the parts come back in the order asked for."""

    def read_all(self) -> pa.Table:
        """All rows at once, for changes that are small against the master."""


def open_source(source: object) -> Source:
    """Recognise what a user hands over."""
    engine = type(source).__module__.split(".", 1)[0]
    if engine in _ENGINES:
        try:
            opened: Source = importlib.import_module(_ENGINES[engine]).open_dataframe(source)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"a source of {engine}",
                found=str(error),
                hint="Install it with: pip install 'semistream[spark]'",
            ) from error
        return opened
    if isinstance(source, pa.Table):
        return ArrowSource(source.schema, source.to_batches, len(source))
    if isinstance(source, pa.RecordBatch):
        return ArrowSource(source.schema, lambda: [source], len(source))
    if isinstance(source, pa.RecordBatchReader):
        return ArrowSource(source.schema, lambda: source, None)
    if (
        isinstance(source, str | os.PathLike)
        or (isinstance(source, list) and source)
        or type(source).__module__ == "pyarrow._dataset"
    ):
        of_files: Source = importlib.import_module(_FILES).open_files(source)
        return of_files
    found = "nothing that rows can be read from"
    if hasattr(source, "__arrow_c_stream__"):
        try:
            return open_source(pa.RecordBatchReader.from_stream(source))
        except pa.ArrowInvalid as error:
            found = str(error)
    raise InvalidInputError(
        f"a source of type {type(source).__name__}",
        found=found,
        hint="Give a Spark DataFrame, an Arrow table or reader, or the path of Parquet files.",
    )


@dataclass(frozen=True)
class ArrowSource:
    """Batches of this process, read once."""

    schema: pa.Schema
    batches: Callable[[], Iterable[pa.RecordBatch]]
    rows: int | None

    def write(
        self, writer: PartWriter, *, sort_by: SortBy | None, scratch: Path, progress: Progress | None
    ) -> list[Part]:
        """Write every row as one part, sorted outside memory where there are many."""
        if sort_by is None:
            return [writer(self.batches(), progress)]
        order = _Order(writer.schema, sort_by)
        counter = _NullCounter(writer.schema.key)
        sorter = ExternalSort(order.codec, order.codes, scratch)
        normal = (writer.schema.normalise(batch) for batch in self.batches())
        part = writer(sorter.ranges(counter.drop(normal)), progress)
        return [counter.add_to(part)]

    def read_all(self) -> pa.Table:
        """All rows at once."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)


@dataclass(frozen=True)
class _Order:
    schema: MasterSchema
    sort_by: SortBy

    @property
    def codec(self) -> KeyCodec:
        return KeyCodec(tuple(self.schema.arrow.field(name).type for name in self.sort_by.columns))

    def codes(self, batch: pa.RecordBatch) -> Keys:
        if not self.sort_by.descending:
            return key_codes(batch, self.sort_by.columns, self.codec)
        column = batch.column(batch.schema.get_field_index(self.sort_by.columns[0]))
        keys = self.codec.encode([pc.fill_null(column, 0)])  # a row of unknown frequency is never asked for
        return NarrowKeys(~keys.codes) if isinstance(keys, NarrowKeys) else keys


@dataclass
class _NullCounter:
    """Takes rows without a key out before they are sorted, and remembers how many."""

    key: Sequence[str]
    dropped: int = 0

    def drop(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = drop_null_keys(batch, self.key)
            self.dropped += len(batch) - len(kept)
            if len(kept):
                yield kept

    def add_to(self, part: Part) -> Part:
        return Part(**{**vars(part), "null_keys": part.null_keys + self.dropped})


def check_frequency(schema: pa.Schema, column: str) -> None:
    """A frequency must be a number that rows can be sorted by."""
    if column not in schema.names:
        raise InvalidInputError(
            f"frequency={column!r}",
            found=f"columns {', '.join(schema.names)}",
            hint="Name an existing column.",
        )
    kind = schema.field(column).type
    if not pa.types.is_integer(kind):
        raise InvalidInputError(
            f"frequency={column!r}",
            found=f"type {kind}",
            hint="Cast it to a 64-bit integer; the highest comes first.",
        )


__all__ = ["ArrowSource", "SortBy", "Source", "check_frequency", "open_source"]
