"""DEFAULTS figures 5 to 10 and MESH figure 5: MESHJOIN's rate over the disk buffer, one line a budget."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from semistream.experiments.case import Case, Measured
from semistream.experiments.scale import Scale
from semistream.experiments.setups import MB, mesh, scan_buffer
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import (
    CLOSE,
    Verdict,
    best_at,
    decide,
    deviation,
    has_interior_best,
    has_one_peak,
    levels_off,
    percent,
    rises,
)
from semistream.master.disk.profiles import HDD_2007

BUDGETS = (20, 40, 80, 160, 320)  # MB
PAPER_BEST = {20: 0.93, 40: 1.35, 80: 1.91, 160: 2.63}
PAPER_LOSS = {40: 0.004, 80: 0.0117, 160: 0.0178}
PAPER_MOST = 0.03  # lost, up to 320 MB
LONGER_CALL_S = 1e-3  # of a control: ten times what a call of this disk's driver costs
KNEE_UP_TO = 1.0  # MB: where the paper's curve for 80 MB levels off


def line_of(budget: float) -> str:
    """The name of a budget's line."""
    return f"{budget:g} MB"


def case(scale: Scale, line: str, x: float) -> Case:
    """MESHJOIN within a budget, with a disk buffer of x MB."""
    return scan_buffer(mesh(scale, "meshjoin", memory_bytes=float(line.split()[0]) * MB), x * MB)


def judge_rate(run: Run) -> Mapping[str, Verdict]:
    """D1 to D3, and both objectives of M7."""
    budgets = [budget for budget in BUDGETS if line_of(budget) in {line for line, _ in run.points}]
    curves = {budget: run.curve(line_of(budget)) for budget in budgets}
    best = {budget: best_at(run.xs, curve) for budget, curve in curves.items()}
    default = list(run.xs).index(best[budgets[0]])
    loss = {budget: 1 - curve[default] / max(curve) for budget, curve in curves.items()}
    shown = curves[80 if 80 in curves else budgets[-1]]
    early = [rate for x, rate in zip(run.xs, shown, strict=True) if x <= 2 * KNEE_UP_TO]
    found = "; ".join(
        f"{b} MB: {best[b]:g} MB"
        + (f" ({best[b] / PAPER_BEST[b]:.1f} of the paper's)" if b in PAPER_BEST else "")
        for b in budgets
    )
    needed = least_memory(run.xs, curves)
    smaller = float(np.mean([best[b] / PAPER_BEST[b] for b in budgets if b in PAPER_BEST]))
    return {
        "D1": decide(
            f"{percent(1 - early[0] / max(early))} gained up to {2 * KNEE_UP_TO:g} MB, mostly at its beginning",
            holds={"the rate rises to a knee and levels off": levels_off(early)},
            why=f"At {run.xs[-1]:g} MB, far past the knee, it is {percent(1 - shown[-1] / max(shown))} below its best: the buffer's memory is taken from the window.",
        ),
        "D2": decide(
            found,
            holds={"the best buffer grows with the budget": rises([best[b] for b in budgets])},
            why=f"A call costs {1e3 * HDD_2007.call_s:g} ms before its first byte here; priced with {1e3 * LONGER_CALL_S:g} ms, the same run has its best sizes at "
            + ", ".join(
                f"{best_at(run.xs, _with_longer_calls(run, line_of(b))):g} MB for {b}" for b in budgets
            )
            + ".",
            details="By DEFAULTS' formula the best size goes with the square root of that cost and of the budget; the paper's sizes would be best at "
            f"{1e3 * HDD_2007.call_s / smaller**2:.1f} ms a call.",
        ),
        "D3": decide(
            "; ".join(
                f"{percent(loss[b])} at {b} MB"
                + (f" ({loss[b] / PAPER_LOSS[b]:.1f} of the paper's)" if b in PAPER_LOSS else "")
                for b in budgets[1:]
            ),
            holds={"the default loses less than 3 %": all(value < PAPER_MOST for value in loss.values())},
            why=f"The default is {best[budgets[0]]:g} MB, the best for {budgets[0]} MB, {best[budgets[0]] / PAPER_BEST[budgets[0]]:.1f} of the paper's; for {budgets[-1]} MB the best is "
            f"{best[budgets[-1]]:g} MB.",
        ),
        "M7": decide(
            f"best rate within {budgets[1]} MB at {best[budgets[1]]:g} MB of buffer; least memory for its rate at "
            f"{best_at(run.xs, [-m for m in needed]):g} MB",
            holds={
                "the best rate is inside the range, one peak": all(
                    has_interior_best(curve, drop=0.001) and has_one_peak(curve) for curve in curves.values()
                ),
                "the least memory is inside the range, one valley": has_interior_best(
                    [1 / m for m in needed], drop=0.001
                )
                and has_one_peak([1 / m for m in needed]),
            },
        ),
    }


def _with_longer_calls(run: Run, line: str) -> list[float]:
    """The rates on a disk whose calls cost LONGER_CALL_S: no count depends on it, so the counts are priced again."""
    points = [run.at(line, x) for x in run.xs]
    longer = LONGER_CALL_S - HDD_2007.call_s
    return [point.answered / (point.seconds + point.calls * point.scale * longer) for point in points]


def least_memory(xs: tuple[float, ...], curves: Mapping[int, list[float]]) -> list[float]:
    """For each disk buffer the budget at which MESHJOIN reaches one rate, between the budgets that were run."""
    budgets = list(curves)
    wanted = 0.9 * max(curves[budgets[1]])
    return [
        float(np.interp(wanted, [curves[b][i] for b in budgets], [float(b) for b in budgets]))
        for i in range(len(xs))
    ]


def io_ms_per_mb(measured: Measured) -> float:
    """What reading costs, amortised over all that a call brings."""
    return 1e3 * measured.disk_seconds / (measured.bytes / MB)


def judge_io(run: Run) -> Mapping[str, Verdict]:
    """D4: it falls, then is flat."""
    curve = run.curve(line_of(80))
    gained = [curve[0] - value for value in curve]
    return {
        "D4": decide(
            f"from {curve[0]:.1f} to {curve[-1]:.1f} ms/MB; half-way {percent(curve[len(curve) // 2] / curve[-1] - 1)} above the last",
            holds={
                "it falls": all(b <= a for a, b in itertools.pairwise(curve)),
                "then is flat": levels_off(gained),
            },
        )
    }


def judge_model(run: Run) -> Mapping[str, Verdict]:
    """D5: the model agrees over the buffer (80 MB) and over the budget (each at its best)."""
    lines = [line_of(b) for b in BUDGETS if (line_of(b), run.xs[0]) in run.points]
    models = {line: run.model(line) for line in lines}
    if not all(models.values()):
        return {"D5": Verdict("not run", "", "There is no model to compare with.")}
    shown = line_of(80) if line_of(80) in models else lines[-1]
    over_buffer = deviation(models[shown], run.curve(shown))
    tops = [run.curve(line).index(max(run.curve(line))) for line in lines]
    over_budget = deviation(
        [models[line][top] for line, top in zip(lines, tops, strict=True)],
        [max(run.curve(line)) for line in lines],
    )
    return {
        "D5": decide(
            f"{percent(over_buffer)} apart over the buffer, {percent(over_budget)} over the budget",
            holds={
                "they agree over the buffer": over_buffer <= CLOSE,
                "and over the budget": over_budget <= CLOSE,
            },
        )
    }


_XS = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 2.6, 10.0)
_SMALL = (0.2, 0.6, 1.2, 2.6, 10.0)
_LINES = tuple(line_of(budget) for budget in BUDGETS)
_BUFFER = Axis("disk buffer, MB", log=True)

STUDIES = (
    Study(
        name="d1_disk_buffer",
        figure="DEFAULTS, figures 5, 6, 7 and 9; MESH, figure 5",
        title="MESHJOIN over the disk buffer, one line a budget",
        claims=("D1", "D2", "D3", "M7"),
        shows_model=True,
        x=_BUFFER,
        lines=_LINES,
        xs=_XS,
        case=case,
        judge=judge_rate,
        small_xs=_SMALL,
        small_lines=_LINES[:3],
    ),
    Study(
        name="d4_io_cost",
        figure="DEFAULTS, figure 8",
        title="What reading costs over the disk buffer",
        claims=("D4",),
        x=Axis("disk buffer, MB"),
        y=Axis("reading, ms per MB", from_zero=False),
        lines=(line_of(80),),
        xs=_XS,
        case=case,
        judge=judge_io,
        value=io_ms_per_mb,
        shows_model=True,
        small_xs=_SMALL,
    ),
    Study(
        name="d5_model",
        figure="DEFAULTS, figure 10",
        title="Predicted and measured rate of MESHJOIN over the disk buffer and the budget",
        claims=("D5",),
        x=_BUFFER,
        lines=_LINES,
        xs=_XS,
        case=case,
        judge=judge_model,
        shows_model=True,
        small_xs=_SMALL,
        small_lines=_LINES[:3],
    ),
)
