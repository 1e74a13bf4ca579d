"""The demo's warehouse: a Delta table written without Spark, in which every micro-batch is exactly once.

Rows are added as a pipeline's Delta sink adds them. A micro-batch that Spark runs again after a crash finds its number in the
table's log and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable

from semistream.pipeline.sinks.delta import append_once


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
        return append_once(self.path, lambda: rows, query=query, batch=batch)

    def dataset(self) -> pads.Dataset:
        """The current rows, for DuckDB or whatever reads Arrow; nothing is downloaded for that, as delta_scan would."""
        return DeltaTable(self.path).to_pyarrow_dataset()
