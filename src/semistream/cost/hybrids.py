"""HYBRIDJOIN and its descendants (X-HYBRID eqs. 2 and 5, OPT-X eq. 2).

    HYBRIDJOIN                c_IO(k) + k_T c_H         + w (c_O + c_E + c_S + c_A)
    X-HYBRIDJOIN              c_IO(k) + (k_T + l_T) c_H + w (c_O + c_E + c_S + c_A)
    Optimised X-HYBRIDJOIN    c_IO(k) + k_T c_H + (w_N + w_S) c_H + w (c_O + c_S) + w_S (c_E + c_A)

All of them hang on w = w_N + w_S, the tuples that one iteration finishes: w_N answered by rows in memory, w_S that waited. k_T and l_T are
the rows of a block and of the pinned pages.

Where the papers are wrong or loose (counted in tests/cost/test_papers.py, with figures in docs/decisions/013-cost-models.md):

- OPT-X eq. 2 has no c_H for the w_S tuples that look into H_R in vain. Ours has (w_N + w_S) c_H.
- X-HYBRID eq. 9 multiplies the chances of a match by (1 - p): that is how far the number of matches varies, not how many there are.
- OPT-X eq. 4 drops Euler's constant from both of its sums. Its eqs. 5 and 8 are power laws whose exponents come from doubling one
  size at one setting: tangents, that hold only there, and not even there without the factor that they leave out.
- All take w from a window filled afresh, as h_S times the chance of the block that is read, on average over all blocks.

But who waits is not a fresh sample: tuples of popular blocks have just been taken out. So here time is
counted in tuples that arrive. A block with chance q that nobody waits for is asked for after 1/q tuples on average; the
tuple that asks then needs T more to become the oldest, when the block is read and the 1 + q T tuples that have come for it
leave together. T is the same for all blocks, and is found from the window being full:

    sum over blocks of q T (1 + q T / 2) / (1 + q T) = h_S          reads per tuple = sum of q / (1 + q T)          w = 1 / that

One row a key is taken for granted: where keys repeat, a tuple puts out more rows than the model has c_O for, and with how="left" one without a
row puts one out too.

Tuples that have no row are nobody's match: each leaves when it has become the oldest and its page was read for it, a read of its own,
with which all leave who wait for rows of that block. So a block may be read before the T of its oldest is up. With misses m, of
which r = m / blocks come to one block, who waits there waits W on average, min(T, until the next such read):

    W = (1 - exp(-r T)) / r          reads per tuple = m + sum of q exp(-r T) / (1 + q W)

Where one block alone has a good part of the waiting tuples, T is not the same for all, since that block's leaving lets so many in
at once; then the queue itself is followed (memory/turnover.py).
"""

from __future__ import annotations

import math
from functools import lru_cache

from semistream.cost.case import Case, Loop
from semistream.cost.popularity import Blocks, Ranks, by_rank, scattered
from semistream.memory import turnover

_SECANTS, _NEAR_ENOUGH = 60, 1e-9
_EVER = 1e18
_NOTHING = 1e-12  # of the stream
_FEW = 1e-6  # misses that come to a block meanwhile: as if none did
_GULP = 0.07  # of the window, leaving at once: from there on the queue is followed


def waiting(blocks: Blocks, time: float, misses: float = 0.0) -> float:
    """Tuples that wait on average when the oldest has waited for `time`."""
    asked = (1 - misses) * blocks.chance
    wait, square, _ = _waits(blocks, time, misses)
    return misses * time + float(blocks.count @ (asked * (wait + asked * square / 2) / (1 + asked * wait)))


def tuples_per_read(blocks: Blocks, time: float, misses: float = 0.0) -> float:
    """w: tuples that arrive, and so are finished, per block read."""
    asked = (1 - misses) * blocks.chance
    wait, _, undisturbed = _waits(blocks, time, misses)
    return 1.0 / (misses + float(blocks.count @ (undisturbed * asked / (1 + asked * wait))))


def _waits(blocks: Blocks, time: float, misses: float) -> tuple[float, float, float]:
    """How long the first who asks for a block waits, on average and squared; and the chance that nobody's miss reads it before."""
    total = float(blocks.count.sum())
    if not misses or not total:  # no block is left where all of the master is in memory
        return time, time * time, 1.0
    rate = misses / total
    undisturbed = math.exp(-rate * time)
    if rate * time < _FEW:
        return time, time * time, undisturbed
    return (
        (1 - undisturbed) / rate,
        2 / rate**2 * (1 - undisturbed * (1 + rate * time)),
        undisturbed,
    )


def time_in_window(blocks: Blocks, window: float, share_beside: float = 0.0, misses: float = 0.0) -> float:
    """T, in tuples, for a window of so many.

    `share_beside` of the stream enters the window too, but leaves at the end of the iteration: X-HYBRIDJOIN's pinned rows.
    """
    low = high = max(window, 1.0)
    held_low = held_high = _held(blocks, high, share_beside, misses)
    while held_high < window and high < _EVER:
        low, held_low, high = high, held_high, 2 * high
        held_high = _held(blocks, high, share_beside, misses)
    while held_low > window and low > _NOTHING:
        high, held_high, low = low, held_low, low / 2
        held_low = _held(blocks, low, share_beside, misses)
    if not held_low < window < held_high:
        return low if held_low >= window else high
    # Who waits is nearly a power of T: the secant of the logarithms. An end that stays is taken for half as far off, or it
    # would stay for good (Dowell and Jarratt, A modified regula falsi method, BIT 1971).
    at_low, at_high = math.log(held_low / window), math.log(held_high / window)
    kept_low = kept_high = False
    for _ in range(_SECANTS):
        time = low * math.exp(math.log(high / low) * at_low / (at_low - at_high))
        at = math.log(_held(blocks, time, share_beside, misses) / window)
        if abs(at) < _NEAR_ENOUGH or high - low < _NEAR_ENOUGH * high:
            break
        if at < 0.0:
            low, at_low, at_high = time, at, at_high / 2 if kept_high else at_high
        else:
            high, at_high, at_low = time, at, at_low / 2 if kept_low else at_low
        kept_high, kept_low = at < 0.0, at >= 0.0
    return time


def finished_per_read(case: Case, blocks: Blocks, share_beside: float = 0.0) -> float:
    """W, by the averages where they hold."""
    window = float(case.division.window_tuples)
    time = time_in_window(blocks, window, share_beside, case.misses)
    if case.misses or float(blocks.chance.max()) * time < _GULP * window:
        return tuples_per_read(blocks, time, case.misses)
    return turnover.tuples_per_read(
        blocks.chance, blocks.count, int(window), share_beside, time, rough=case.is_rough
    )


def _held(blocks: Blocks, time: float, share_beside: float, misses: float) -> float:
    beside = share_beside * tuples_per_read(blocks, time, misses) if share_beside else 0.0
    return waiting(blocks, time, misses) + beside


def blocks_of(case: Case, skip_rows: float = 0.0) -> Blocks:
    """The blocks that are read, by how often they are asked for."""
    rows = case.page_rows * case.division.block_pages
    if case.layout == "frequency":
        return by_rank(case.ranks, rows, skip_rows)
    found = _scattered(case.master_rows, case.skew, rows)
    # The first rows are in no order of popularity: as large a part of the blocks is never read.
    return Blocks(found.chance, found.count * max(0.0, 1.0 - skip_rows / case.master_rows))


@lru_cache(maxsize=256)
def _scattered(rows: int, skew: float, block_rows: float) -> Blocks:
    return scattered(Ranks.of(rows, skew), block_rows)


def read_s(case: Case) -> float:
    """c_IO(k), with the index page that names the block where the index is on disk."""
    pages = case.division.block_pages
    together = blocks_at_once(case)
    index = (
        case.disk.random_s(together, case.index_page_bytes, case.index_page_bytes)
        if case.index_page_bytes
        else 0
    )
    return (case.disk.random_s(together, pages * case.page_bytes, case.page_bytes) + index) / together


def blocks_at_once(case: Case) -> int:
    """Blocks that the oldest tuples choose together: 1 is the papers'."""
    return max(1, min(case.settings.parallel, case.division.pages_at_once // case.division.block_pages))


def hybrid(case: Case) -> Loop:
    """HYBRIDJOIN."""
    return _looked_up(case, blocks_of(case), front_probes=False)


def x_hybrid(case: Case) -> Loop:
    """X-HYBRIDJOIN: l_T pinned rows probe the window in every iteration."""
    pinned_rows = min(case.division.pinned_pages, case.pages) * case.page_rows
    blocks = blocks_of(case, pinned_rows)
    share = (
        case.ranks.top(pinned_rows) if case.layout == "frequency" else pinned_rows / max(case.master_rows, 1)
    )
    share *= 1.0 - case.misses
    if blocks.total <= _NOTHING and not case.misses:  # all of the master is pinned
        tuples = float(case.division.window_tuples)
        return Loop(tuples=tuples, io_s=0.0, probes=pinned_rows, waited=tuples, front_share=1.0)
    tuples = finished_per_read(case, blocks, share)
    k_rows = case.page_rows * case.division.block_pages
    # One advance reads `together` blocks, and the pinned rows probe once for all of them.
    return Loop(
        tuples=tuples,
        io_s=read_s(case),
        loaded=k_rows,
        probes=k_rows + pinned_rows / blocks_at_once(case),
        waited=tuples,
        front_share=share,
        steps=1 / blocks_at_once(case),
    )


def optimised(case: Case) -> Loop:
    """Optimised X-HYBRIDJOIN: the first rows of the master answer before the window is entered."""
    rows = min(case.division.front_rows, case.master_rows)
    blocks = blocks_of(case, rows)
    return _looked_up(case, blocks, front_probes=True)


def _looked_up(case: Case, blocks: Blocks, *, front_probes: bool) -> Loop:
    if blocks.total <= _NOTHING and not case.misses:  # all of the master is in memory
        return Loop(tuples=1.0, io_s=0.0, front_probes=1.0, front_share=1.0)
    tuples = finished_per_read(case, blocks)
    waiting_share = case.misses + (1.0 - case.misses) * blocks.total
    return iteration(case, tuples, waiting_share, front_probes=front_probes)


def iteration(case: Case, tuples: float, waiting_share: float, *, front_probes: bool) -> Loop:
    """The read of a block that finishes so many tuples of the stream, a share of which has waited."""
    rows = case.page_rows * case.division.block_pages
    return Loop(
        tuples=tuples,
        io_s=read_s(case),
        loaded=rows,
        probes=rows,
        front_probes=tuples if front_probes else 0.0,
        waited=tuples * waiting_share,
        front_share=1.0 - waiting_share,
        steps=1 / blocks_at_once(case),
    )
