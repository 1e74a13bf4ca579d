"""The demo's warehouse: a Delta table written without Spark, in which every micro-batch is exactly once.

Each commit carries an application transaction (query id, batch id), which is in the table's log or is not, together with
the rows. A micro-batch that Spark runs again after a crash finds its number there and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


@dataclass(frozen=True)
class Warehouse:
    """A Delta table of enriched sales."""

    path: Path

    @staticmethod
    def create(path: Path, schema: pa.Schema, *, name: str) -> Warehouse:
        """An empty table under a name that it will be known by."""
        DeltaTable.create(path, schema=schema, name=name)
        return Warehouse(path)

    def append(self, rows: pa.Table, *, query: str, batch: int) -> Literal["written", "there already"]:
        """Add the rows of a micro-batch, unless they are there."""
        table: Any = DeltaTable(self.path)
        last = table.transaction_version(query)
        if last is not None and last >= batch:
            return "there already"
        write_deltalake(
            table,
            rows,
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
        )
        return "written"

    def dataset(self) -> pads.Dataset:
        """The current rows, for DuckDB or whatever reads Arrow; nothing is downloaded for that, as delta_scan would."""
        return DeltaTable(self.path).to_pyarrow_dataset()
