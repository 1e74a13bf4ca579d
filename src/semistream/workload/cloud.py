"""Cloud reports: the "real-life data" of MESH and CACHING, as a model of it.

The papers join two months of the Edited Synoptic Cloud Reports (Hahn, Warren, London: NDP-026B, 1996) on longitude, in
hundredths of a degree, 0..36000: many reports for each longitude on both sides, spread very unevenly. We cannot ship
that archive, so this draws from a model with its traits: weather stations stand at fixed longitudes, clustered
on the continents, and report every 3, 6 or 12 hours; ships are one report in nine, at tenths of a degree, mostly on the
northern oceans. It is a model, not a measurement: its clusters are set by hand below.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.workload.alias import alias_table
from semistream.workload.arrivals import Arrivals, Constant
from semistream.workload.columns import ArrivalTime, Column, Key, Number, Text, tuple_bytes
from semistream.workload.limits import require_whole
from semistream.workload.randomness import derive, integers, mix, state_at, units_at
from semistream.workload.stream import Workload

LONGITUDES = 36_001
STATIONS = 9_000
SHIP_SHARE = 1 / 9
TABLE_BITS = 16

LAND = (
    (0.30, 12, 13),
    (0.13, 55, 22),
    (0.08, 78, 8),
    (0.20, 115, 14),
    (0.05, 140, 10),
    (0.16, 264, 15),
    (0.05, 300, 8),
)
"""Clusters of stations as (share, middle in degrees, spread); what is left of the shares is spread evenly."""

SEA = ((0.45, 325, 18), (0.35, 190, 28), (0.10, 75, 15))

REPORT: tuple[Column, ...] = (
    Key("lon"),
    Number("lat", "int32", -9_000, 9_000),
    Number("station", "int32", 1, 99_999),
    ArrivalTime("observed_at"),
    Number("cloud_cover", "int32", 0, 8),
    Number("weather", "int32", 0, 99),
)
"""A report of 32 bytes, as in MESH."""


@dataclass(frozen=True)
class Longitudes:
    """The longitude of a cloud report, in hundredths of a degree: 0..36000."""

    @property
    def n_keys(self) -> int:
        """How many longitudes there are."""
        return LONGITUDES

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """Give the longitudes of the reports `start`..`stop`."""
        out = np.empty(stop - start, dtype=np.int64)
        _fill(out, start, derive(seed, "keys"), _table())
        return out


def report_columns(report_bytes: int = 32) -> tuple[Column, ...]:
    """Give the columns of a report that is `report_bytes` wide: 32 in MESH, 128 in CACHING."""
    bare = tuple_bytes(REPORT)
    require_whole("report_bytes", report_bytes, bare, 65_536)
    return REPORT if report_bytes == bare else (*REPORT, Text("remarks", report_bytes - bare))


def stream(
    rows: int | None = 10_000_000, seed: int = 2, *, arrivals: Arrivals | None = None, report_bytes: int = 32
) -> Workload:
    """Give the reports of one month as a stream."""
    return Workload(
        Longitudes(), rows, arrivals=arrivals or Constant(), columns=report_columns(report_bytes), seed=seed
    )


def reports(rows: int = 10_000_000, seed: int = 1, *, report_bytes: int = 32) -> pa.RecordBatchReader:
    """Give the reports of another month as a master table: another seed, the same stations.

    >>> reports(1_000).read_all().num_rows
    1000
    """
    return stream(rows, seed, report_bytes=report_bytes).reader()


@lru_cache(maxsize=1)
def longitude_weights() -> NDArray[np.float64]:
    """Give the chance of each longitude, 0..36000. The world has one seed: it is the same for every workload."""
    weights = np.zeros(LONGITUDES)
    places = _clustered(STATIONS, LAND, "stations")
    reports_a_day = np.array([8.0, 8.0, 8.0, 4.0, 4.0, 2.0])[
        integers(0, STATIONS, derive(0, "world frequency"), 6)
    ]
    np.add.at(weights, places, (1 - SHIP_SHARE) * reports_a_day / reports_a_day.sum())
    tracks = 200_000
    at_sea = _clustered(tracks, SEA, "ships") // 10 * 10
    np.add.at(weights, at_sea, SHIP_SHARE / tracks)
    return weights


def _clustered(n: int, clusters: tuple[tuple[float, int, int], ...], what: str) -> NDArray[np.int64]:
    choice, radius, angle, even = (
        units_at(np.arange(n), derive(0, f"world {what} {part}"))
        for part in ("choice", "radius", "angle", "even")
    )
    normal = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    degrees = even * 360.0
    shares = np.cumsum([share for share, _, _ in clusters])
    for index, (_, middle, spread) in enumerate(clusters):
        within = np.searchsorted(shares, choice) == index
        degrees[within] = (middle + spread * normal[within]) % 360.0
    return (degrees * 100.0).astype(np.int64)


@lru_cache(maxsize=1)
def _table() -> NDArray[np.uint64]:
    return alias_table(longitude_weights(), TABLE_BITS)


@kernel
def _fill(out: NDArray[np.int64], start: int, key: np.uint64, table: NDArray[np.uint64]) -> None:
    slots = np.uint64((1 << TABLE_BITS) - 1)
    for i in range(out.size):
        choice = mix(state_at(key, start + i))
        slot = choice & slots
        entry = table[slot]
        if (choice >> np.uint64(TABLE_BITS)) >= (entry >> np.uint64(TABLE_BITS)):
            slot = entry & slots
        out[i] = np.int64(slot)
