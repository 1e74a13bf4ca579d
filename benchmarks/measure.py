"""How every benchmark measures: cases in turn, medians with their spread, ratios against what the same run measured.

A run leaves three files below benchmarks/results/<name>/: data.csv with every repeat, plot.png, and manifest.json that
says on what they were made.
"""

from __future__ import annotations

import csv
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"
_FAR_APART = 20  # times: a bar of the smallest would not be seen
Case = Callable[[], float]  # runs once and gives its figure: seconds, or a rate


@dataclass(frozen=True)
class Ratio:
    """The figure of `ours` over that of `base`, with the bound it must keep, if there is one."""

    what: str
    ours: str
    base: str
    at_least: float | None = None
    at_most: float | None = None


def alternate(cases: Mapping[str, Case], *, repeats: int) -> dict[str, list[float]]:
    """Run every case once per repeat, one after the other, so that a slow minute of the machine hits them all.

    Every other repeat goes the other way round: who comes first is no better or worse off.
    """
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats):
        for name, case in list(cases.items())[:: -1 if repeat % 2 else 1]:
            figures[name].append(case())
            print(
                f"  repeat {repeat + 1}/{repeats}  {name}: {figures[name][-1]:,.4g}",
                file=sys.stderr,
                flush=True,
            )
    return figures


def report(
    name: str,
    figures: Mapping[str, Sequence[float]],
    ratios: Sequence[Ratio],
    *,
    unit: str,
    seed: int,
    title: str | None = None,
) -> bool:
    """Print the medians and the ratios, write the three files, and say whether every target was met."""
    print(f"\n{name} ({unit}; median of {len(next(iter(figures.values())))}, lowest .. highest)")
    for case, values in figures.items():
        print(f"  {case:<44} {median(values):>12,.4g}   {min(values):,.4g} .. {max(values):,.4g}")
    met = True
    for ratio in ratios:
        each = [a / b for a, b in zip(figures[ratio.ours], figures[ratio.base], strict=True)]
        value = median(figures[ratio.ours]) / median(figures[ratio.base])
        good = (ratio.at_least is None or value >= ratio.at_least) and (
            ratio.at_most is None or value <= ratio.at_most
        )
        print(f"  {ratio.what}: {value:.2f} ({min(each):.2f} .. {max(each):.2f}){_verdict(ratio, good=good)}")
        met &= good
    _write(name, figures, unit=unit, seed=seed, title=title or name)
    return met


def _verdict(ratio: Ratio, *, good: bool) -> str:
    if ratio.at_least is None and ratio.at_most is None:
        return ""
    goal = f"at least {ratio.at_least}" if ratio.at_least is not None else f"at most {ratio.at_most}"
    return f"; must be {goal}: {'reached' if good else 'NOT REACHED'}"


def _write(name: str, figures: Mapping[str, Sequence[float]], *, unit: str, seed: int, title: str) -> None:
    folder = RESULTS / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "data.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["case", "repeat", unit])
        rows.writerows([case, i, value] for case, values in figures.items() for i, value in enumerate(values))
    (folder / "manifest.json").write_text(
        json.dumps(manifest(seed, len(next(iter(figures.values())))), indent=2)
    )
    _plot(folder / "plot.png", title, figures, unit)


def manifest(seed: int, repeats: int) -> dict[str, object]:
    """On what a run was made."""
    root = Path(__file__).resolve().parent.parent
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    dirty = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=False
    )
    cpu = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "commit": commit.stdout.strip() + ("+changes" if dirty.stdout.strip() else ""),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "versions": {name: version(name) for name in ("pyarrow", "numpy", "numba", "pyspark")},
        "python": platform.python_version(),
        "seed": seed,
        "repeats": repeats,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _plot(path: Path, title: str, figures: Mapping[str, Sequence[float]], unit: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.6 * len(figures) + 1.2), layout="constrained")
    middles = [median(values) for values in figures.values()]
    spread = [
        [m - min(values) for m, values in zip(middles, figures.values(), strict=True)],
        [max(values) - m for m, values in zip(middles, figures.values(), strict=True)],
    ]
    axes.barh(list(figures), middles, xerr=spread, color="#4878a8", ecolor="#333333", capsize=3)
    axes.invert_yaxis()
    if max(middles) > _FAR_APART * min(middles):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    for i, values in enumerate(figures.values()):
        axes.annotate(f" {middles[i]:.3g}", (max(values), i), va="center")
    axes.margins(x=0.12)
    axes.set_xlabel(f"{unit}, median with lowest and highest")
    axes.set_title(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
