"""CACHING figure 5(g): 25 intervals, each asking for its own part of the keys; N rows a key."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Case, Measured
from semistream.experiments.scale import Scale
from semistream.experiments.setups import caching
from semistream.experiments.studies.c5_tpch_and_cloud import SHARES, best_shares, share_of, with_share
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import NOISE, Verdict, ahead, decide, percent, ratios

PAPER_LEAD = {1.0: 6.5, 20.0: 10.0}
INTERVAL_ROWS = 2e6
LONGER = 10.0  # times, of a control
EVEN, LONG = ", no intervals", ", longer intervals"
CONTROLLED = with_share("cmeshjoin", SHARES[-1])
FEW_ROUNDS = 5.0  # where popularity stays
INTERVALS = 25
ROUNDS = (
    40.0  # of the master: popularity goes round in 25 intervals, which no round of the master is in step with
)
FEWER_ROUNDS = 14.0  # at the paper's size; two times 25 intervals at least


def case(scale: Scale, line: str, x: float) -> Case:
    """X rows a key; the stream asks for one twenty-fifth of the keys at a time, or in a control for all of them or ten times as long for each part."""
    rounds = ROUNDS if scale.caching < 1 else FEWER_ROUNDS
    if line.endswith(EVEN):  # nothing goes round
        rounds = FEW_ROUNDS
    rows = 0 if line.endswith(EVEN) else LONGER * INTERVAL_ROWS if line.endswith(LONG) else INTERVAL_ROWS

    def plain(name: str) -> Case:
        return caching(scale, name, rows_per_key=int(x), interval_rows=rows, measured=rounds)

    return share_of(line.removesuffix(EVEN).removesuffix(LONG), plain)


def judge(run: Run) -> Mapping[str, Verdict]:
    """C7: a lead that grows with N."""
    best = best_shares(run, "cmeshjoin")
    fastest = [rate for _, rate in best]
    lead = ratios(fastest, run.curve("meshjoin"))
    return {
        "C7": decide(
            ", ".join(
                f"N = {x:g}: {value:.2f}x"
                + (f" ({value / PAPER_LEAD[x]:.2f} of the paper's)" if x in PAPER_LEAD else "")
                for x, value in zip(run.xs, lead, strict=True)
            ),
            holds={
                "CMESHJOIN is ahead for every N": ahead(fastest, run.curve("meshjoin"), by=NOISE),
                "its lead grows with N": lead[-1] > NOISE * max(lead[0], 1.0),
            },
            why=f"With {SHARES[-1]} % of the memory and N = {run.xs[-1]:g} the front stage answers {_controls(run, run.xs[-1])}.",
            details=f"With N = {run.xs[0]:g} it answers {_controls(run, run.xs[0])}. A row can only enter when it is read, and a tuple of MESHJOIN waits until the master was read round. "
            + " ".join(_met(run, x, share) for x, (share, _) in zip(run.xs, best, strict=True)),
        )
    }


def _controls(run: Run, x: float) -> str:
    """What the front stage answers as the intervals grow, and what it holds."""
    point, long, even = (run.at(CONTROLLED + suffix, x) for suffix in ("", LONG, EVEN))
    return (
        f"{percent(point.front_share)} of the stream, {percent(long.front_share)} where intervals are {LONGER:g} times as long and {percent(even.front_share)} "
        f"({even.rate / run.at('meshjoin' + EVEN, x).rate:.2f}x MESHJOIN) without any, holding {point.held / x:,.0f} keys where an interval asks for "
        f"{run.study.case(run.scale, CONTROLLED, x).master.n_keys / INTERVALS:,.0f}"
    )


def _met(run: Run, x: float, share: int) -> str:
    """How far the stream has moved on when a row comes, and what is left for it to answer."""
    point, plain = run.at(with_share("cmeshjoin", share), x), run.at("meshjoin", x)
    rounds = point.pages / pages_of(point, run, x)
    passed = point.answered / rounds / INTERVAL_ROWS / point.scale
    return (
        f"For N = {x:g} {passed:.1f} intervals pass meanwhile; with {share} % of the memory the front stage answers {percent(point.front_share)} "
        f"and leaves the join behind {point.behind_rate / plain.rate:.2f} of its rate; it holds {point.held / x:,.0f} keys, and {point.cached / rounds:,.0f} come in in every round."
    )


def pages_of(point: Measured, run: Run, x: float) -> float:
    """Pages of the master, from what was read of it."""
    master = run.study.case(run.scale, "meshjoin", x).master
    return master.rows / (point.probes / point.pages)


STUDIES = (
    Study(
        name="c7_temporal_locality",
        figure="CACHING, figure 5(g)",
        title="Temporal locality: CMESHJOIN and MESHJOIN over the rows a key has, at 10 % of memory",
        claims=("C7",),
        x=Axis("rows a key, N"),
        lines=(
            *(with_share("cmeshjoin", share) for share in SHARES),
            "meshjoin",
            *(line + suffix for suffix in (LONG, EVEN) for line in (CONTROLLED, "meshjoin")),
        ),
        xs=(1.0, 5.0, 20.0),
        case=case,
        judge=judge,
        small_xs=(1.0, 20.0),
    ),
)
