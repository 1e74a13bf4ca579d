"""A table of a DuckDB file: rows, and which micro-batches they are of, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from semistream.errors import MissingDependencyError

_BATCHES = "semistream_batches"


@dataclass(frozen=True)
class DuckDBSink:
    """A table. The file is open only while it is written to, so that others may read it between two micro-batches."""

    path: str
    table: str

    @staticmethod
    def open(path: str, table: str, schema: pa.Schema) -> DuckDBSink:
        """The table, made if there is none."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        sink = DuckDBSink(path, table)
        with sink._connected() as connection:
            connection.register("semistream_empty", schema.empty_table())
            connection.execute(
                f"create table if not exists {_quoted(table)} as select * from semistream_empty"  # noqa: S608 - quoted
            )
            connection.execute(
                f"create table if not exists {_BATCHES} "
                "(query varchar, batch bigint, target varchar, primary key (query, batch, target))"
            )
        return sink

    def write(
        self, files: list[str], *, query: str, batch: int
    ) -> Literal["written", "there already", "nothing to write"]:
        """Insert the rows of a micro-batch, unless they are there."""
        if not files:
            return "nothing to write"
        with self._connected() as connection:
            connection.begin()
            known = connection.execute(
                f"select 1 from {_BATCHES} where query = ? and batch = ? and target = ?",  # noqa: S608 - a constant
                [query, batch, self.table],
            ).fetchone()
            if known:
                connection.rollback()
                return "there already"
            connection.execute(
                f"insert into {_quoted(self.table)} by name select * from read_parquet(?)",  # noqa: S608 - quoted
                [files],
            )
            connection.execute(f"insert into {_BATCHES} values (?, ?, ?)", [query, batch, self.table])  # noqa: S608
            connection.commit()
        return "written"

    def _connected(self) -> Any:
        try:
            import duckdb
        except ImportError as error:
            raise MissingDependencyError(
                'sink.format = "duckdb"', found="no duckdb", hint="pip install 'semistream[demo]'"
            ) from error
        return duckdb.connect(self.path)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
