"""CMESHJOIN, CHYBRIDJOIN, CINLJ (CACHING), for which the paper gives no formula.

A front stage answers a share of the stream, and what is left goes to the join behind, as in that join's model:

    c_loop of the join behind, for w_S tuples, + w c_H + w (c_S + c_O)          with w = w_S / (1 - share)

The share depends on who waits behind (a key enters when several wait for it), and that on the share: front/steady.py follows
both, by the rules of the recorder and of the windows.
"""

from __future__ import annotations

from functools import lru_cache

from semistream.cost import hybrids, lookups, scans
from semistream.cost.case import Case, Loop
from semistream.cost.popularity import Ranks
from semistream.front.steady import BLOCK, LOOKUP, SCAN, Keys, Steady, steady

_NOTHING = 1e-9  # of the stream


def cmeshjoin(case: Case) -> Loop:
    """The front stage over MESHJOIN: as many tuples come in with every read as have seen all of the master."""
    found = _steady_of(case, SCAN, int(scans.tuples_per_cycle(case)), scans.reads_per_cycle(case))
    return scans.loop(case, front_share=1.0 - found.share, front_probes=True)


def cinlj(case: Case) -> Loop:
    """The front stage over INLJ: the oldest look up together."""
    found = _steady_of(case, LOOKUP, case.division.window_tuples, case.division.pages_at_once)
    return lookups.inlj(case, waiting_share=found.share, front_probes=True)


def chybridjoin(case: Case) -> Loop:
    """The front stage over HYBRIDJOIN: who waits for the block of the oldest leaves with it.

    A key that was let go stays away until its block is read, so its tuples come behind in bursts, and more of them leave with
    a read than if they came evenly. So w is counted in the small instance too.
    """
    if not case.division.front_rows:
        return hybrids.hybrid(case)
    found = _steady_of(
        case, BLOCK, case.division.window_tuples, round(case.page_rows * case.division.block_pages)
    )
    if found.share <= _NOTHING:
        return hybrids.iteration(case, 1e9, 0.0, front_probes=True)
    return hybrids.iteration(case, found.tuples_per_read, found.share, front_probes=True)


def _steady_of(case: Case, how: int, window: int, together: int) -> Steady:
    return _steady(
        case.master_rows,
        case.skew,
        case.division.front_rows,
        window,
        how,
        together,
        how == BLOCK and case.layout == "frequency",
        case.small_places,
    )


@lru_cache(maxsize=1024)
def _steady(
    rows: int, skew: float, places: int, window: int, how: int, together: int, in_order: bool, small: int
) -> Steady:
    if not places:
        return Steady(1.0)
    ranks = Ranks.of(rows, skew)
    return steady(
        Keys(ranks.chance, ranks.below, ranks.others, ranks.other_chance),
        places=places,
        window=window,
        how=how,
        together=together,
        in_order=in_order,
        small_places=small,
    )
