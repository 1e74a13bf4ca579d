"""A study's figure, drawn as its paper's: the same axes, a line an algorithm, the model dashed."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

from semistream.errors import MissingDependencyError
from semistream.experiments.study import Run, rate

_COLOURS = ("#1f5fa8", "#c25a1c", "#3a7d44", "#7a3b8f", "#8a6d1d", "#444444", "#b03060", "#2a9d9d")
_MARKERS = "os^Dv<>P"
_SIZE = (6.4, 3.7)  # inches: two to a printed page


def draw(run: Run) -> str:
    """The figure as SVG, the same text for the same numbers."""
    pyplot = pyplot_for_pages()
    figure, axes = pyplot.subplots(figsize=_SIZE, layout="constrained")
    lines = dict.fromkeys(line for line, _ in run.points)
    timed = any(point.timeline for point in run.points.values())
    if len(run.xs) == 1 and not timed:
        _draw_bars(axes, run, list(lines))
        return _as_text(pyplot, figure)
    for number, line in enumerate(lines):
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        timeline = run.at(line, run.xs[0]).timeline
        if timeline:
            _draw_timeline(axes, run, line, colour)
            continue
        if len(run.xs) == 1:
            axes.axhline(run.curve(line)[0], color=colour, linestyle=":", label=line)
            continue
        axes.plot(run.xs, run.curve(line), color=colour, marker=marker, markersize=4, label=line)
        if _has_model(run, line):
            label = "cost model" if number == 0 else None
            axes.plot(run.xs, run.model(line), color=colour, linestyle="--", linewidth=1, label=label)
    _finish(axes, run)
    figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8)
    return _as_text(pyplot, figure)


def _has_model(run: Run, line: str) -> bool:
    """The models predict rates, which not every figure shows."""
    return run.study.shows_model and run.study.value is rate and bool(run.model(line))


def _draw_bars(axes: Any, run: Run, lines: list[str]) -> None:
    """Where nothing is varied but the algorithm."""
    study, (x,) = run.study, run.xs
    places = range(len(lines))[::-1]
    axes.barh(places, [run.curve(line)[0] for line in lines], color=_COLOURS[0], height=0.6, label="measured")
    if all(_has_model(run, line) for line in lines):
        found = [run.model(line)[0] for line in lines]
        axes.plot(found, places, "D", color=_COLOURS[1], markersize=5, linestyle="", label="cost model")
        axes.legend(frameon=False, fontsize=8)
    axes.set_yticks(places, lines)
    axes.set_xlabel(f"{study.y.label}\n({study.x.label}: {x:g})")
    axes.set_xscale("log" if study.y.log else "linear")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis="x", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)


def _as_text(pyplot: Any, figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return without_prologue(text.getvalue())


def _draw_timeline(axes: Any, run: Run, line: str, colour: str) -> None:
    """The rate piece by piece, over the tuples that have come."""
    point = run.at(line, run.xs[0])
    edges, seen = [0.0], 0
    for tuples, _ in point.timeline:
        seen += tuples
        edges.append(seen / point.scale / 1e6)
    rates = [tuples / seconds for tuples, seconds in point.timeline]
    axes.stairs(rates, edges, baseline=None, color=colour, label=line)


def _finish(axes: Any, run: Run) -> None:
    study = run.study
    axes.set_xlabel(study.x.label)
    axes.set_ylabel(study.y.label)
    if study.x.log:
        axes.set_xscale("log")
        axes.set_xticks(run.xs, [f"{x:g}" for x in run.xs])
        axes.minorticks_off()
    if study.y.log:
        axes.set_yscale("log")
    elif study.y.from_zero:
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", style="plain")
    axes.grid(visible=True, color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def without_prologue(svg: str) -> str:
    """What can stand inside a page: no XML declaration, no document type, no metadata with addresses in it."""
    svg = svg[svg.index("<svg") :]
    return re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)


def pyplot_for_pages() -> Any:
    """Matplotlib, set to draw what can be read in a page and compared byte for byte."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells when it looks for fonts the first time
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "the report's figures", found=f"no {error.name}", hint="pip install 'semistream[reproduce]'"
        ) from error
    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "semistream", "font.size": 9})
    from matplotlib import pyplot

    return pyplot
