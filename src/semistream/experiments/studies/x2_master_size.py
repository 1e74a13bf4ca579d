"""X-HYBRID figure 3(b): four joins over the size of the master, within 50 MB."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import MIB, hybrid
from semistream.experiments.studies.x1_memory import LINES
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import NOISE, Verdict, ahead, decide, percent, ratios


def case(scale: Scale, line: str, x: float) -> Case:
    """A master of x million rows."""
    tuning = "equal parts" if line == "x-hybridjoin" else "best"
    return hybrid(scale, line, memory_bytes=50 * MIB, rows=x * 1e6, tuning=tuning)


def judge(run: Run) -> Mapping[str, Verdict]:
    """X2: HYBRIDJOIN's part of X-HYBRIDJOIN's rate falls as the master grows."""
    fast = run.curve("x-hybridjoin")
    share = ratios(run.curve("hybridjoin"), fast)
    return {
        "X2": decide(
            f"from {100 * share[0]:.0f} % to {100 * share[-1]:.0f} % of X-HYBRIDJOIN's rate",
            holds={
                "HYBRIDJOIN falls further behind": NOISE * share[-1] < share[0],
                "X-HYBRIDJOIN is ahead of all for every master": all(
                    ahead(fast, run.curve(line), by=NOISE) for line in LINES[1:]
                ),
            },
            why="Of X-HYBRIDJOIN's time reading takes "
            + " and ".join(
                f"{percent(_reading(run, x))} at {x:g} million rows" for x in (run.xs[0], run.xs[-1])
            )
            + ": the more it is, the more the pinned pages save.",
        )
    }


def _reading(run: Run, x: float) -> float:
    """Its part of all time."""
    point = run.at("x-hybridjoin", x)
    return point.disk_seconds / point.seconds


STUDIES = (
    Study(
        name="x2_master_size",
        figure="X-HYBRID, figure 3(b)",
        title="Four joins over the size of the master, within 50 MB",
        claims=("X2",),
        x=Axis("master, million rows", log=True),
        lines=LINES,
        xs=(0.5, 2.0, 8.0),
        case=case,
        judge=judge,
        small_xs=(0.5, 4.0),
    ),
)
