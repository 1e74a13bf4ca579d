"""CACHING figures 7 and 8: who chooses what is read while tuples are shed, and which tuples those are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import caching
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import NOISE, Verdict, ahead, best_at, decide, percent, ratios, times

PAPER_POSITION = 15.0  # % of the queue, from its young end
PAPER_TUNED, PAPER_UPFRONT = 1.33, 3.1
FINER = 10.0  # times the scale of CACHING's other studies, else a page answers two or three tuples
OVERLOAD = 3.0  # times what the join serves without shedding; the paper does not say
TOGETHER = ", popular rows together"
STRATEGIES = {
    "tuned": ("considering", PAPER_POSITION / 100),
    "untuned": ("considering", 1.0),
    "upfront": ("upfront", 1.0),
}


def shed_case(scale: Scale, line: str, **more: Any) -> Case:
    """CHYBRIDJOIN under shedding; popular rows are anywhere, as in the paper's data, or together, as it expects them of real masters."""
    finer = replace(scale, caching=min(1.0, FINER * scale.caching))
    found = caching(finer, "chybridjoin", memory_share=0.02, measured=6.0, **more)
    if line.endswith(TOGETHER):
        found = replace(found, stream=replace(found.stream, popularity="in-order"))
    return found


def position_case(scale: Scale, line: str, x: float) -> Case:
    """The tuple at x % of the queue chooses, counted from the newest."""
    return shed_case(scale, line, sheds="considering", position=x / 100, overload=OVERLOAD)


def judge_position(run: Run) -> Mapping[str, Verdict]:
    """C9: better inside than at the end where tuples are shed."""
    curve, together = run.curve("chybridjoin"), run.curve("chybridjoin" + TOGETHER)
    best = best_at(run.xs, curve)
    return {
        "C9": decide(
            f"best at {best:g} % of the queue, {_above(curve)}",
            holds={
                "the best position is not the end where tuples are shed": max(curve) > NOISE * curve[-1],
                "nor the other end": max(curve) > NOISE * curve[0],
            },
            why=f"Whoever chooses, a read answers {_per_access(run, ['chybridjoin'])} tuples; where popular rows stand together, as the paper expects in reality, it is "
            f"{_per_access(run, ['chybridjoin' + TOGETHER])}, and the best position {best_at(run.xs, together):g} %, {_above(together)}.",
            details=f"Popular rows are anywhere in the master, and the front stage answers {percent(run.at('chybridjoin', best).front_share)} of those served.",
        )
    }


def _found(most: float) -> str:
    """Whether the paper's gain was."""
    gain = percent(PAPER_TUNED - 1)
    return (
        f"The paper's {gain} more was found:"
        if most >= PAPER_TUNED
        else f"The paper's {gain} more was not found at any overload:"
    )


def _above(curve: list[float]) -> str:
    """How far the best is above both ends."""
    return f"{percent(max(curve) / curve[-1] - 1)} above its old end and {percent(max(curve) / curve[0] - 1)} above its young one"


def _per_access(run: Run, lines: Iterable[str]) -> str:
    """How many tuples a read answers, from the lowest to the highest."""
    found = [run.at(line, x).per_access for line in lines for x in run.xs]
    return f"{min(found):.2f} to {max(found):.2f}"


def strategy_case(scale: Scale, line: str, x: float) -> Case:
    """So many times more tuples arrive than are served without shedding."""
    strategy, position = STRATEGIES[line.removesuffix(TOGETHER)]
    return shed_case(scale, line, sheds=strategy, position=position, overload=x)


def judge_strategy(run: Run) -> Mapping[str, Verdict]:
    """C10: tuned over untuned over upfront."""
    tuned, untuned, upfront = (run.curve(line) for line in STRATEGIES)
    over_untuned, over_upfront = ratios(tuned, untuned), ratios(tuned, upfront)
    together = ratios(run.curve("tuned" + TOGETHER), run.curve("untuned" + TOGETHER))
    return {
        "C10": decide(
            f"tuned serves {times(over_untuned, digits=2)} the untuned rate ({max(over_untuned) / PAPER_TUNED:.1f} of the paper's) and "
            f"{times(over_upfront)} that of shedding upfront ({max(over_upfront) / PAPER_UPFRONT:.1f} of the paper's)",
            holds={
                "tuned beats untuned": ahead(tuned, untuned, by=NOISE),
                "tuned beats shedding upfront": ahead(tuned, upfront, by=NOISE),
            },
            why=f"{_found(max(over_untuned))} a read answers {_per_access(run, ['tuned'])} tuples tuned and {_per_access(run, ['untuned'])} untuned; where popular rows stand "
            f"together, tuned serves {times(together, digits=2)} the untuned rate.",
            details=f"Tuned and untuned, the front stage answers {percent(run.at('tuned', run.xs[-1]).front_share)} and {percent(run.at('untuned', run.xs[-1]).front_share)} "
            f"of those served; where tuples are shed before it {percent(run.at('upfront', run.xs[-1]).front_share)}. Overloads were "
            f"{', '.join(f'{x:g}x' for x in run.xs)}; the paper does not give its own.",
        )
    }


STUDIES = (
    Study(
        name="c9_position",
        figure="CACHING, figure 7",
        title="CHYBRIDJOIN under shedding over the position of the tuple that chooses",
        claims=("C9",),
        x=Axis("position in the queue, % from its young end"),
        lines=("chybridjoin", "chybridjoin" + TOGETHER),
        xs=(0.0, 5.0, 15.0, 30.0, 60.0, 100.0),
        case=position_case,
        judge=judge_position,
        small_xs=(0.0, 15.0, 100.0),
    ),
    Study(
        name="c10_strategies",
        figure="CACHING, figure 8",
        title="CHYBRIDJOIN under shedding over the overload, by strategy",
        claims=("C10",),
        x=Axis("arriving tuples, as a multiple of the rate served without shedding"),
        lines=(*STRATEGIES, "tuned" + TOGETHER, "untuned" + TOGETHER),
        xs=(2.0, 3.0, 6.0),
        case=strategy_case,
        judge=judge_strategy,
        small_xs=(3.0,),
    ),
)
