"""CACHING figure 5(c): the index nested loop with and without the front stage, beside the others."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.setups import caching
from semistream.experiments.study import LOG_RATE, Axis, Run, Study
from semistream.experiments.verdicts import NOISE, Verdict, ahead, decide, percent, ratios, times

PAPER_GAIN = 2.5
OTHERS = ("meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin")


def judge(run: Run) -> Mapping[str, Verdict]:
    """C3: CINLJ beats INLJ; the four others are far ahead of both."""
    cached, plain = run.curve("cinlj"), run.curve("inlj")
    last = run.at("cinlj", run.xs[-1])
    return {
        "C3": decide(
            f"{times(ratios(cached, plain))} INLJ's rate ({times([gain / PAPER_GAIN for gain in ratios(cached, plain)])} the paper's); the slowest of the others {times([min(run.curve(o)[i] for o in OTHERS) / c for i, c in enumerate(cached)])} CINLJ's",
            holds={
                "CINLJ beats INLJ": ahead(cached, plain, by=NOISE),
                "both are far behind (ten times) the others": all(
                    ahead(run.curve(other), cached, by=10) for other in OTHERS
                ),
            },
            why=f"The front stage answers {percent(last.front_share)} of the stream, which brings "
            f"{1 / (1 - last.front_share):.1f}x: all that counts is the reads that are left.",
        )
    }


STUDIES = (
    Study(
        name="c3_index_loop",
        figure="CACHING, figure 5(c)",
        title="INLJ and CINLJ beside the others over the size of the master",
        claims=("C3",),
        x=Axis("master, million rows"),
        y=LOG_RATE,
        lines=("inlj", "cinlj", *OTHERS),
        xs=(20.0, 100.0),
        case=lambda scale, line, x: caching(scale, line, rows=x * 1e6),
        judge=judge,
        small_xs=(20.0, 100.0),
    ),
)
