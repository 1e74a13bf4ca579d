"""MESH figure 6(c) and the text after it: the skew of the master's keys, and that of the stream's."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.case import Measured
from semistream.experiments.setups import MB, mesh
from semistream.experiments.study import LOG_RATE, Axis, Run, Study
from semistream.experiments.verdicts import (
    NOISE,
    Verdict,
    ahead,
    decide,
    falls,
    per_second,
    percent,
    ratios,
    spread,
    times,
)

PAPER_MINIMUM = 9000.0
SLOWER = 0.98  # of the rate at the lowest skew, and less: a rate that hardly changes does not slow down


def judge_master(run: Run) -> Mapping[str, Verdict]:
    """M4: both fall, MESHJOIN stays ahead."""
    fast, slow = run.curve("meshjoin"), run.curve("inlj")
    last = run.at("meshjoin", run.xs[-1])
    return {
        "M4": decide(
            f"MESHJOIN from {per_second(fast[0])} to {per_second(fast[-1])} ({fast[-1] / PAPER_MINIMUM:.1f} of the paper's minimum), "
            f"index loop from {per_second(slow[0])} to {per_second(slow[-1])}; lead {times(ratios(fast, slow))}",
            holds={
                "MESHJOIN slows down": falls(fast, slack=0.02) and fast[-1] < SLOWER * fast[0],
                "so does the index loop": falls(slow, slack=0.02) and slow[-1] < SLOWER * slow[0],
                "MESHJOIN stays ahead": ahead(fast, slow, by=NOISE),
            },
            why=f"At the highest skew a tuple meets {last.rows / last.answered:.0f} rows, which must be put out; reading is then "
            f"{percent(_reading(last))} of MESHJOIN's time and {percent(_reading(run.at('inlj', run.xs[-1])))} of the index loop's, a page a tuple.",
            details="How many rows a tuple meets depends on the size of the master.",
        )
    }


def _reading(point: Measured) -> float:
    return point.disk_seconds / point.seconds


def judge_stream(run: Run) -> Mapping[str, Verdict]:
    """M5: both curves are flat."""
    change = {line: spread(run.curve(line)) for line in ("meshjoin", "inlj")}
    return {
        "M5": decide(
            "; ".join(f"{line} within {percent(value)}" for line, value in change.items()),
            holds={f"{line} changes by less than a tenth": value < 0.1 for line, value in change.items()},
        )
    }


STUDIES = (
    Study(
        name="m4_master_skew",
        figure="MESH, figure 6(c)",
        title="Rate over the skew of the master's keys, within 20 MB",
        claims=("M4",),
        x=Axis("Zipf exponent of the master's keys"),
        y=LOG_RATE,
        lines=("meshjoin", "inlj"),
        xs=(0.1, 0.4, 0.7, 1.0),
        case=lambda scale, line, x: mesh(scale, line, memory_bytes=20 * MB, z_master=x),
        judge=judge_master,
        small_xs=(0.1, 0.7, 1.0),
    ),
    Study(
        name="m5_stream_skew",
        figure="MESH, section 4.2",
        title="Rate over the skew of the stream's keys, within 20 MB",
        claims=("M5",),
        x=Axis("Zipf exponent of the stream's keys"),
        y=LOG_RATE,
        lines=("meshjoin", "inlj"),
        xs=(0.0, 0.5, 1.0),
        case=lambda scale, line, x: mesh(scale, line, memory_bytes=20 * MB, z_stream=x),
        judge=judge_stream,
        small_xs=(0.0, 1.0),
    ),
)
