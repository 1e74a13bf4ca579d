"""A heat map of winners: a colour and a name for the fastest algorithm, a number for how far auto is behind it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from semistream.experiments.grid import Contest
from semistream.experiments.plots import pyplot_for_pages, without_prologue
from semistream.experiments.studies.grid_winners import MEMORY_SHARES, MISSES, SKEWS, UPDATES

# Okabe and Ito's colours, which people who cannot tell red from green can tell apart; the names are in the cells as well.
COLOURS = {
    "inlj": "#bbbbbb",
    "cinlj": "#cc79a7",
    "meshjoin": "#0072b2",
    "r-meshjoin": "#56b4e9",
    "cmeshjoin": "#009e73",
    "hybridjoin": "#f0e442",
    "chybridjoin": "#e69f00",
}
_WHITE_ON = ("meshjoin", "cmeshjoin")
_AHEAD = 1.02


def draw_winners(disk: str, contests: Sequence[Contest]) -> str:
    """The map as SVG: misses and updates down, memory and skew across."""
    pyplot = pyplot_for_pages()
    columns = [(memory, skew) for memory in MEMORY_SHARES for skew in SKEWS]
    rows = [(updates, misses) for updates in UPDATES for misses in MISSES]
    figure, axes = pyplot.subplots(
        figsize=(max(6.4, 1.4 + 0.85 * len(columns)), 1.3 + 0.7 * len(rows)), layout="constrained"
    )
    for contest in contests:
        cell = contest.cell
        x, y = columns.index((cell.memory_share, cell.skew)), rows.index((cell.updates, cell.misses))
        _draw_cell(axes, x, y, contest)
    _finish(axes, disk, columns, rows)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return without_prologue(text.getvalue())


def _draw_cell(axes: Any, x: int, y: int, contest: Contest) -> None:
    name = contest.winner
    axes.add_patch(_square(x, y, COLOURS[name]))
    ink = "white" if name in _WHITE_ON else "black"
    axes.text(x + 0.5, y + 0.30, name, ha="center", va="center", fontsize=8.5, color=ink)
    axes.text(x + 0.5, y + 0.54, f"{contest.lead:.2f}", ha="center", va="center", fontsize=11, color=ink)
    if contest.by_popularity > _AHEAD:
        text = f"▲ {contest.by_popularity:.1f}"
        axes.text(x + 0.5, y + 0.80, text, ha="center", va="center", fontsize=8.5, color=ink)


def _square(x: int, y: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5)


def _finish(
    axes: Any, disk: str, columns: list[tuple[float, float]], rows: list[tuple[float, float]]
) -> None:
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks(
        [x + 0.5 for x in range(len(columns))],
        [f"Zipf {skew:g}\n{100 * memory:g} %" for memory, skew in columns],
    )
    axes.set_yticks(
        [y + 0.5 for y in range(len(rows))],
        [f"{100 * misses:g} % misses\n{'updates' if updates else 'no updates'}" for updates, misses in rows],
    )
    for x in range(len(SKEWS), len(columns), len(SKEWS)):
        axes.axvline(x, color="black", linewidth=1.2)
    axes.axhline(len(MISSES), color="black", linewidth=1.2)
    axes.set_xlabel("skew of the stream, and memory as a part of the master")
    axes.set_title(f"{disk}: the fastest algorithm, and its rate over auto's", fontsize=11)
    axes.tick_params(length=0, labelsize=8.5)
    axes.spines[:].set_visible(False)
