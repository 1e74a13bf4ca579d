"""CMESHJOIN, CHYBRIDJOIN, CINLJ (CACHING), for which the paper gives no formula.

A front stage answers a share of the stream, and what is left goes to the join behind, as in that join's model:

    c_loop of the join behind, for w_S tuples, + w c_H + w (c_S + c_O)          with w = w_S / (1 - share)

The share depends on how long tuples wait behind (a key enters when several wait for it), and that on the share; the two
are found in turns. How the share follows from the rules of the recorder is in front/steady.py.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from semistream.cost import hybrids, lookups, scans
from semistream.cost.case import Case, Loop
from semistream.cost.popularity import Ranks
from semistream.front.steady import BLOCK, LOOKUP, SCAN, Steady, steady

_ROUNDS = 3


def cmeshjoin(case: Case) -> Loop:
    """The front stage over MESHJOIN: a tuple waits for a cycle."""
    share = _ideal(case)
    for _ in range(_ROUNDS):
        wait = scans.tuples_per_cycle(case) / max(1.0 - share, 1e-6)
        share = 1.0 - _answered(case, SCAN, wait).share
    return scans.loop(case, front_share=share, front_probes=True)


def chybridjoin(case: Case) -> Loop:
    """The front stage over HYBRIDJOIN: a tuple waits until it is the oldest."""
    kept = (np.arange(len(case.ranks.chance)) >= case.division.front_rows).astype(np.float64)
    through = case.ranks.thinned(kept, 1.0)
    for _ in range(_ROUNDS):
        if through.total <= 1e-9:
            break
        through = _through(case, _answered(case, BLOCK, hybrids.mean_wait(case, through)))
    return hybrids.behind(case, through, front_probes=True)


def cinlj(case: Case) -> Loop:
    """The front stage over INLJ: a tuple waits until the disk buffer's pages before it have been read."""
    share = 1.0 - _answered(case, LOOKUP, 0.0).share
    return lookups.inlj(case, waiting_share=1.0 - share, front_probes=True)


def _ideal(case: Case) -> float:
    """If the most popular keys were in."""
    return case.ranks.top(case.division.front_rows)


def _through(case: Case, found: Steady) -> Ranks:
    ranks = case.ranks
    kept = found.of(np.arange(len(ranks.chance), dtype=np.float64))
    beyond = float(found.of(np.array([len(ranks.chance) + ranks.others / 2]))[0])
    return ranks.thinned(kept, beyond)


def _answered(case: Case, how: int, wait: float) -> Steady:
    # Of three digits: nothing changes with the fourth, and more cases are known already.
    return _steady(
        case.master_rows,
        case.skew,
        case.division.front_rows,
        how,
        float(f"{wait:.3g}"),
        round(case.page_rows),
    )


@lru_cache(maxsize=1024)
def _steady(rows: int, skew: float, places: int, how: int, wait: float, page_rows: int) -> Steady:
    ranks = Ranks.of(rows, skew)
    if not places:
        return Steady(np.zeros(1), np.ones(1), 1.0)
    return steady(
        ranks.chance, ranks.others, ranks.other_chance, places=places, how=how, wait=wait, page_rows=page_rows
    )
