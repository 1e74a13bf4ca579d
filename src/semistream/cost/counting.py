"""A join run on a simulated disk, every operation counted and priced: what the models are held against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from semistream.cost.prices import Prices, counted_seconds
from semistream.errors import InvalidInputError
from semistream.joins.base import JoinStats
from semistream.joins.driver import Driver
from semistream.joins.opening import Opening, open_join
from semistream.joins.registry import SCANNING


@dataclass(frozen=True)
class Counted:
    """A part of a run, after the warm-up."""

    stats: JoinStats  # of this part alone; `tuples` are those answered
    disk_s: float
    seconds: float

    @property
    def rate_per_s(self) -> float:
        """Tuples finished per second of the virtual clock."""
        return self.stats.tuples / self.seconds

    @property
    def front_share(self) -> float:
        """Of the tuples, those answered in memory."""
        return self.stats.front_hits / max(self.stats.tuples, 1)


def count(
    opening: Opening, batches: Iterable[pa.RecordBatch], *, warm: int, tuples: int, prices: Prices
) -> Counted:
    """Run until `warm` tuples are answered, then for `tuples` more: of a scan, whole cycles."""
    opened = open_join(opening)
    try:
        driver = Driver(opened, batches)
        pages, whole = max(opening.master.pages, 1), opening.name in SCANNING
        begin: tuple[JoinStats, float] | None = None
        for answers in driver.run():
            for _ in answers:
                pass
            stats = driver.stats
            if whole and stats.pages % pages:
                continue
            if begin is None:
                if stats.answered >= warm:
                    begin = replace(stats), opened.disk_seconds
            elif stats.answered - begin[0].answered >= tuples:
                return _between(begin, (replace(stats), opened.disk_seconds), prices, opening.name)
    finally:
        opened.close()
    raise InvalidInputError(
        f"counting {tuples:,} tuples after {warm:,}",
        found=f"a stream that ended after {driver.stats.tuples:,}",
        hint="Give a longer stream, or count less.",
    )


def _between(
    begin: tuple[JoinStats, float], end: tuple[JoinStats, float], prices: Prices, algorithm: str
) -> Counted:
    stats = end[0].since(begin[0])
    stats.tuples = stats.answered
    disk_s = end[1] - begin[1]
    return Counted(stats, disk_s, counted_seconds(stats, disk_s, prices, algorithm))
