"""CMESHJOIN, CHYBRIDJOIN, CINLJ (CACHING), for which the paper gives no formula.

A front stage answers a share of the stream, and what is left goes to the join behind, as in that join's model:

    c_loop of the join behind, for w_S tuples, + w c_H + w (c_S + c_O)          with w = w_S / (1 - share)

The share depends on who waits behind (a key enters when several wait for it), and that on the share: front/steady.py follows
both, by the rules of the recorder and of the windows.

Tuples that have no row all wait, and take their part of the window; the small instance is given the rest of it, and only tuples with a
row go by it.
"""

from __future__ import annotations

import math
from functools import lru_cache

from semistream.cost import hybrids, lookups, scans
from semistream.cost.case import Case, Loop
from semistream.cost.popularity import Ranks
from semistream.front.steady import BLOCK, LOOKUP, SCAN, Steady, steady

_NOTHING = 1e-9  # of the stream
_ROUNDS = 2  # in which the part of the window and the share settle


def cmeshjoin(case: Case) -> Loop:
    """The front stage over MESHJOIN: as many tuples come in with every read as have seen all of the master."""
    found = _steady_of(case, SCAN, int(scans.tuples_per_cycle(case)), scans.reads_per_cycle(case))
    return scans.loop(case, front_share=1.0 - _waiting_share(case, found), front_probes=True)


def cinlj(case: Case) -> Loop:
    """The front stage over INLJ: the oldest look up together."""
    found = _steady_of(case, LOOKUP, case.division.window_tuples, case.division.pages_at_once)
    return lookups.inlj(case, waiting_share=_waiting_share(case, found), front_probes=True)


def chybridjoin(case: Case) -> Loop:
    """The front stage over HYBRIDJOIN: who waits for the block of the oldest leaves with it.

    A key that was let go stays away until its block is read, so its tuples come behind in bursts, and more of them leave with
    a read than if they came evenly. So w is counted in the small instance too.
    """
    if not case.division.front_rows:
        return hybrids.hybrid(case)
    block_rows = case.page_rows * case.division.block_pages
    found = _steady_of(case, BLOCK, case.division.window_tuples, round(block_rows))
    share = _waiting_share(case, found)
    if share <= _NOTHING:
        return hybrids.iteration(case, 1e9, 0.0, front_probes=True)
    if not case.misses:
        return hybrids.iteration(case, found.tuples_per_read, share, front_probes=True)
    # Every miss is a read, and spares a block that it happens to be in one of its own (hybrids.py).
    time = case.division.window_tuples / share
    undisturbed = math.exp(-case.misses * time * block_rows / case.master_rows)
    reads = case.misses
    if found.share > _NOTHING:
        reads += (1.0 - case.misses) * undisturbed / found.tuples_per_read
    return hybrids.iteration(case, 1.0 / reads, share, front_probes=True)


def _waiting_share(case: Case, found: Steady) -> float:
    """Of all tuples, who waits behind: of those that have a row the share that was found, and all others."""
    return case.misses + (1.0 - case.misses) * found.share


def _steady_of(case: Case, how: int, window: int, together: int) -> Steady:
    """Of the tuples that have a row, in the part of the window that is theirs."""
    found = _steady_in(case, how, window, together)
    for _ in range(_ROUNDS if case.misses else 0):
        matched = (1.0 - case.misses) * found.share
        part = matched / (matched + case.misses)
        # Rounded, so that settings that differ little share what was followed.
        theirs = max(1, int(window * 2.0 ** (round(8 * math.log2(max(part, 1e-6))) / 8)))
        found = _steady_in(case, how, theirs, together)
    return found


def _steady_in(case: Case, how: int, window: int, together: int) -> Steady:
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
    return steady(
        Ranks.of(rows, skew).keys,
        places=places,
        window=window,
        how=how,
        together=together,
        in_order=in_order,
        small_places=small,
    )
