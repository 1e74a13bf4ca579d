"""A run's numbers as CSV: the same run gives the same bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from semistream.experiments.case import Measured
from semistream.experiments.runner import Reproduction
from semistream.experiments.study import Run

_LEFT_OUT = ("used", "settings", "timeline")
COUNTS = tuple(each.name for each in fields(Measured) if each.name not in _LEFT_OUT)


def write_tables(reproduction: Reproduction, out: Path) -> None:
    """One CSV a study and clock, in `csv/`."""
    folder = out / "csv"
    folder.mkdir(parents=True, exist_ok=True)
    for result in reproduction.results:
        for run, name in (
            (result.run, table_name(result.study.name)),
            (result.machine, table_name(result.study.name, on_machine=True)),
        ):
            if run is not None:
                (folder / name).write_text(table_of(run), newline="")


def table_name(study: str, *, on_machine: bool = False) -> str:
    """The name of a study's CSV."""
    return f"{study}.this-machine.csv" if on_machine else f"{study}.csv"


def table_of(run: Run) -> str:
    """A row a point: what is plotted, then everything that was counted, the settings and the bytes of each structure."""
    settings = _names(run, "settings")
    used = _names(run, "used")
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    head = ["line", run.study.x.label, run.study.y.label, *COUNTS]
    rows.writerow([*head, *settings, *(f"{name}, bytes" for name in used), "timeline"])
    for (line, x), point in run.points.items():
        counted = [getattr(point, name) for name in COUNTS]
        chosen = [point.settings.get(name) for name in settings]
        taken = [point.used.get(name, 0) for name in used]
        pieces = " ".join(f"{tuples}/{_text(seconds)}" for tuples, seconds in point.timeline)
        cells: list[object] = [line, x, run.study.value(point), *counted, *chosen, *taken, pieces]
        rows.writerow([_text(cell) for cell in cells])
    return text.getvalue()


def _names(run: Run, what: str) -> Sequence[str]:
    return sorted({name for point in run.points.values() for name in getattr(point, what)})


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.9g}" if isinstance(cell, float) else str(cell)
