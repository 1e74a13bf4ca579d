"""MESH figure 6(d): cloud reports, many rows a key on both sides."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.setups import MESH_CLOUD_ROWS, cloud_reports
from semistream.experiments.study import LOG_RATE, Axis, Run, Study
from semistream.experiments.verdicts import Verdict, ahead, decide, ratios, times


def judge(run: Run) -> Mapping[str, Verdict]:
    """M6: MESHJOIN is well ahead everywhere."""
    fast, slow = run.curve("meshjoin"), run.curve("inlj")
    last = run.at("meshjoin", run.xs[-1])
    return {
        "M6": decide(
            f"{times(ratios(fast, slow))} the index loop's",
            holds={"MESHJOIN is well ahead (twice or more) at every budget": ahead(fast, slow, by=2)},
            why=f"The reports are a model of the archive's; a tuple meets {last.rows / last.answered:.0f} rows here, and more the "
            "larger the master is.",
        )
    }


STUDIES = (
    Study(
        name="m6_cloud",
        figure="MESH, figure 6(d)",
        title="Cloud reports of 32 bytes over memory",
        claims=("M6",),
        x=Axis("memory, % of the master"),
        y=LOG_RATE,
        lines=("meshjoin", "inlj"),
        xs=(1.0, 4.0, 10.0),
        case=lambda scale, line, x: cloud_reports(
            scale, line, rows=MESH_CLOUD_ROWS, row_bytes=32, memory_share=x / 100
        ),
        judge=judge,
        small_xs=(5.0, 10.0),
    ),
)
