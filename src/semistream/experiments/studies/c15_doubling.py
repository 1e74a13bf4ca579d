"""CACHING figure 9(e): the master doubles while CMESHJOIN runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from semistream.experiments.case import Case
from semistream.experiments.doubling import PIECES
from semistream.experiments.scale import Scale
from semistream.experiments.setups import caching
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import Verdict, decide, percent

SETTLED = 3  # the last pieces, on either side, in which the rate is steady
GROWS, HALF, WHOLE = "doubles", "half, alone", "whole, alone"


def case(scale: Scale, line: str, x: float) -> Case:
    """A run a line; the index says which keys are complete, also after the change."""
    rows = 50e6 if line in (GROWS, HALF) else 100e6
    found = caching(scale, "cmeshjoin", rows=rows, memory_share=x / 100, doubles=line == GROWS)
    return replace(found, master=replace(found.master, layout="key"))


def judge(run: Run) -> Mapping[str, Verdict]:
    """C15: no wrong answer, and before and after the rates of joins that never saw a change."""
    grown = run.at(GROWS, run.xs[0])
    rates = [tuples / seconds for tuples, seconds in grown.timeline]
    before, after = (
        sum(part) / len(part) for part in (rates[PIECES // 2 - SETTLED : PIECES // 2], rates[-SETTLED:])
    )
    expected_before, expected_after = run.at(HALF, run.xs[0]).rate, run.at(WHOLE, run.xs[0]).rate
    wrong = grown.misses + abs(grown.rows - grown.answered)
    return {
        "C15": decide(
            f"{before:,.0f} tuples/s before and {after:,.0f} after; {expected_before:,.0f} and {expected_after:,.0f} for joins that "
            f"began so; {wrong} of {grown.answered:,} answers wrong",
            holds={
                "every tuple gets its one row": wrong == 0,
                "before, the rate is that of a join of the half": abs(before / expected_before - 1) < 0.1,
                "after, the rate is that of a join of the whole": abs(after / expected_after - 1) < 0.1,
            },
            why=f"The lowest piece after the change has {percent(min(rates[PIECES // 2 :]) / after)} of the later rate: the front stage fills anew.",
        )
    }


STUDIES = (
    Study(
        name="c15_doubling",
        figure="CACHING, figure 9(e)",
        title="CMESHJOIN while the master doubles, from 50 to 100 million rows",
        claims=("C15",),
        x=Axis("tuples, million, at the paper's size"),
        lines=(GROWS, HALF, WHOLE),
        xs=(10.0,),
        case=case,
        judge=judge,
    ),
)
