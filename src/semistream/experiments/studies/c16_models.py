"""CACHING figure 9(f): predicted and measured rate of every algorithm."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import caching
from semistream.experiments.study import LOG_RATE, Axis, Run, Study
from semistream.experiments.verdicts import CLOSE, Verdict, decide, percent

LINES = ("inlj", "cinlj", "meshjoin", "cmeshjoin", "hybridjoin", "chybridjoin")


def case(scale: Scale, line: str, x: float) -> Case:
    """At x % of memory."""
    return caching(scale, line, memory_share=x / 100)


def judge(run: Run) -> Mapping[str, Verdict]:
    """C16: each model is close to its run."""
    models = {line: run.model(line) for line in LINES}
    if not all(models.values()):
        return {"C16": Verdict("not run", "", "There is no model to compare with.")}
    off = {
        line: max(abs(p / m - 1) for p, m in zip(models[line], run.curve(line), strict=True))
        for line in LINES
    }
    return {
        "C16": decide(
            "; ".join(f"{line} {percent(value)}" for line, value in off.items()) + " apart",
            holds={f"the model of {line} agrees": value <= CLOSE for line, value in off.items()},
        )
    }


STUDIES = (
    Study(
        name="c16_models",
        figure="CACHING, figure 9(f)",
        title="Predicted and measured rate of every algorithm",
        claims=("C16",),
        x=Axis("memory, % of the master"),
        y=LOG_RATE,
        lines=LINES,
        xs=(10.0,),
        case=case,
        judge=judge,
        shows_model=True,
    ),
)
