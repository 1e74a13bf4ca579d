"""CACHING figures 5(e) and 5(f): TPC-H and cloud reports over memory."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.setups import CACHING_CLOUD_ROWS, cloud_reports, tpch_orders
from semistream.experiments.studies.c1_memory import LINES, gains
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import Verdict, decide, percent, times


def judge_tpch(run: Run) -> Mapping[str, Verdict]:
    """C5: a gain at 1 % of memory."""
    found, first = gains(run), run.xs[0]
    share = {line: run.at(line, first).front_share for line in found}
    return {
        "C5": decide(
            "; ".join(f"{line} {values[0]:.2f}x at {first:g} %" for line, values in found.items()),
            holds={f"{line} gains": values[0] > 1.2 for line, values in found.items()},
            why="Orders of TPC-H ask for all customers alike: dbgen draws them evenly. "
            + "; ".join(
                f"{line}'s front stage answers {percent(value)} of them" for line, value in share.items()
            )
            + f" within {first:g} % of memory, and no cache of that size can answer more than the share of the rows it holds.",
        )
    }


def judge_cloud(run: Run) -> Mapping[str, Verdict]:
    """C6: a gain at every budget."""
    found = gains(run)
    last = run.at("cmeshjoin", run.xs[-1])
    return {
        "C6": decide(
            "; ".join(f"{line} {times(values)}" for line, values in found.items()),
            holds={f"{line} is ahead at every budget": min(values) > 1 for line, values in found.items()},
            why=f"The reports are a model of the archive's, and a tuple meets {last.rows / last.answered:.0f} rows; a key enters the front "
            f"stage with all of them, which answers {percent(last.front_share)} at {run.xs[-1]:g} %.",
        )
    }


STUDIES = (
    Study(
        name="c5_tpch",
        figure="CACHING, figure 5(e)",
        title="TPC-H: Orders into Customer over memory",
        claims=("C5",),
        x=Axis("memory, % of the master"),
        lines=LINES,
        xs=(1.0, 10.0),
        case=lambda scale, line, x: tpch_orders(scale, line, memory_share=x / 100),
        judge=judge_tpch,
        small_xs=(5.0, 10.0),
    ),
    Study(
        name="c6_cloud",
        figure="CACHING, figure 5(f)",
        title="Cloud reports of 128 bytes over memory",
        claims=("C6",),
        x=Axis("memory, % of the master"),
        lines=LINES,
        xs=(1.0, 4.0, 10.0),
        case=lambda scale, line, x: cloud_reports(
            scale, line, rows=CACHING_CLOUD_ROWS, row_bytes=128, memory_share=x / 100
        ),
        judge=judge_cloud,
        small_xs=(5.0, 10.0),
    ),
)
