"""Is what is in the warehouse right? A batch join by another engine says what it must be.

DuckDB joins the stream with the products, both made anew from their seeds: neither the store nor the join has a part in what
is expected. What is compared does not depend on the order of rows, and covers every value: how many rows there are, for
each column how many values and the sum of their hashes, and the sum of the hashes of whole rows, which sees values that
are right by themselves and stand beside the wrong key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow.dataset as pads

from semistream.cli.demo_choices import COLUMNS, MASTER_SEED, Choices
from semistream.workload import retail


@dataclass(frozen=True)
class Fingerprint:
    """What a table holds, whatever the order of its rows."""

    rows: int
    sales: int  # different ones
    row_hashes: int
    columns: tuple[tuple[str, int, int], ...]  # name, values, sum of their hashes

    def differences(self, expected: Fingerprint) -> list[str]:
        """What is not as expected, in words; nothing if all is."""
        found = []
        if self.rows != expected.rows:
            found.append(f"{self.rows:,} rows where {expected.rows:,} are expected")
        if self.sales != expected.sales:
            found.append(f"{self.sales:,} different sales where {expected.sales:,} are expected")
        names = [
            ours[0] for ours, theirs in zip(self.columns, expected.columns, strict=True) if ours != theirs
        ]
        if names:
            found.append(f"other values in {', '.join(names)}")
        if not found and self.row_hashes != expected.row_hashes:
            found.append("values of one row in another")
        return found


def expected_of(choices: Choices, starts_at: datetime, tuples: int, scratch: Path) -> Fingerprint:
    """What the first tuples of the stream become, joined with the products by DuckDB."""
    with _duckdb(scratch) as connection:
        connection.register("stream", choices.workload(tuples=tuples, starts_at=starts_at).reader())
        connection.register("products", retail.products(choices.rows, MASTER_SEED))
        return _fingerprint(connection, "stream join products using (product_id)")


def fingerprint_of(sales: pads.Dataset, scratch: Path, *, tuples: int | None = None) -> Fingerprint:
    """What a warehouse holds; of the first tuples only, if so many are given."""
    with _duckdb(scratch) as connection:
        connection.register("sales", sales)
        return _fingerprint(connection, "sales" if tuples is None else f"sales where sale_id < {tuples}")


def _duckdb(scratch: Path) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"temp_directory": str(scratch / "duckdb")})


def _fingerprint(connection: duckdb.DuckDBPyConnection, source: str) -> Fingerprint:
    each = ", ".join(f"count({name}), sum(hash({name}))" for name in COLUMNS)
    asked = f"select count(*), count(distinct sale_id), sum(hash({', '.join(COLUMNS)})), {each} from {source}"  # noqa: S608
    rows, sales, row_hashes, *values = connection.execute(asked).fetchone() or (0,) * (3 + 2 * len(COLUMNS))
    columns = zip(COLUMNS, values[::2], values[1::2], strict=True)
    return Fingerprint(
        int(rows), int(sales), int(row_hashes or 0), tuple((n, int(v), int(h or 0)) for n, v, h in columns)
    )
