"""CACHING figures 9(a), 9(b) and 9(c): CMESHJOIN's own parameters, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from semistream.experiments.case import Case, Measured
from semistream.experiments.scale import Scale
from semistream.experiments.setups import CACHING_ROWS, ROW_BYTES, caching, scan_buffer
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import (
    NOISE,
    Verdict,
    best_at,
    decide,
    has_interior_best,
    percent,
    rises,
)
from semistream.master.disk.profiles import HDD_2007

PAPER_BEST_SHARE = 15.0
FRONT_SHARE = 0.15  # of the other two studies: the paper's best
MASTER_BYTES = CACHING_ROWS * ROW_BYTES
FINER = 30.0
MOVING = "cmeshjoin, threshold that moves"
PAPERS = "cmeshjoin, newcomers by the paper's rule"


def share_case(scale: Scale, line: str, x: float) -> Case:
    """X % of the memory for the front stage; the disk buffer stays as it is."""
    case = caching(scale, line)
    return scan_buffer(case, 0.02 * case.memory_bytes / case.scale, front_share=x / 100)


def judge_share(run: Run) -> Mapping[str, Verdict]:
    """C11: a best share inside, and 75 % still better than none."""
    curve = run.curve("cmeshjoin")
    best = best_at(run.xs, curve)
    return {
        "C11": decide(
            f"best at {best:g} % ({best / PAPER_BEST_SHARE:.1f} of the paper's); {curve[-1] / curve[0]:.2f}x none at {run.xs[-1]:g} %",
            holds={
                "the best share is inside the range": has_interior_best(curve),
                f"{run.xs[-1]:g} % still beats none": curve[-1] > NOISE * curve[0],
            },
            why=" ".join(_at_share(run, x) for x in (best, run.xs[-1])),
        )
    }


def _at_share(run: Run, x: float) -> str:
    """What a share brings and what it takes."""
    point, none = run.at("cmeshjoin", x), run.at("cmeshjoin", run.xs[0])
    return (
        f"With {x:g} % the front stage answers {percent(point.front_share)}, and the join behind, with {percent(point.window_tuples / none.window_tuples)} "
        f"of the waiting tuples, keeps {point.behind_rate / none.behind_rate:.2f} of its rate."
    )


def threshold_case(scale: Scale, line: str, x: float) -> Case:
    """A key enters if x tuples waited for it, and that stays so; or the threshold moves as it does in the product."""
    case = caching(scale, "cmeshjoin")
    case = scan_buffer(case, 0.02 * case.memory_bytes / case.scale, front_share=FRONT_SHARE)
    if line == MOVING:
        return case
    return replace(case, threshold=int(x), newcomers="own frequency" if line == PAPERS else "as last victim")


def front_rate(measured: Measured) -> float:
    """Through the front stage alone, as in the paper."""
    return measured.front_rate


def judge_threshold(run: Run) -> Mapping[str, Verdict]:
    """C12: from right to left, up and then level."""
    curve = run.curve("cmeshjoin")[::-1]  # from the highest threshold to the lowest
    first, last = curve[0], curve[-1]
    middle = curve[len(curve) // 2]
    papers = front_rate(run.at(PAPERS, run.xs[0])), run.curve(PAPERS)[::-1][len(curve) // 2]
    lowest, highest = run.at("cmeshjoin", run.xs[0]), run.at("cmeshjoin", run.xs[-1])
    best = max((run.at("cmeshjoin", x) for x in run.xs), key=front_rate)
    return {
        "C12": decide(
            f"{first:,.0f} tuples/s at {run.xs[-1]:g}, {middle:,.0f} half-way, {last:,.0f} at {run.xs[0]:g}",
            holds={
                "it rises as the threshold falls": rises(curve[: len(curve) // 2 + 1], slack=0.01)
                and last > first * 0.99,
                "then levels off": _levels(curve),
            },
            why=f"A threshold of {run.xs[-1]:g} makes a row leave at {percent(_leaving(highest))} of the tuples and one of {run.xs[0]:g} at {percent(_leaving(lowest))}; there the share "
            f"answered is {percent(lowest.front_share)} and not {percent(best.front_share)}; with newcomers by the paper's rule the rate is {papers[0]:,.0f} tuples/s at "
            f"{run.xs[0]:g} and {papers[1]:,.0f} half-way.",
            details="A newcomer starts here with the frequency of who left last, in the paper with the number of tuples that waited for it: by that rule the curve "
            f"{'levels off' if _levels(run.curve(PAPERS)[::-1]) else 'does not level off'}. The threshold that moves by itself, as the product's does, gives "
            f"{front_rate(run.at(MOVING, run.xs[0])):,.0f} tuples/s.",
        )
    }


def _levels(curve: list[float]) -> bool:
    """From the highest threshold to the lowest: the second half changes little beside the first, or in itself."""
    first, middle, last = curve[0], curve[len(curve) // 2], curve[-1]
    return abs(last - middle) <= max(0.25 * (middle - first), 0.05 * middle)


def _leaving(point: Measured) -> float:
    """Evictions a tuple."""
    return point.evicted / point.answered


def buffer_case(scale: Scale, line: str, x: float) -> Case:
    """X % of the memory for the disk buffer, within 1 % of the master: a larger one than elsewhere, for finer steps."""
    finer = replace(scale, caching=min(1.0, FINER * scale.caching))
    case = caching(finer, line, memory_share=0.01, warm=1.2)
    if not scale.key_only:
        case = replace(case, master=replace(case.master, page_bytes=4096))
    return scan_buffer(case, x / 100 * 0.01 * MASTER_BYTES, front_share=FRONT_SHARE)


def behind_rate(measured: Measured) -> float:
    """Through the MESHJOIN phase alone, as in the paper."""
    return measured.behind_rate


def judge_buffer(run: Run) -> Mapping[str, Verdict]:
    """C13: a best buffer inside."""
    curve = run.curve("cmeshjoin")
    first = run.at("cmeshjoin", run.xs[0])
    expected = (HDD_2007.call_s * HDD_2007.bytes_per_s / (0.01 * MASTER_BYTES)) ** 0.5 * (
        first.disk_seconds / first.seconds
    ) ** 0.5
    return {
        "C13": decide(
            f"best at {best_at(run.xs, curve):g} % of the memory",
            holds={"the best disk buffer is inside the range": has_interior_best(curve)},
            why=f"DEFAULTS' formula for MESHJOIN's best buffer gives {100 * expected:.1f} % of the memory here; at {run.xs[-1]:g} % the rate is "
            f"{percent(1 - curve[-1] / max(curve))} lower.",
            details=f"The formula is sqrt(M R c / T), of a call's cost c and a scan's time T. The smallest buffer that a page allows at this scale is {run.xs[0]:g} %.",
        )
    }


STUDIES = (
    Study(
        name="c11_front_share",
        figure="CACHING, figure 9(a)",
        title="CMESHJOIN over the front stage's share of the memory, at 10 %",
        claims=("C11",),
        x=Axis("front stage, % of the memory"),
        lines=("cmeshjoin",),
        xs=(0.0, 5.0, 15.0, 25.0, 35.0, 50.0, 75.0),
        case=share_case,
        judge=judge_share,
        small_xs=(0.0, 15.0, 35.0, 75.0),
    ),
    Study(
        name="c12_threshold",
        figure="CACHING, figure 9(b)",
        title="Rate through the front stage over the admission threshold, at 10 % of memory",
        claims=("C12",),
        x=Axis("threshold, tuples waiting for a row"),
        y=Axis("rate through the front stage, tuples/s"),
        lines=("cmeshjoin", PAPERS, MOVING),
        xs=(1.0, 2.0, 4.0, 7.0, 10.0),
        case=threshold_case,
        judge=judge_threshold,
        value=front_rate,
        small_xs=(1.0, 4.0, 10.0),
    ),
    Study(
        name="c13_disk_buffer",
        figure="CACHING, figure 9(c)",
        title="Rate through the MESHJOIN phase over the disk buffer, at 1 % of memory",
        claims=("C13",),
        x=Axis("disk buffer, % of the memory", log=True),
        y=Axis("rate through the MESHJOIN phase, tuples/s"),
        lines=("cmeshjoin",),
        xs=(0.12, 0.35, 1.0, 6.0, 45.0),
        case=buffer_case,
        judge=judge_buffer,
        value=behind_rate,
        small_xs=(0.7, 6.0, 45.0),
    ),
)
