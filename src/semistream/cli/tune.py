"""`semistream tune` and `semistream calibrate`."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from semistream.config import format_bytes
from semistream.cost import Calibration, Tuning, calibrate, tune
from semistream.cost.calibration import DEFAULTS
from semistream.cost.disks import MeasuredCosts
from semistream.cost.question import Point
from semistream.errors import (
    InvalidInputError,
    MissingDependencyError,
    TooLittleMemoryError,
    UnreachableRateError,
)
from semistream.joins.registry import SCANNING
from semistream.master import Master, open_master

_SAMPLE_ROWS = 200_000
_PLOT = "tune.png"
_TUNED = ("meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin")
_BY_FREQUENCY = ("x-hybridjoin", "optimised-x-hybridjoin")
_PARTS = {  # the table's columns, and the parts of the memory that are in them
    "disk buffer": ("disk buffer",),
    "hot rows": ("hot rows", "pinned pages"),
    "window": ("window",),
    "index": ("index",),
}
_CALIBRATE = "; run semistream calibrate first to measure them"
_Number = Callable[[Point], float]


def add_commands(commands: Any) -> None:
    """Add both to the parser."""
    parser = commands.add_parser("tune", help="recommend an algorithm and its parameters for a master")
    parser.add_argument("master", help="the store")
    parser.add_argument("--memory", help="the budget, such as 64MB: the best rate is looked for")
    parser.add_argument("--rate", type=float, help="tuples a second: the least memory is looked for")
    parser.add_argument(
        "--sample",
        help="a Parquet file with tuples of the stream: its skew, and how many have no row, are estimated",
    )
    parser.add_argument("--skew", type=float, help="the exponent of Zipf's law, in place of a sample")
    parser.add_argument(
        "--on", help="stream=master key columns, separated by commas; the same names by default"
    )
    parser.add_argument("--algorithm", help="this one only")
    parser.add_argument("--disk", default="direct", help="direct, buffered or a profile such as hdd-2007")
    parser.add_argument(
        "--plot", help=f"where the picture goes (default: {_PLOT}, where matplotlib is there); '' for none"
    )
    parser.set_defaults(run=run_tune)

    measure = commands.add_parser(
        "calibrate", help="measure this machine and disk for the models (under 30 s)"
    )
    measure.add_argument(
        "--master", help="a store on the disk in question; the temporary directory's by default"
    )
    measure.add_argument("--disk", default="direct", help="direct, buffered or a profile")
    measure.set_defaults(run=run_calibrate)


def run_tune(chosen: argparse.Namespace) -> int:
    """Print a recommendation, and save the curves around it."""
    master = open_master(chosen.master)
    first = _sample(chosen.sample) if chosen.sample else None
    _check_plot(chosen.plot)
    names = [chosen.algorithm] if chosen.algorithm else _suitable(master)
    found: list[Tuning] = []
    refused: list[InvalidInputError] = []
    for name in names:
        try:
            found.append(
                tune(
                    name,
                    master,
                    memory=chosen.memory,
                    rate=chosen.rate,
                    skew=chosen.skew,
                    sample=first,
                    on=_on(chosen.on),
                    disk=chosen.disk,
                )
            )
        except InvalidInputError as error:
            refused.append(error)
    if not found:
        raise _nearest(refused)
    found.sort(
        key=lambda t: (t.memory_bytes, -t.rate_per_s) if chosen.rate else (-t.rate_per_s, t.memory_bytes)
    )
    _show(found)
    plot = chosen.plot or (_PLOT if chosen.plot is None and importlib.util.find_spec("matplotlib") else "")
    if plot:
        _plot(found, Path(plot), by_rate=chosen.rate is not None)
        Console().print(f"curves around each optimum: {plot}", highlight=False)
    return 0


def _nearest(refused: list[InvalidInputError]) -> InvalidInputError:
    """Of the algorithms that cannot do it the one that comes nearest: the highest rate, or the smallest memory."""

    def far(error: InvalidInputError) -> tuple[bool, float]:
        if isinstance(error, UnreachableRateError) and error.best_per_s:
            return False, -error.best_per_s
        if isinstance(error, TooLittleMemoryError) and error.least_bytes:
            return False, error.least_bytes
        return True, 0.0

    return min(refused, key=far)


def _sample(path: str) -> pa.RecordBatch:
    """The first tuples of a Parquet file."""
    hint = "Give a Parquet file of some tuples of the stream."
    try:
        first = next((b for b in pq.ParquetFile(path).iter_batches(_SAMPLE_ROWS) if len(b)), None)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"--sample {path}", found=str(error), hint=hint) from error
    if first is None:
        raise InvalidInputError(f"--sample {path}", found="no tuple in it", hint=hint)
    return first


def _check_plot(path: str | None) -> None:
    """Before the work, that a picture can be written there."""
    if path and not Path(path).absolute().parent.is_dir():
        raise InvalidInputError(
            f"--plot {path}", found="no such directory", hint="Make it, or give another place, or --plot ''."
        )


def _suitable(master: Master) -> list[str]:
    if master.layout == "heap":
        return [name for name in _TUNED if name in SCANNING]
    return [*_TUNED, *(_BY_FREQUENCY if master.layout == "frequency" else ())]


def _on(words: str | None) -> dict[str, str] | None:
    if not words:
        return None
    pairs = [word.strip().partition("=") for word in words.split(",")]
    return {stream.strip(): (master or stream).strip() for stream, _, master in pairs}


def _show(found: list[Tuning]) -> None:
    console = Console(highlight=False)
    rates = _table("algorithm", "memory", "blocks", "tuples wait", "from memory", "tuples/s")
    memory = _table("of the memory", *_PARTS)
    for tuning in found:
        rates.add_row(
            tuning.algorithm,
            format_bytes(tuning.memory_bytes),
            tuning.blocks,
            f"{tuning.window_tuples:,}" if tuning.window_tuples else "",
            f"{tuning.front_share:.0%}",
            f"{tuning.rate_per_s:,.0f}",
        )
        sizes = [sum(tuning.memory.get(part, 0) for part in parts) for parts in _PARTS.values()]
        memory.add_row(tuning.algorithm, *(format_bytes(size) if size else "" for size in sizes))
    console.print(rates)
    console.print(memory)
    console.print(
        f"factors: {found[0].origin}{_CALIBRATE if found[0].origin.startswith(DEFAULTS) else ''}",
        soft_wrap=True,
    )
    console.print(f"use {found[0]}", soft_wrap=True)


def _table(first: str, *others: str) -> Table:
    table = Table(box=None)
    table.add_column(first, no_wrap=True)
    for column in others:
        table.add_column(column, justify="right")
    return table


def _plot(found: list[Tuning], path: Path, *, by_rate: bool) -> None:
    """The rate for a memory over the parameters, or the memory for a rate (MESH, figure 5)."""
    try:
        import matplotlib.figure
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "a picture of the curves",
            found="no matplotlib",
            hint="pip install 'semistream[demo]', or --plot ''.",
        ) from error
    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    buffer, share = figure.subplots(1, 2, sharey=True)
    for tuning in found:
        by_buffer = [p for p in tuning.curve if p.settings.front_share == tuning.settings.front_share]
        by_share = [
            p
            for p in tuning.curve
            if p.settings.disk_buffer == tuning.settings.disk_buffer and p.settings.front_share is not None
        ]
        y = (lambda p: p.memory_bytes / 1e6) if by_rate else (lambda p: p.rate_per_s)
        _line(buffer, tuning.algorithm, by_buffer, lambda p: (p.settings.disk_buffer or 0) / 1e6, y)
        _line(share, tuning.algorithm, by_share, lambda p: 100 * (p.settings.front_share or 0.0), y)
    ylabel = "least memory, MB" if by_rate else "predicted tuples/s"
    buffer.set(xscale="log", xlabel="disk buffer, MB", ylabel=ylabel, ylim=(0, None))
    share.set(xlabel="% of the rest for hot rows")
    buffer.legend(frameon=False)
    figure.savefig(path, dpi=150)


def _line(axes: Any, label: str, points: list[Point], x: _Number, y: _Number) -> None:
    if points:
        points = sorted(points, key=x)
        axes.plot([x(p) for p in points], [y(p) for p in points], marker=".", label=label)


def run_calibrate(chosen: argparse.Namespace) -> int:
    """Measure, and show what was found."""
    began = time.perf_counter()
    Console(stderr=True).print("measuring reads and the joins' steps ...")
    found = calibrate(open_master(chosen.master) if chosen.master else None, disk=chosen.disk)
    _show_calibration(found)
    Console().print(f"took {time.perf_counter() - began:.1f} s; {found.origin}", highlight=False)
    return 0


def _show_calibration(found: Calibration) -> None:
    console = Console(highlight=False)
    table = Table(box=None)
    for column in ("factor", "what", "value", "spread"):
        table.add_column(column, justify="left" if column in ("factor", "what") else "right")
    prices = found.prices
    rows = (
        ("c_S", "read a tuple", prices.read_s),
        ("c_A", "let it wait", prices.append_s),
        ("c_P", "find a master row's key in its page", prices.parse_s),
        ("c_H", "probe, a master row", prices.probe_s),
        ("c_O", "put out a row", prices.output_s),
        ("c_E", "let a tuple go", prices.remove_s),
        ("step of meshjoin", "an iteration of a scan, beside", prices.scan_step_s),
        ("step of hybridjoin", "an iteration that reads blocks, beside", prices.block_step_s),
        ("step of inlj", "an iteration of look-ups, beside", prices.lookup_step_s),
        ("", "what a front stage adds to an iteration", prices.front_step_s),
    )
    for name, what, seconds in rows:
        spread = found.spread.get(name)
        table.add_row(name, what, f"{seconds * 1e9:,.0f} ns", "" if spread is None else f"{spread:.0%}")
    for size, factor in found.disk.slowed if isinstance(found.disk, MeasuredCosts) else ():
        table.add_row(
            "", f"a scan's read of {format_bytes(size)} beside a thread that joins", f"{factor:.2f} x", ""
        )
    console.print(table)
    if isinstance(found.disk, MeasuredCosts):
        reads = Table(box=None)
        for column in ("c_IO of a block of", "blocks together", "a read", "MB/s"):
            reads.add_column(column, justify="right")
        for size, count, seconds in found.disk.curve:
            reads.add_row(
                format_bytes(size),
                f"{count}",
                f"{seconds * 1e3:,.2f} ms",
                f"{size * count / seconds / 1e6:,.0f}",
            )
        console.print(reads)
