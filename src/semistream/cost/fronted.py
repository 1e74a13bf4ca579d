"""CMESHJOIN, CHYBRIDJOIN, CINLJ (CACHING), for which the paper gives no formula.

A front stage answers a share of the stream, and what is left goes to the join behind, as in that join's model:

    c_loop of the join behind, for w_S tuples, + w c_H + w (c_S + c_O)          with w = w_S / (1 - share)

The share depends on how long tuples wait behind (a key enters when several wait for it), and that on the share; the two
are found in turns. How the share follows from the rules of the recorder is in front/steady.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from semistream.cost import hybrids, lookups, scans
from semistream.cost.case import Case, Loop
from semistream.cost.popularity import Ranks
from semistream.front.steady import BLOCK, LOOKUP, SCAN, Steady, steady

_ROUNDS = 8
_NEAR = 0.003  # of what goes through: no more rounds


def cmeshjoin(case: Case) -> Loop:
    """The front stage over MESHJOIN: a tuple waits for a cycle."""
    through = _in_turns(
        case, lambda through: _answered(case, SCAN, scans.tuples_per_cycle(case) / through.total, 1)
    )
    return scans.loop(case, front_share=1.0 - through.total, front_probes=True)


def chybridjoin(case: Case) -> Loop:
    """The front stage over HYBRIDJOIN: a tuple waits until it is the oldest.

    A key that was let go stays away until its block is read, so its tuples come behind in bursts, and more of them leave with
    a read than if they came evenly. So w is counted in the small instance too, and T found by how many tuples wait there.
    """
    window, rows = case.division.window_tuples, round(case.page_rows * hybrids.block_pages(case))
    kept = (np.arange(len(case.ranks.chance)) >= case.division.front_rows).astype(np.float64)
    if case.ranks.thinned(kept, 1.0).total <= 1e-9 or not case.division.front_rows:
        return hybrids.behind(case, case.ranks.thinned(kept, 1.0), front_probes=True)
    time = hybrids.mean_wait(case, case.ranks.thinned(kept, 1.0))
    for _ in range(_ROUNDS):
        found = _answered(case, BLOCK, time, rows)
        if abs(found.waiting / window - 1) < _NEAR:
            break
        time *= window / max(found.waiting, 1e-9)
    return hybrids.iteration(case, found.tuples_per_read, found.share, front_probes=True)


def cinlj(case: Case) -> Loop:
    """The front stage over INLJ: a tuple waits until all before it in the queue have looked up."""
    window, together = case.division.window_tuples, case.division.pages_at_once
    through = _in_turns(case, lambda through: _answered(case, LOOKUP, window / through.total, together))
    return lookups.inlj(case, waiting_share=through.total, front_probes=True)


def _in_turns(case: Case, answered: Callable[[Ranks], Steady]) -> Ranks:
    """What goes through, from how long it waits, from what goes through, ...; the first guess: all but the most popular."""
    kept = (np.arange(len(case.ranks.chance)) >= case.division.front_rows).astype(np.float64)
    through = case.ranks.thinned(kept, 1.0)
    for _ in range(_ROUNDS):
        before = through.total
        if before <= 1e-9:
            break
        through = _through(case, answered(through))
        if abs(through.total - before) < _NEAR * before:
            break
    return through


def _through(case: Case, found: Steady) -> Ranks:
    ranks = case.ranks
    kept = found.of(np.arange(len(ranks.chance), dtype=np.float64))
    beyond = float(found.of(np.array([len(ranks.chance) + ranks.others / 2]))[0])
    return ranks.thinned(kept, beyond)


def _answered(case: Case, how: int, wait: float, together: int) -> Steady:
    # Of three digits: nothing changes with the fourth, and more cases are known already.
    return _steady(
        case.master_rows,
        case.skew,
        case.division.front_rows,
        how,
        float(f"{wait:.3g}"),
        together,
    )


@lru_cache(maxsize=1024)
def _steady(rows: int, skew: float, places: int, how: int, wait: float, together: int) -> Steady:
    ranks = Ranks.of(rows, skew)
    if not places:
        return Steady(np.zeros(1), np.ones(1), 1.0)
    return steady(
        ranks.chance, ranks.others, ranks.other_chance, places=places, how=how, wait=wait, together=together
    )
