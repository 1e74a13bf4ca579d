"""OPT-X figures 4 to 7: Optimised X-HYBRIDJOIN against the others, its tuning, and its model."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import MIB, block, hybrid
from semistream.experiments.studies.x5_tuning import grid, line_of
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import (
    CLOSE,
    NOISE,
    Verdict,
    ahead,
    decide,
    deviation,
    has_interior_best,
    percent,
    ratios,
    times,
)

BEST, NEXT = "optimised-x-hybridjoin", "x-hybridjoin"
LINES = (BEST, NEXT, "hybridjoin", "r-meshjoin", "meshjoin")
BLOCKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
HOT = (1.0, 4.0, 12.0, 35.0, 70.0)  # % of the memory
BUDGET = 50 * MIB


def judge_order(run: Run) -> Mapping[str, Verdict]:
    """O1: first, second, the rest, everywhere."""
    curves = {line: run.curve(line) for line in LINES}
    over = run.study.x.label.split(",")[0]
    return {
        "O1": decide(
            f"{times(ratios(curves[BEST], curves[NEXT]))} X-HYBRIDJOIN's rate over the {over}",
            holds={
                f"ahead of X-HYBRIDJOIN for every {over}": ahead(curves[BEST], curves[NEXT], by=NOISE),
                f"which is ahead of the others for every {over}": all(
                    ahead(curves[NEXT], curves[line], by=NOISE) for line in LINES[2:]
                ),
            },
        )
    }


def tuning_case(scale: Scale, line: str, x: float) -> Case:
    """So many MB read at a time, x % of the memory for hot rows."""
    plain = hybrid(scale, BEST, memory_bytes=BUDGET)
    return block(plain, float(line.split()[1]) * MIB, front_share=x / 100)


def judge_tuning(run: Run) -> Mapping[str, Verdict]:
    """O2: the highest point is inside, both ways, and the model follows both curves through it."""
    lines, curves = grid(run)
    row = max(range(len(lines)), key=lambda i: max(curves[i]))
    column = curves[row].index(max(curves[row]))
    models = [run.model(line) for line in lines]
    holds = {
        "the best share of hot rows is inside the range": has_interior_best(curves[row], drop=0.005),
        "the best disk buffer is inside the range": has_interior_best(
            [curve[column] for curve in curves], drop=0.005
        ),
    }
    ours = (
        f"best with {lines[row].removeprefix('reads ')} read at a time and {run.xs[column]:g} % of hot rows"
    )
    if all(models):
        hot = deviation(models[row], curves[row])
        buffer = deviation([model[column] for model in models], [curve[column] for curve in curves])
        holds["the model agrees"] = max(hot, buffer) <= CLOSE
        ours += f"; model {percent(buffer)} apart over the buffer, {percent(hot)} over the hot rows"
    best = run.at(lines[row], run.xs[column])
    why = f"At the best point a read answers {(best.answered - best.front_hits) / best.advances:,.0f} tuples, and hot rows answer {percent(best.front_share)} of the stream."
    return {"O2": decide(ours, holds=holds, why=why)}


def judge_cost(run: Run) -> Mapping[str, Verdict]:
    """O3: the model agrees over memory."""
    model, measured = run.model(BEST), run.curve(BEST)
    if not model:
        return {"O3": Verdict("not run", "", "There is no model to compare with.")}
    off = deviation(model, measured)
    return {"O3": decide(f"{percent(off)} apart on average", holds={"they agree": off <= CLOSE})}


_XS = (50.0, 150.0, 250.0)

STUDIES = (
    Study(
        name="o1_over_master",
        figure="OPT-X, figure 6(a)",
        title="Five joins over the size of the master, within 50 MB",
        claims=("O1",),
        x=Axis("master, million rows", log=True),
        lines=LINES,
        xs=(0.5, 2.0, 8.0),
        case=lambda scale, line, x: hybrid(scale, line, memory_bytes=BUDGET, rows=x * 1e6),
        judge=judge_order,
        small_xs=(0.5, 4.0),
    ),
    Study(
        name="o1_over_memory",
        figure="OPT-X, figure 6(b)",
        title="Five joins over memory, master of 2 million rows",
        claims=("O1",),
        x=Axis("memory, MB"),
        lines=LINES,
        xs=_XS,
        case=lambda scale, line, x: hybrid(scale, line, memory_bytes=x * MIB),
        judge=judge_order,
        small_xs=(50.0, 250.0),
    ),
    Study(
        name="o2_tuning",
        figure="OPT-X, figures 4 and 5",
        title="Optimised X-HYBRIDJOIN over its disk buffer and its hot rows, within 50 MB",
        claims=("O2",),
        x=Axis("hot rows, % of the memory", log=True),
        lines=tuple(line_of(size) for size in BLOCKS),
        xs=HOT,
        case=tuning_case,
        judge=judge_tuning,
        shows_model=True,
        small_xs=(1.0, 12.0, 70.0),
        small_lines=tuple(line_of(size) for size in (0.5, 2.0, 8.0)),
    ),
    Study(
        name="o3_model",
        figure="OPT-X, figure 7",
        title="Predicted and measured rate of Optimised X-HYBRIDJOIN over memory",
        claims=("O3",),
        x=Axis("memory, MB"),
        lines=(BEST,),
        xs=_XS,
        case=lambda scale, line, x: hybrid(scale, line, memory_bytes=x * MIB),
        judge=judge_cost,
        shows_model=True,
        small_xs=(50.0, 250.0),
    ),
)
