"""MESH figure 6(a): measured and predicted rate of MESHJOIN over the disk buffer's size, within 21 MB."""

from __future__ import annotations

from collections.abc import Mapping

from semistream.experiments.setups import MB, mesh, scan_buffer
from semistream.experiments.study import Axis, Run, Study
from semistream.experiments.verdicts import CLOSE, Verdict, best_at, decide, deviation, percent


def judge(run: Run) -> Mapping[str, Verdict]:
    """M3: the model follows, and large buffers cost rate."""
    measured, model = run.curve("meshjoin"), run.model("meshjoin")
    if not model:
        return {"M3": Verdict("not run", "", "There is no model to compare with.")}
    off, best = deviation(model, measured), best_at(run.xs, measured)
    return {
        "M3": decide(
            f"{percent(off)} apart on average; best at {best:g} MB, {percent(1 - measured[-1] / max(measured))} lower at {run.xs[-1]:g} MB",
            holds={
                "model and run agree": off <= CLOSE,
                "the rate is best for a small buffer": best <= 0.25 * run.xs[-1],
                "and falls for large ones": measured[-1] < 0.8 * max(measured),
            },
        )
    }


STUDIES = (
    Study(
        name="m3_model_over_buffer",
        figure="MESH, figure 6(a)",
        title="Predicted and measured rate of MESHJOIN over the disk buffer, within 21 MB",
        claims=("M3",),
        x=Axis("disk buffer, MB"),
        lines=("meshjoin",),
        xs=(0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0),
        case=lambda scale, line, x: scan_buffer(mesh(scale, line, memory_bytes=21 * MB), x * MB),
        judge=judge,
        shows_model=True,
        small_xs=(0.25, 1.0, 4.0, 12.0),
    ),
)
