"""A Delta table through delta-rs.

Each commit carries an application transaction (query, micro-batch): it is in the table's log together with the rows, or
neither is. A micro-batch that is given again finds its number there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads

from semistream.errors import InvalidInputError, MissingDependencyError

_NOT_IN_PATHS = "[]^|\\"  # delta-rs takes them for something else, and panics


@dataclass(frozen=True)
class DeltaSink:
    """A table that only this pipeline need write to."""

    path: str

    @staticmethod
    def open(path: str, schema: pa.Schema) -> DeltaSink:
        """The table, made if there is none."""
        odd = sorted(set(path) & set(_NOT_IN_PATHS))
        if odd:
            raise InvalidInputError(
                f"sink.path = {path!r}",
                found=f"{' '.join(odd)} in it",
                hint="Delta tables cannot be written there: choose another path.",
            )
        table = _deltalake().DeltaTable
        if not table.is_deltatable(path):
            table.create(path, schema=schema)
        return DeltaSink(path)

    def write(
        self, files: list[str], *, query: str, batch: int
    ) -> Literal["written", "there already", "nothing to write"]:
        """Append the rows of a micro-batch, unless they are there."""
        if not files:
            return "nothing to write"
        return append_once(
            self.path, lambda: pads.dataset(files).scanner().to_reader(), query=query, batch=batch
        )


def append_once(
    path: str | Path, rows: Callable[[], pa.Table | pa.RecordBatchReader], *, query: str, batch: int
) -> Literal["written", "there already"]:
    """Append the rows of a micro-batch to a table, unless they are there; nobody asks for them then."""
    delta = _deltalake()
    table = delta.DeltaTable(path)
    last = table.transaction_version(query)
    if last is not None and last >= batch:
        return "there already"
    delta.write_deltalake(
        table,
        rows(),
        mode="append",
        commit_properties=delta.CommitProperties(app_transactions=[delta.Transaction(query, batch)]),
    )
    return "written"


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise MissingDependencyError(
            'sink.format = "delta"', found="no deltalake", hint="pip install 'semistream[demo]'"
        ) from error
    return deltalake
