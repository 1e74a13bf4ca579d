"""`semistream reproduce`: the papers' experiments, rerun and judged."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from semistream.errors import InvalidInputError

if TYPE_CHECKING:
    from semistream.experiments import Runner

_COLOURS = {"reproduced": "green", "in part": "yellow", "not reproduced": "red", "not run": "dim"}


def add_command(commands: Any) -> None:
    """Add `reproduce` to the parser."""
    parser = commands.add_parser(
        "reproduce",
        help="rerun the papers' experiments, and say which of their claims hold",
        description="Runs the joins over the papers' data on a virtual clock (a disk and a processor of 2007) and, where it makes "
        "sense, on this machine's disk, judges every claim from the numbers, and writes a report. Points that are "
        "finished are kept: an interrupted run goes on where it stopped.",
    )
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="such as M1 C1; all where none is named")
    parser.add_argument(
        "--scale", default="default", help="small, default (20 minutes) or paper (default: default)"
    )
    parser.add_argument(
        "--out", default="reproduction", help="where to put everything (default: ./reproduction)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of masters and streams (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run points (default: 2)")
    parser.add_argument(
        "--clock", choices=("both", "virtual"), default="both", help="virtual leaves this machine's disk out"
    )
    parser.add_argument(
        "--grid",
        action="store_true",
        help="instead of the claims: which algorithm wins where, over skew, misses, memory, updates and four disks (some minutes)",
    )
    parser.add_argument("--docs", help="also write the report here, without masters and points")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on the standard output")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Check what was asked, run it, write the report."""
    from semistream.experiments import Runner, chosen_claims, scale_named
    from semistream.experiments.plots import pyplot_for_pages
    from semistream.experiments.report import counts, summary, write_report
    from semistream.master.storage import explained
    from semistream.workload.limits import require_whole

    claims, scale = chosen_claims(chosen.claims), scale_named(chosen.scale)
    if chosen.grid and chosen.claims:
        raise InvalidInputError(
            f"reproduce --grid {' '.join(chosen.claims)}",
            found="claims, which the grid has none of",
            hint="Leave out either.",
        )
    if chosen.grid and chosen.scale != "default":
        raise InvalidInputError(
            f"reproduce --grid --scale {chosen.scale}",
            found="a scale, of which the grid has only its own",
            hint="Leave out --scale.",
        )
    require_whole("seed", chosen.seed, 0, 1 << 31)
    require_whole("jobs", chosen.jobs, 1, 64)
    out = Path(chosen.out)
    pyplot_for_pages()  # what cannot be drawn or written had better be known before the run than after it
    for folder in (chosen.out, chosen.docs):
        if folder:
            with explained(f"writing {folder}"):
                Path(folder).mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, highlight=False)
    runner = Runner(
        out,
        scale,
        seed=chosen.seed,
        jobs=chosen.jobs,
        on_machine=chosen.clock == "both",
        told=Progress(console),
    )
    if chosen.grid:
        return _grid(runner, chosen)
    reproduction = runner.reproduce(claims)
    page = write_report(reproduction, out)
    if chosen.docs:
        page = write_report(reproduction, Path(chosen.docs))
    rows = summary(reproduction)
    if chosen.json:
        print(json.dumps([vars(row) for row in rows], indent=2))  # noqa: T201 - what was asked for
        return 0
    table = Table("claim", "paper", "ours, hdd-2007", "verdict", show_lines=False)
    for row in rows:
        colour = _COLOURS[row.outcome]
        table.add_row(row.claim, row.numbers or row.says, row.ours, f"[{colour}]{row.outcome}[/]")
    shown = Console(highlight=False)
    shown.print(table)
    shown.print(f"{counts(rows)}. Report: {page}", soft_wrap=True)
    return 0


def _grid(runner: Runner, chosen: argparse.Namespace) -> int:
    """Run the grid, and write what it leaves."""
    from semistream.experiments.grid import run_grid
    from semistream.experiments.grid_report import told, write_grid
    from semistream.experiments.studies.grid_winners import DISKS

    contests, manifest = run_grid(runner, DISKS)
    page = write_grid(contests, manifest, runner.out)
    if chosen.docs:
        page = write_grid(contests, manifest, Path(chosen.docs))
    said = {disk: told(disk, [each for each in contests if each.cell.disk == disk]) for disk in DISKS}
    if chosen.json:
        print(json.dumps(said, indent=2))  # noqa: T201 - what was asked for
        return 0
    shown = Console(highlight=False)
    for sentence in said.values():
        shown.print(sentence)
    shown.print(f"Report: {page}", soft_wrap=True)
    return 0


class Progress:
    """A line every few seconds: what is done, and how long the rest may take at this pace."""

    def __init__(self, console: Console, every_s: float = 5.0) -> None:
        self.console, self.every_s = console, every_s
        self.began, self.last, self.kept = time.monotonic(), 0.0, 0

    def __call__(self, what: str, done: int, total: int) -> None:
        """Told by the runner of every point."""
        now = time.monotonic()
        if not self.last:
            self.kept = done  # found from before: they say nothing about the pace
            self.began = now
        fresh = done - self.kept
        if self.last and now - self.last < self.every_s and done < total:
            return
        self.last = now
        left = (now - self.began) / fresh * (total - done) if fresh else None
        rest = "" if left is None or done == total else f", about {_for_people(left)} left"
        self.console.print(f"{done} of {total} points ({what}){rest}", soft_wrap=True)


def _for_people(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
