"""X-HYBRID figure 3(c): four joins over the skew of the stream, within 50 MB."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Case, Measured
from semistream.experiments.scale import Scale
from semistream.experiments.setups import MIB, hybrid
from semistream.experiments.studies.x1_memory import CONTROLS, LINES, PARTS, small_parts
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import NOISE, Verdict, decide, percent, ratios, rises
from semistream.master.disk.profiles import HDD_2007


def case(scale: Scale, line: str, x: float) -> Case:
    """A stream of exponent x."""
    if line == CONTROLS[0]:
        return small_parts(scale, line, memory_bytes=50 * MIB, exponent=x)
    tuning = "equal parts" if line == "x-hybridjoin" else "best"
    return hybrid(scale, line, memory_bytes=50 * MIB, exponent=x, tuning=tuning)


def judge(run: Run) -> Mapping[str, Verdict]:
    """X3: behind MESHJOIN at 0, ahead from there on, and the more so."""
    lead = ratios(run.curve("x-hybridjoin"), run.curve("meshjoin"))
    over_hybrid = ratios(run.curve("x-hybridjoin"), run.curve("hybridjoin"))
    hybrid_even, mesh_even = run.at("hybridjoin", 0.0), run.at("meshjoin", 0.0)
    even = hybrid_even.rate / mesh_even.rate
    return {
        "X3": decide(
            ", ".join(f"{x:g}: {value:.2f}x" for x, value in zip(run.xs, lead, strict=True))
            + " MESHJOIN's rate",
            holds={
                "behind MESHJOIN without skew": NOISE * lead[0] < 1,
                "ahead for every other exponent": all(value > NOISE for value in lead[1:]),
                "the more the larger the exponent": rises(lead, slack=0.02),
            },
            why=f"Without skew HYBRIDJOIN itself has {even:.2f} of MESHJOIN's rate here: a page that it reads answers "
            f"{hybrid_even.answered / hybrid_even.pages:.1f} tuples and one of MESHJOIN's {mesh_even.answered / mesh_even.pages:.1f}. {_with_small_parts(run)}",
            details=f"HYBRIDJOIN's places are free again as soon as their tuples have matched; moving the arm is {percent(_moving(hybrid_even))} of its reading. "
            f"The pinned pages alone make {over_hybrid[0]:.2f} of HYBRIDJOIN's rate without skew and {over_hybrid[-1]:.2f} at exponent {run.xs[-1]:g}.",
        )
    }


def _with_small_parts(run: Run) -> str:
    """Whether it is the size of the parts that put the paper's join behind."""
    lead = ratios(run.curve(CONTROLS[0]), run.curve("meshjoin"))
    told = ", ".join(f"{value:.2f} at {x:g}" for x, value in zip(run.xs, lead, strict=True))
    return f"With parts of {PARTS:g} MB X-HYBRIDJOIN has {told} of MESHJOIN's rate."


def _moving(point: Measured) -> float:
    """The share of reading that is seeks and half turns."""
    return point.seeks * point.scale * (HDD_2007.seek_s + HDD_2007.rotation_s) / point.disk_seconds


STUDIES = (
    Study(
        name="x3_skew",
        figure="X-HYBRID, figure 3(c)",
        title="Four joins over the skew of the stream, within 50 MB",
        claims=("X3",),
        x=Axis("Zipf exponent"),
        lines=(*LINES, CONTROLS[0]),
        xs=(0.0, 0.25, 0.5, 1.0),
        case=case,
        judge=judge,
        small_xs=(0.0, 0.5, 1.0),
    ),
)
