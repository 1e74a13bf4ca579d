"""One model per algorithm, by name, and the case that a master, a stream and a memory make."""

from __future__ import annotations

from collections.abc import Callable

from semistream.cost import fronted, hybrids, lookups, scans
from semistream.cost.case import Case, Loop
from semistream.cost.disks import DiskCosts
from semistream.cost.prices import Prices
from semistream.joins.division import divide, reads_ahead
from semistream.joins.registry import LOOKING_UP, Settings
from semistream.joins.sides import JoinShape
from semistream.master import Master

MODELS: dict[str, Callable[[Case], Loop]] = {
    "inlj": lookups.inlj,
    "meshjoin": scans.loop,
    "r-meshjoin": scans.loop,
    "hybridjoin": hybrids.hybrid,
    "x-hybridjoin": hybrids.x_hybrid,
    "optimised-x-hybridjoin": hybrids.optimised,
    "cinlj": fronted.cinlj,
    "cmeshjoin": fronted.cmeshjoin,
    "chybridjoin": fronted.chybridjoin,
    "in-memory": lookups.in_memory,
}


def predict(case: Case) -> Loop:
    """What an iteration does in steady state."""
    return MODELS[case.algorithm](case)


def case_of(
    algorithm: str,
    master: Master,
    shape: JoinShape,
    *,
    memory_bytes: int,
    settings: Settings,
    skew: float,
    disk_kind: str,
    disk: DiskCosts,
    prices: Prices,
    row_heap_bytes: float = 0.0,
    tuple_heap_bytes: float = 0.0,
    misses: float = 0.0,
) -> Case:
    """What `open_join` would make, as a case for the models."""
    division = divide(
        algorithm,
        master,
        shape,
        memory_bytes=memory_bytes,
        disk_kind=disk_kind,
        settings=settings,
        row_heap_bytes=row_heap_bytes,
        tuple_heap_bytes=tuple_heap_bytes,
    )
    on_disk = master.key_index if algorithm in LOOKING_UP else None
    return Case(
        algorithm=algorithm,
        division=division,
        settings=settings,
        master_rows=master.rows,
        pages=master.pages,
        page_bytes=master.page_bytes,
        files=len(set(master.index.run_file.tolist())),
        layout=master.layout,
        index_page_bytes=on_disk.index.max_page_bytes if on_disk is not None else 0,
        skew=skew,
        disk=disk,
        prices=prices,
        overlapped=reads_ahead(algorithm, disk_kind, settings),
        misses=misses,
    )
