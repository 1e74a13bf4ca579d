"""CACHING figure 5(g): 25 intervals, each asking for its own part of the keys; N rows a key."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.setups import caching
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import Verdict, ahead, decide, percent, ratios

INTERVAL_ROWS = 2e6


def judge(run: Run) -> Mapping[str, Verdict]:
    """C7: a lead that grows with N."""
    lead = ratios(run.curve("cmeshjoin"), run.curve("meshjoin"))
    first, last = (run.at("cmeshjoin", x) for x in (run.xs[0], run.xs[-1]))
    return {
        "C7": decide(
            ", ".join(f"N = {x:g}: {value:.1f}x" for x, value in zip(run.xs, lead, strict=True)),
            holds={
                "CMESHJOIN is ahead for every N": ahead(run.curve("cmeshjoin"), run.curve("meshjoin")),
                "its lead grows with N": lead[-1] > max(lead[0], 1.0),
            },
            why=f"The front stage answers {percent(first.front_share)} of the stream for N = {run.xs[0]:g} and {percent(last.front_share)} for "
            f"N = {run.xs[-1]:g}: a row can only enter when it is read, and a tuple of MESHJOIN waits until the master was read round, "
            f"while {first.answered / INTERVAL_ROWS / first.scale:.0f} intervals of the stream pass.",
        )
    }


STUDIES = (
    Study(
        name="c7_temporal_locality",
        figure="CACHING, figure 5(g)",
        title="Temporal locality: CMESHJOIN and MESHJOIN over the rows a key has, at 10 % of memory",
        claims=("C7",),
        x=Axis("rows a key, N"),
        lines=("cmeshjoin", "meshjoin"),
        xs=(1.0, 5.0, 20.0),
        case=lambda scale, line, x: caching(scale, line, rows_per_key=int(x), interval_rows=INTERVAL_ROWS),
        judge=judge,
        small_xs=(1.0, 20.0),
    ),
)
