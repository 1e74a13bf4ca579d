"""No paper's figure: which algorithm wins where, over skew, misses, memory, updates and disks.

A master of 100 million rows of 120 bytes, shrunk as scale.py says. On a disk with an arm, or one behind a network, large blocks
pay, and a page of the small master stands for one; there pages are large, so that an access answers many tuples, as a block
does. On flash every page is an access of its own, given to the disk with many others, and pages are what people build.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from semistream.experiments.case import Case
from semistream.experiments.data import MasterSpec, StreamSpec

SKEWS = (0.0, 0.7, 1.0)
MISSES = (0.0, 0.3)
MEMORY_SHARES = (0.02, 0.05, 0.15)
UPDATES = (
    0.0,
    0.02048,
)  # tuples from one version of the master to the next, as a part of its rows; 0 is never
FULL_ROWS = 100e6
BY_POPULARITY = ("x-hybridjoin", "optimised-x-hybridjoin")  # over a master that was stored in that order
FIXED = (
    "inlj",
    "cinlj",
    "meshjoin",
    "r-meshjoin",
    "cmeshjoin",
    "hybridjoin",
    "chybridjoin",
)  # over any master
ALGORITHMS = (*FIXED, *BY_POPULARITY, "auto")
_ROWS_AND_PAGE = {
    "hdd-2007": (100_000, 32768),
    "ssd-sata": (25_000, 8192),
    "nvme": (25_000, 8192),
    "object-store": (100_000, 32768),
}
DISKS = tuple(_ROWS_AND_PAGE)
_WARM = {"meshjoin": 1.02, "r-meshjoin": 1.3, "cmeshjoin": 2.0, "hybridjoin": 1.0}  # windows; others 1.5
_MEASURED = {"meshjoin": 0.4, "cmeshjoin": 0.6}  # others 1


@dataclass(frozen=True)
class Cell:
    """One place of the grid."""

    disk: str
    skew: float
    misses: float
    memory_share: float
    updates: float

    def case(self, algorithm: str) -> Case:
        """What is run there, to be tuned."""
        rows, page = _ROWS_AND_PAGE[self.disk]
        master = MasterSpec(rows, page_bytes=page, key_gap=2)
        sorted_by = "in-order" if algorithm in BY_POPULARITY else "scattered"
        return Case(
            algorithm,
            master,
            StreamSpec(self.skew, sorted_by, misses=self.misses),  # type: ignore[arg-type]
            round(self.memory_share * master.nbytes),
            rows / FULL_ROWS,
            disk=self.disk,
            warm=_WARM.get(algorithm, 1.5),
            measured=_MEASURED.get(algorithm, 1.0),
            looked_up=500,
            looked_up_warm=2.0,
            version_every=round(self.updates * rows),
        )


def cells(disk: str) -> Iterator[Cell]:
    """All of a disk's."""
    for at in product(SKEWS, MISSES, MEMORY_SHARES, UPDATES):
        yield Cell(disk, *at)
