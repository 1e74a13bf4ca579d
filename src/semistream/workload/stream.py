"""A workload: keys x arrivals x columns, for so many rows, from one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.kernel import kernel
from semistream.workload.arrivals import Arrivals, Constant
from semistream.workload.columns import ArrivalTime, Column, Key, Number, tuple_bytes
from semistream.workload.keys import Keys
from semistream.workload.limits import MAX_ROWS, require_between, require_range, require_whole
from semistream.workload.randomness import LANE, below, derive, mix, state_at, unit
from semistream.workload.sliced import Sliced

SALES: tuple[Column, ...] = (Key("product_id"), Number("quantity", "int32", 1, 9), ArrivalTime("event_time"))
"""A sale of the retail example: 20 bytes."""

STARTS_AT = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Workload(Sliced):
    """A stream of tuples that is fully described by its parameters.

    Args:
        keys: Which key each tuple carries.
        rows: How many tuples there are; None for no end.
        arrivals: When they arrive.
        missing_share: The share of tuples whose key is in n_keys..2*n_keys-1, where the master has no row.
        columns: What a tuple carries, in this order.
        starts_at: When the stream begins; arrival times count from there.
        seed: Two workloads that differ only in it have the same law and different tuples.

    >>> from semistream.workload import Zipf
    >>> sales = Workload(Zipf(1_000_000), rows=1_000, seed=7)
    >>> sales.slice(200, 300).equals(sales.slice(0, 1_000).slice(200, 100))
    True
    >>> sales.schema.names, sales.tuple_bytes
    (['product_id', 'quantity', 'event_time'], 20)
    """

    keys: Keys
    rows: int | None = None
    _: KW_ONLY
    arrivals: Arrivals = field(default_factory=Constant)
    missing_share: float = 0.0
    columns: tuple[Column, ...] = SALES
    starts_at: datetime = STARTS_AT
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rows is not None:
            require_whole("rows", self.rows, 0, MAX_ROWS)
        require_between("missing_share", self.missing_share, 0, 1)
        names = [c.name for c in self.columns]
        if not names or len(set(names)) != len(names):
            raise InvalidInputError(
                f"columns={names}", found="none, or a name twice", hint="Name each column once."
            )
        if self.starts_at.tzinfo is None:
            raise InvalidInputError(
                f"starts_at={self.starts_at}",
                found="no time zone",
                hint="Give one, such as datetime(..., tzinfo=UTC).",
            )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Workload:
        """Make a workload from text options: those of a Spark source, or of a TOML file.

        >>> Workload.from_options({"keys": "zipf", "n_keys": "1000", "rows": "10", "arrivals": "poisson"}).arrivals
        Poisson(rate=100000.0)
        """
        from semistream.workload.options import parse_workload  # which needs this class

        return parse_workload(options)

    @property
    def total_rows(self) -> int | None:
        """How many tuples there are; None for a stream that never ends."""
        return self.rows

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return pa.schema([(c.name, c.type) for c in self.columns])

    @property
    def tuple_bytes(self) -> int:
        """The width of a tuple, as the papers count it: values only."""
        return tuple_bytes(self.columns)

    def slice(self, start: int, stop: int) -> pa.RecordBatch:
        """Give the tuples `start`..`stop`, without those before them."""
        require_range(start, stop, self.rows)
        rows = _Rows(self, start, stop)
        return pa.RecordBatch.from_arrays([c.values(rows) for c in self.columns], schema=self.schema)

    def arrived_by(self, seconds: float) -> int:
        """Count the tuples that have arrived `seconds` after the beginning."""
        arrived = self.arrivals.arrived_by(seconds, seed=self.seed)
        return arrived if self.rows is None else min(arrived, self.rows)


@dataclass(frozen=True)
class _Rows:
    """The positions of one slice, and what several columns may need of them, made when first asked for."""

    workload: Workload
    start: int
    stop: int

    @property
    def seed(self) -> int:
        return self.workload.seed

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        w = self.workload
        keys = w.keys.draw(self.start, self.stop, seed=w.seed)
        if w.missing_share > 0.0:
            _replace_by_missing(keys, self.start, derive(w.seed, "missing"), w.missing_share, w.keys.n_keys)
        return keys

    @cached_property
    def arrival_us(self) -> NDArray[np.int64]:
        w = self.workload
        begins_us = (w.starts_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        seconds = w.arrivals.times(self.start, self.stop, seed=w.seed)
        return np.rint(seconds * 1_000_000.0).astype(np.int64) + begins_us


@kernel
def _replace_by_missing(
    keys: NDArray[np.int64], start: int, key: np.uint64, share: float, n_keys: int
) -> None:
    for i in range(keys.size):
        state = state_at(key, start + i)
        if unit(mix(state)) < share:
            keys[i] = n_keys + np.int64(below(state ^ LANE, np.uint64(n_keys)))
