"""Every algorithm by its name, and the parameters they have."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.errors import check_choice

ALGORITHMS = (
    "inlj",
    "meshjoin",
    "r-meshjoin",
    "hybridjoin",
    "x-hybridjoin",
    "optimised-x-hybridjoin",
    "cinlj",
    "cmeshjoin",
    "chybridjoin",
    "in-memory",
    "auto",
)
SCANNING = ("meshjoin", "r-meshjoin", "cmeshjoin")  # need no index, and can join by any condition
BATCH_LOOKUP = (
    "batch look-up"  # no algorithm to be asked for: what `auto` is where whole batches are answered at once
)
FRONTED = (
    "cinlj",
    "cmeshjoin",
    "chybridjoin",
    "optimised-x-hybridjoin",
    BATCH_LOOKUP,
)  # rows in memory before them
LOOKING_UP = (
    "inlj",
    "hybridjoin",
    "x-hybridjoin",
    "optimised-x-hybridjoin",
    "cinlj",
    "chybridjoin",
    BATCH_LOOKUP,
)


@dataclass(frozen=True)
class Settings:
    """The free parameters of the algorithms; None takes the default."""

    disk_buffer: int | None = None  # bytes
    front_share: float | None = None  # of the memory: hot rows, or pinned pages
    block_pages: int | None = None  # b of the hybrid family
    parallel: int = 256  # blocks chosen at once, as far as the disk buffer goes; 1 is the papers'
    per_step: int | None = None  # w of meshjoin
    at_once: bool = False  # every batch is answered before the next one is taken: `auto` need let nobody wait


def check_algorithm(name: str) -> str:
    """A name of ALGORITHMS, or an error that says which was meant."""
    check_choice(f"algorithm={name!r}", name, ALGORITHMS, what="algorithm", hint="nearest")
    return name
