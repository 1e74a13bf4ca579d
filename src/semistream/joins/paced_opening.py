"""What a join over a stream with arrival times needs besides the join: checked, and put together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.types as pat

from semistream.errors import InvalidInputError
from semistream.joins.driver import Driver
from semistream.joins.paced import PacedDriver, RetuneToRate
from semistream.joins.pagefinder import is_unique
from semistream.shedding import STRATEGIES, ArrivalClock, Backlog, Estimator, Shedding, ShedStore


def paced_driver(
    driver: Driver,
    stream: Iterator[pa.RecordBatch],
    arrivals: ArrivalClock,
    shedding: Shedding,
    shed_to: str | Path | None,
    retune: RetuneToRate | None = None,
) -> PacedDriver:
    """A driver of this stream, within the memory that the join was opened with."""
    shape, half = driver.shape, driver.opened.opening.stream_bytes // 2
    store = None
    if shed_to is not None:
        marked = "" if driver.resume is None else driver.resume.shed
        store = ShedStore.open(shed_to, shape.stream, buffer_bytes=half, resume=marked)
    estimator = None
    if shedding.is_sampled:
        unknown = [name for name in shedding.summed if not _is_number(shape.output, name)]
        if unknown:
            raise InvalidInputError(
                f"sum_of={shedding.sum_of!r}",
                found=f"no numbers called {unknown[0]!r} in the output",
                hint=f"Its columns are {', '.join(shape.output.names)}.",
            )
        unique = is_unique(driver.opened.opening.master)
        estimator = Estimator(shedding.summed, shedding.confidence, one_row_each=unique)
    added = pa.float64().bit_width // 8 if estimator is not None else 0  # the weight
    first, driver.coming = driver.coming, None
    backlog = Backlog(stream, arrivals, half, added, first)
    return PacedDriver(driver, backlog, shedding, store, estimator, retune)


def check_shedding(
    shedding: Shedding,
    shed_to: str | Path | None,
    arrivals: ArrivalClock | None,
    *,
    order: str,
    versions: str,
) -> None:
    """Refuse what cannot be done together."""
    asked = f"shedding={shedding.strategy!r}"
    if shedding.strategy == "none":
        if shed_to is not None:
            raise InvalidInputError(
                f"shed_to={str(shed_to)!r}", found=asked, hint=f"Choose one of {', '.join(STRATEGIES[:-1])}."
            )
    elif arrivals is None:
        raise InvalidInputError(
            asked,
            found="no arrivals=, so nobody knows that the stream is too fast",
            hint="Pass an ArrivalClock, such as semistream.shedding.Timed.",
        )
    elif (shed_to is None) == (shedding.fate == "later"):
        found, hint = ("no shed_to=", "Name a directory") if shed_to is None else ("shed_to=", "Leave it out")
        raise InvalidInputError(
            f"{asked} with fate={shedding.fate!r}", found=found, hint=f"{hint}, or choose the other fate."
        )
    if arrivals is not None and order != "any":
        raise InvalidInputError(
            f"order={order!r} with arrivals=",
            found="tuples that overtake each other",
            hint='Use order="any".',
        )
    if arrivals is not None and versions != "pinned":
        raise InvalidInputError(
            f"versions={versions!r} with arrivals=",
            found="tuples that may come back when their version is long gone",
            hint='Use versions="pinned".',
        )


def _is_number(output: pa.Schema, name: str) -> bool:
    if name not in output.names:
        return False
    kind = output.field(name).type
    return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind))
