"""`semistream run pipeline.toml` and `semistream ledger show`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from semistream.errors import InvalidInputError, MissingDependencyError

if TYPE_CHECKING:
    from semistream.pipeline.report import BatchReport, Report


def add_commands(commands: Any) -> None:
    """Add `run` and `ledger` to the parser."""
    run = commands.add_parser(
        "run",
        help="run a pipeline: a stream, joined with masters, into a warehouse",
        description="Runs until everything is done or SIGINT or SIGTERM comes; then the micro-batch at work is finished. "
        "Live on a terminal, a line of JSON for each micro-batch otherwise.",
    )
    run.add_argument("pipeline", nargs="?", help="its TOML file")
    run.add_argument(
        "--reference", action="store_true", help="print a commented file with every key and its default"
    )
    run.set_defaults(run=run_pipeline)
    ledger = commands.add_parser("ledger", help="what waits in a pipeline")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="how many tuples wait, why, and since when")
    show.add_argument("pipeline", help="a pipeline's TOML file, or its state folder")
    show.add_argument("--json", action="store_true", help="for machines")
    show.set_defaults(run=show_ledger)


def run_pipeline(chosen: argparse.Namespace) -> int:
    """Run a pipeline to its end."""
    with _needing_spark():
        from semistream.pipeline import Pipeline
        from semistream.pipeline.config import reference

    if chosen.reference:
        sys.stdout.write(reference())
        return 0
    if chosen.pipeline is None:
        raise InvalidInputError(
            "semistream run", found="no file", hint="Give a TOML file; see semistream run --reference."
        )
    pipeline = Pipeline.from_file(chosen.pipeline)
    console = Console(highlight=False)
    if not console.is_terminal:
        report = pipeline.run(tell=lambda batch: _line(batch.to_json()))
        _line(report.to_json())
        return 0
    with console.status(f"{escape(pipeline.config.name)}: starting Spark") as status:
        report = pipeline.run(tell=_live(status.update, pipeline.config.name))
    _show_end(console, report)
    return 0


def show_ledger(chosen: argparse.Namespace) -> int:
    """Say what waits."""
    with _needing_spark():
        from semistream.pipeline.ledger import ledger_at, who_waits
        from semistream.pipeline.report import told_time

    newest = ledger_at(chosen.pipeline).newest()
    waiting = who_waits(newest) if newest is not None else []
    if chosen.json:
        found = [asdict(each) | {"since": told_time(each.since_us)} for each in waiting]
        _line({"batch": newest.batch if newest is not None else None, "waiting": found})
        return 0
    console = Console(highlight=False)
    if newest is None:
        console.print("no micro-batch has been decided yet")
        return 0
    if not waiting:
        console.print(f"micro-batch {newest.batch}: nobody waits")
        return 0
    console.print(f"micro-batch {newest.batch}: {newest.waiting:,} tuples wait")
    table = Table(box=None, pad_edge=False)
    for name in ("enrichment", "why", "tuples", "since (UTC)"):
        table.add_column(name, justify="right" if name == "tuples" else "left")
    for each in waiting:
        since = datetime.fromtimestamp(each.since_us / 1e6, UTC)
        table.add_row(escape(each.enrichment), each.reason, f"{each.tuples:,}", f"{since:%Y-%m-%d %H:%M:%S}")
    console.print(table)
    return 0


@contextlib.contextmanager
def _needing_spark() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("pyspark", "pandas")):
            raise
        raise MissingDependencyError(
            "a pipeline", found=f"no {error.name}", hint="pip install 'semistream[spark]'"
        ) from error


def _line(record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _live(update: Callable[[str], None], name: str) -> Callable[[BatchReport], None]:
    """Tell of the last micro-batch, in the place of the one before."""

    def tell(batch: BatchReport) -> None:
        first = next(iter(batch.accounts.values()), None)
        arrived = f"{first.arrived:,} arrived" if first is not None else ""
        waiting = sum(each.tuples for each in batch.waiting)
        rate = f"{batch.rows / batch.seconds:,.0f} rows/s" if batch.seconds else ""
        update(
            f"{escape(name)}: micro-batch {batch.batch}, {batch.rows:,} rows in {batch.seconds:.1f} s ({rate}), "
            f"{arrived}, {waiting:,} waiting{', overloaded' if batch.load == 'overloaded' else ''}"
        )

    return tell


def _show_end(console: Console, report: Report) -> None:
    console.print(
        f"{report.ended}: {report.batches:,} micro-batches, {report.rows:,} rows; {escape(report.ledger)}"
    )
    table = Table(box=None, pad_edge=False)
    names = ("arrived", "answered", "waiting", "shed", "dead", "dropped")
    table.add_column("enrichment")
    for name in names:
        table.add_column("dead letters" if name == "dead" else name, justify="right")
    for label, accounts in report.accounts.items():
        table.add_row(escape(label), *(f"{getattr(accounts, name):,}" for name in names))
    console.print(table)
