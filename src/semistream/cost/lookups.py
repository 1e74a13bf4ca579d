"""INLJ and in-memory, which the papers give no formula for.

    INLJ        per tuple: c_IO(1) + c_S + c_A + (1 + d_T) c_H + c_O + c_E          d_T: rows of a page, each compared with it
    in-memory   per tuple: c_S + c_H + c_O

Pages are read one a tuple, though as many together as the disk buffer holds.
"""

from __future__ import annotations

from semistream.cost.case import Case, Loop


def page_s(case: Case) -> float:
    """c_IO(1): one page, with the index page that names it where the index is on disk."""
    together = case.division.pages_at_once
    seconds = case.disk.random_s(together, case.page_bytes, case.page_bytes) / together
    if case.index_page_bytes:
        seconds += case.disk.random_s(1, case.index_page_bytes, case.index_page_bytes)
    return seconds


def inlj(case: Case, *, waiting_share: float = 1.0, front_probes: bool = False) -> Loop:
    """A look-up for each tuple that a front stage lets through, or for all."""
    return Loop(
        tuples=1.0,
        io_s=waiting_share * page_s(case),
        loaded=waiting_share * case.page_rows,
        probes=waiting_share * (1.0 + case.page_rows),
        front_probes=1.0 if front_probes else 0.0,
        waited=waiting_share,
        front_share=1.0 - waiting_share,
        steps=waiting_share / case.division.pages_at_once,
    )


def in_memory(case: Case) -> Loop:  # noqa: ARG001 - every model has this shape
    """The upper bound."""
    return Loop(tuples=1.0, io_s=0.0, front_probes=1.0, front_share=1.0)
