"""X-HYBRID figures 4, 6 and 7: the best sizes of both parts of the disk buffer, the model's view of them, and what they bring."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Case
from semistream.experiments.scale import Scale
from semistream.experiments.setups import MIB, block, hybrid
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
)

BLOCKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # MB that are read at a time
PINNED = (0.25, 1.0, 3.0, 8.0, 25.0)  # MB
BUDGET = 50 * MIB


def line_of(size: float) -> str:
    """The name of a block's line."""
    return f"reads {size:g} MB"


def case(scale: Scale, line: str, x: float) -> Case:
    """So many MB read at a time, x MB pinned."""
    size = float(line.split()[1])
    plain = hybrid(scale, "x-hybridjoin", memory_bytes=BUDGET)
    return block(plain, size * MIB, front_share=x * MIB / BUDGET)


def grid(run: Run) -> tuple[list[str], list[list[float]]]:
    """The lines that were run, and their curves."""
    lines = list(dict.fromkeys(line for line, _ in run.points))
    return lines, [run.curve(line) for line in lines]


def judge_grid(run: Run) -> Mapping[str, Verdict]:
    """X5: the highest point is inside, both ways."""
    lines, curves = grid(run)
    row = max(range(len(lines)), key=lambda i: max(curves[i]))
    column = curves[row].index(max(curves[row]))
    over_blocks = [curve[column] for curve in curves]
    return {
        "X5": decide(
            f"best with {lines[row].removeprefix('reads ')} read at a time and {run.xs[column]:g} MB pinned",
            holds={
                "the best pinned part is inside the range": has_interior_best(curves[row], drop=0.005),
                "the best swappable part is inside the range": has_interior_best(over_blocks, drop=0.005),
            },
        ),
        **judge_model(run),
    }


def judge_model(run: Run) -> Mapping[str, Verdict]:
    """X7: the model follows both curves through the best point."""
    lines, curves = grid(run)
    models = [run.model(line) for line in lines]
    if not all(models):
        return {"X7": Verdict("not run", "", "There is no model to compare with.")}
    row = max(range(len(lines)), key=lambda i: max(curves[i]))
    column = curves[row].index(max(curves[row]))
    pinned = deviation(models[row], curves[row])
    swappable = deviation([model[column] for model in models], [curve[column] for curve in curves])
    return {
        "X7": decide(
            f"{percent(swappable)} apart over the swappable part, {percent(pinned)} over the pinned one",
            holds={
                "they agree over the swappable part": swappable <= CLOSE,
                "and over the pinned one": pinned <= CLOSE,
            },
            why=f"The point with the fewest reads counts {min(p.advances for p in run.points.values()):,}, of {_each_read(run)} tuples each.",
        )
    }


def _each_read(run: Run) -> str:
    """Tuples, in the point with the fewest reads."""
    point = min(run.points.values(), key=lambda point: point.advances)
    return f"{(point.answered - point.front_hits) / point.advances:,.0f}"


def tuned_or_not(scale: Scale, line: str, *, rows: float, memory: float) -> Case:
    """X-HYBRIDJOIN with both sizes free, or equal."""
    tuning = "best" if line == "tuned" else "equal parts"
    return hybrid(scale, "x-hybridjoin", memory_bytes=memory, rows=rows, tuning=tuning, models=True)


def untuned_mb(run: Run, x: float) -> float:
    """What each part has where both are equal, at the paper's size."""
    point = run.at("untuned", x)
    return float(point.settings["disk_buffer"]) / point.scale / MIB


def judge_gain(run: Run) -> Mapping[str, Verdict]:
    """X6: tuned is ahead everywhere."""
    tuned, untuned = run.curve("tuned"), run.curve("untuned")
    sizes = [untuned_mb(run, x) for x in run.xs]
    return {
        "X6": decide(
            f"{min(ratios(tuned, untuned)):.2f}x to {max(ratios(tuned, untuned)):.2f}x the untuned rate over the "
            f"{run.study.x.label.split(',')[0]}",
            holds={
                f"tuned is ahead for every {run.study.x.label.split(',')[0]}": ahead(tuned, untuned, by=NOISE)
            },
            why=f"Untuned, each part has HYBRIDJOIN's best disk buffer, {min(sizes):.1f} to {max(sizes):.1f} MB, which is near the best here too. {_expected(run)}",
        )
    }


def _expected(run: Run) -> str:
    """What the model promised, and how far that can be told."""
    models = {line: run.model(line) for line in ("tuned", "untuned")}
    if not all(models.values()):
        return ""
    promised = [ratio - 1 for ratio in ratios(models["tuned"], models["untuned"])]
    off = max(abs(r - 1) for line in models for r in ratios(models[line], run.curve(line)))
    return (
        f"By the model tuning brings {percent(min(promised))} to {percent(max(promised))}; the model is off by up to "
        f"{percent(off)}."
    )


STUDIES = (
    Study(
        name="x5_tuning",
        figure="X-HYBRID, figures 4 and 6",
        title="X-HYBRIDJOIN over both parts of its disk buffer, within 50 MB",
        claims=("X5", "X7"),
        x=Axis("pinned part, MB", log=True),
        lines=tuple(line_of(size) for size in BLOCKS),
        xs=PINNED,
        case=case,
        judge=judge_grid,
        shows_model=True,
        small_xs=(1.0, 3.0, 25.0),
        small_lines=tuple(line_of(size) for size in (0.5, 2.0, 8.0)),
    ),
    Study(
        name="x6_tuned_over_master",
        figure="X-HYBRID, figure 7(a)",
        title="X-HYBRIDJOIN tuned and untuned over the size of the master, within 50 MB",
        claims=("X6",),
        x=Axis("master, million rows", log=True),
        lines=("tuned", "untuned"),
        xs=(0.5, 2.0, 8.0),
        case=lambda scale, line, x: tuned_or_not(scale, line, rows=x * 1e6, memory=BUDGET),
        judge=judge_gain,
        small_xs=(0.5, 4.0),
    ),
    Study(
        name="x6_tuned_over_memory",
        figure="X-HYBRID, figure 7(b)",
        title="X-HYBRIDJOIN tuned and untuned over memory, master of 2 million rows",
        claims=("X6",),
        x=Axis("memory, MB"),
        lines=("tuned", "untuned"),
        xs=(50.0, 150.0, 250.0),
        case=lambda scale, line, x: tuned_or_not(scale, line, rows=2e6, memory=x * MIB),
        judge=judge_gain,
        small_xs=(50.0, 250.0),
    ),
)
