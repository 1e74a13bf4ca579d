"""`semistream master build | info | verify | vacuum`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from semistream.cli.progress import counting
from semistream.config import format_bytes, parse_duration
from semistream.master import LAYOUTS, Master, build_master, open_master
from semistream.master.sources import open_source


def add_commands(commands: Any) -> None:
    """Add `master` and what it can do to the parser."""
    parser = commands.add_parser("master", help="build, inspect, verify and clean a master store")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    build = actions.add_parser("build", help="build a store from Parquet files")
    build.add_argument("source", nargs="+", help="Parquet files, or a directory of them")
    build.add_argument(
        "path", help="where the store is to be: a directory, or a URI such as s3://bucket/products"
    )
    build.add_argument("--key", required=True, help="the key column; several separated by commas")
    build.add_argument(
        "--layout", choices=LAYOUTS, default="key", help="the order of the rows (default: key)"
    )
    build.add_argument("--frequency", help="with --layout frequency: the column to order by, highest first")
    build.add_argument("--page-bytes", default="16KiB", help="the unit of reading (default: 16KiB)")
    build.add_argument("--replace", action="store_true", help="make a new version of an existing store")
    build.add_argument(
        "--spark", action="store_true", help="read and sort with Spark instead of this process"
    )
    build.set_defaults(run=run_build)

    info = actions.add_parser("info", help="say what a store holds")
    info.add_argument("path")
    info.add_argument("--version", type=int, help="of an older version that is still there")
    info.add_argument("--json", action="store_true", help="for machines")
    info.set_defaults(run=run_info)

    verify = actions.add_parser("verify", help="read every page and check it")
    verify.add_argument("path")
    verify.add_argument("--version", type=int, help="of an older version that is still there")
    verify.set_defaults(run=run_verify)

    vacuum = actions.add_parser("vacuum", help="remove versions and files that no reader may need any more")
    vacuum.add_argument("path")
    vacuum.add_argument(
        "--keep-for", default="24h", help="keep what was current that long ago (default: 24h; also 30m, 7d)"
    )
    vacuum.set_defaults(run=run_vacuum)


def run_build(chosen: argparse.Namespace) -> int:
    """Build a store."""
    source: Any = chosen.source if len(chosen.source) > 1 else chosen.source[0]
    if chosen.spark:
        source = _spark_frame(chosen.source)
    total = None if chosen.spark else open_source(source).rows
    started = time.perf_counter()
    with counting("building", total, unit="rows") as progress:
        master = build_master(
            source,
            chosen.path,
            key=[name.strip() for name in chosen.key.split(",")],
            layout=chosen.layout,
            frequency=chosen.frequency,
            page_bytes=chosen.page_bytes,
            if_exists="replace" if chosen.replace else "error",
            progress=progress,
        )
    seconds = time.perf_counter() - started
    show(master)
    Console().print(f"built in {seconds:.1f} s ({master.rows / max(seconds, 1e-9):,.0f} rows/s)")
    return 0


def run_info(chosen: argparse.Namespace) -> int:
    """Say what a store holds."""
    master = open_master(chosen.path, version=chosen.version)
    if chosen.json:
        record = dataclasses.asdict(master.manifest)
        record |= {"path": master.path, "versions": master.versions(), "index_bytes": master.index.nbytes}
        sys.stdout.write(json.dumps(record, default=str, indent=2) + "\n")
    else:
        show(master)
    return 0


def run_verify(chosen: argparse.Namespace) -> int:
    """Read every page and check it."""
    master = open_master(chosen.path, version=chosen.version)
    pages = master.pages + (master.key_index.record.pages if master.key_index else 0)
    with counting("verifying", pages, unit="pages") as progress:
        found = master.verify(progress=progress)
    console = Console(highlight=False)
    for line in found.damaged:
        console.print(escape(line), style="red", soft_wrap=True)
    good = max(0, found.pages - len(found.damaged))
    console.print(
        f"version {master.version}: {good:,} of {found.pages:,} pages are as written, {found.rows:,} rows"
    )
    return 1 if found.damaged else 0


def run_vacuum(chosen: argparse.Namespace) -> int:
    """Remove what no reader may need."""
    removed = open_master(chosen.path).vacuum(keep_for=parse_duration(chosen.keep_for))
    versions = ", ".join(map(str, removed.versions)) or "none"
    Console(highlight=False).print(
        f"removed versions: {versions}; {removed.files:,} files, {format_bytes(removed.bytes)}"
    )
    return 0


def show(master: Master) -> None:
    """What a store holds, as a table for people."""
    known = master.statistics
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")  # a path that is cut short is of no use

    def row(label: str, value: str) -> None:
        table.add_row(label, Text(value))  # names are shown as they are, whatever brackets they hold

    row("store", f"{master.path} (version {master.version} of {', '.join(map(str, master.versions()))})")
    made = f"{master.manifest.created_at:%Y-%m-%d %H:%M:%S} UTC"
    row("made by", f"{master.manifest.operation} at {made}")
    row("layout", f"{master.layout}, key {', '.join(master.key)}")
    per_key = "" if known.max_rows_per_key is None else f", at most {known.max_rows_per_key:,} rows a key"
    distinct = "" if known.distinct_keys is None else f", {known.distinct_keys:,} keys{per_key}"
    row("rows", f"{master.rows:,}{distinct}")
    if known.min_key is not None:
        row("keys", f"{known.min_key} .. {known.max_key}")
    if known.null_keys:
        row("null keys", f"{known.null_keys:,} rows left out: they can match nothing")
    row(
        "pages",
        f"{master.pages:,} of {format_bytes(master.page_bytes)}, {format_bytes(master.nbytes)} in all",
    )
    row("index", f"{format_bytes(master.index.nbytes)} of memory")
    for i, column in enumerate(master.manifest.columns):
        row("columns" if i == 0 else "", column)
    Console(highlight=False).print(table)


def _spark_frame(paths: list[str]) -> Any:
    from semistream.spark.session import local_session

    return local_session("semistream master build").read.parquet(*paths)
