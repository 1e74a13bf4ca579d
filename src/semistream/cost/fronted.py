"""CMESHJOIN, CHYBRIDJOIN, CINLJ (CACHING), for which the paper gives no formula.

A front stage answers a share of the stream, and what is left goes to the join behind, as in that join's model:

    c_loop of the join behind, for w_S tuples, + w c_H + w (c_S + c_O)          with w = w_S / (1 - share)

The share depends on how long tuples wait behind (a key enters when several wait for it), and that on the share; the two
are found in turns. How the share follows from the rules of the recorder is in front/steady.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from semistream.cost import hybrids, lookups, scans
from semistream.cost.case import Case, Loop
from semistream.cost.popularity import Ranks
from semistream.front.steady import BLOCK, LOOKUP, SCAN, Steady, steady

_ROUNDS = 8
_NEAR = 0.003  # of what goes through: no more rounds
_FEW_ROUNDS, _ROUGHLY = 3, 0.05  # with fewer places
_FIRST_GUESS = 1.4  # T over the mean wait: between 1, of a cold block, and 2, of a hot one


def cmeshjoin(case: Case) -> Loop:
    """The front stage over MESHJOIN: a tuple waits for a cycle."""
    share = _in_turns(case, lambda share: _answered(case, SCAN, scans.tuples_per_cycle(case) / share, 1))
    return scans.loop(case, front_share=1.0 - share, front_probes=True)


def cinlj(case: Case) -> Loop:
    """The front stage over INLJ: a tuple waits until all before it in the queue have looked up."""
    window, together = case.division.window_tuples, case.division.pages_at_once
    share = _in_turns(case, lambda share: _answered(case, LOOKUP, window / share, together))
    return lookups.inlj(case, waiting_share=share, front_probes=True)


def chybridjoin(case: Case) -> Loop:
    """The front stage over HYBRIDJOIN: a tuple waits until it is the oldest.

    A key that was let go stays away until its block is read, so its tuples come behind in bursts, and more of them leave with
    a read than if they came evenly. So w is counted in the small instance too, and T found by how many tuples wait there.
    """
    window, rows = case.division.window_tuples, round(case.page_rows * hybrids.block_pages(case))
    share = _least_share(case)
    if not case.division.front_rows:
        return hybrids.behind(case, case.ranks, front_probes=True)
    if share <= 1e-9:
        return hybrids.iteration(case, 1e9, 0.0, front_probes=True)
    time = _FIRST_GUESS * window / share
    for _ in range(_rounds(case)[0]):
        found = _answered(case, BLOCK, time, rows)
        if abs(found.waiting / window - 1) < _rounds(case)[1]:
            break
        time *= window / max(found.waiting, 1e-9)
    return hybrids.iteration(case, found.tuples_per_read, found.share, front_probes=True)


def _least_share(case: Case) -> float:
    """What goes through if the most popular keys are in."""
    return max(1.0 - case.ranks.top(case.division.front_rows), 0.0)


def _in_turns(case: Case, answered: Callable[[float], Steady]) -> float:
    """The share that goes through, from how long it waits, from the share that goes through, ..."""
    share = _least_share(case)
    for _ in range(_rounds(case)[0]):
        before = share
        if before <= 1e-9:
            break
        share = answered(before).share
        if abs(share - before) < _rounds(case)[1] * before:
            break
    return share


def _rounds(case: Case) -> tuple[int, float]:
    return (_FEW_ROUNDS, _ROUGHLY) if case.is_rough else (_ROUNDS, _NEAR)


def _answered(case: Case, how: int, wait: float, together: int) -> Steady:
    # Of three digits: nothing changes with the fourth, and more cases are known already.
    return _steady(
        case.master_rows,
        case.skew,
        case.division.front_rows,
        how,
        float(f"{wait:.3g}"),
        together,
        case.small_places,
    )


@lru_cache(maxsize=1024)
def _steady(
    rows: int, skew: float, places: int, how: int, wait: float, together: int, small_places: int
) -> Steady:
    ranks = Ranks.of(rows, skew)
    if not places:
        return Steady(1.0)
    return steady(
        ranks.chance,
        ranks.others,
        ranks.other_chance,
        places=places,
        how=how,
        wait=wait,
        together=together,
        small_places=small_places,
    )
