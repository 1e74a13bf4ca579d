"""CACHING figures 7 and 8: who chooses what is read while tuples are shed, and which tuples those are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import caching
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import Verdict, ahead, best_at, decide, percent, ratios, times

PAPER_POSITION = 15.0  # % of the queue, from its young end
PAPER_TUNED, PAPER_UPFRONT = 1.33, 3.1
OVERLOAD = 3.0  # times what the join serves without shedding; the paper does not say
STRATEGIES = {
    "tuned": ("considering", PAPER_POSITION / 100),
    "untuned": ("considering", 1.0),
    "upfront": ("upfront", 1.0),
}


def position_case(scale: Scale, line: str, x: float) -> Case:
    """The tuple at x % of the queue chooses, counted from the newest."""
    return caching(scale, line, memory_share=0.02, sheds="considering", position=x / 100, overload=OVERLOAD)


def judge_position(run: Run) -> Mapping[str, Verdict]:
    """C9: better inside than at the end where tuples are shed."""
    curve = run.curve("chybridjoin")
    best = best_at(run.xs, curve)
    return {
        "C9": decide(
            f"best at {best:g} % of the queue, {percent(max(curve) / curve[-1] - 1)} above its old end and "
            f"{percent(max(curve) / curve[0] - 1)} above its young one",
            holds={
                "the best position is not the end where tuples are shed": max(curve) > 1.01 * curve[-1],
                "nor the other end": best > run.xs[0],
            },
            why=f"Whoever chooses, the page answers about as many: {_per_access(run, run.study.lines)} tuples an access; and "
            f"{percent(run.at('chybridjoin', best).front_share)} of those served are answered by the front stage without any.",
        )
    }


def _per_access(run: Run, lines: Iterable[str]) -> str:
    """How many tuples a page answers, from the lowest to the highest."""
    points = [run.at(line, x) for line in lines for x in run.xs]
    found = [(point.answered - point.front_hits) / point.advances for point in points]
    return f"{min(found):.2f} to {max(found):.2f}"


def strategy_case(scale: Scale, line: str, x: float) -> Case:
    """So many times more tuples arrive than are served without shedding."""
    strategy, position = STRATEGIES[line]
    return caching(scale, "chybridjoin", memory_share=0.02, sheds=strategy, position=position, overload=x)


def judge_strategy(run: Run) -> Mapping[str, Verdict]:
    """C10: tuned over untuned over upfront."""
    tuned, untuned, upfront = (run.curve(line) for line in STRATEGIES)
    over_untuned, over_upfront = ratios(tuned, untuned), ratios(tuned, upfront)
    return {
        "C10": decide(
            f"tuned serves {times(over_untuned)} the untuned rate ({max(over_untuned) / PAPER_TUNED:.1f} of the paper's) and "
            f"{times(over_upfront)} that of shedding upfront ({max(over_upfront) / PAPER_UPFRONT:.1f} of the paper's)",
            holds={
                "tuned beats untuned": ahead(tuned, untuned, by=1.01),
                "tuned beats shedding upfront": ahead(tuned, upfront, by=1.01),
            },
            why=f"Tuned and untuned, a page answers {_per_access(run, ('tuned', 'untuned'))} tuples, and the front stage "
            f"{percent(run.at('tuned', run.xs[-1]).front_share)} and {percent(run.at('untuned', run.xs[-1]).front_share)} of those served; where tuples "
            f"are shed before it {percent(run.at('upfront', run.xs[-1]).front_share)}. Overloads were {', '.join(f'{x:g}x' for x in run.xs)}; "
            "the paper does not give its own.",
        )
    }


STUDIES = (
    Study(
        name="c9_position",
        figure="CACHING, figure 7",
        title="CHYBRIDJOIN under shedding over the position of the tuple that chooses",
        claims=("C9",),
        x=Axis("position in the queue, % from its young end"),
        lines=("chybridjoin",),
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
        lines=tuple(STRATEGIES),
        xs=(3.0,),
        case=strategy_case,
        judge=judge_strategy,
    ),
)
