"""`semistream demo`: a master store from nothing to a verified second version, in a few seconds."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

from semistream.cli.master import show
from semistream.cli.progress import counting
from semistream.errors import InvalidInputError, NotAStoreError
from semistream.master import build_master, open_master
from semistream.workload import retail

_FOLDER = "demo"
_PRICE_CHANGES = 1_000


def add_command(commands: Any) -> None:
    """Add `demo` to the parser."""
    parser = commands.add_parser("demo", help="build a small store, look at it, change it, verify it")
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="products in the master (default: 1,000,000)"
    )
    parser.add_argument("--folder", default=_FOLDER, help=f"where to put it (default: ./{_FOLDER})")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Show what a store is."""
    if chosen.rows < 1:
        raise InvalidInputError(f"--rows {chosen.rows}", found="no rows", hint="Ask for at least one.")
    console = Console(highlight=False)
    folder = Path(chosen.folder)
    path = folder / "products"

    _check_own(path)
    console.rule(f"building a master of {chosen.rows:,} products")
    started = time.perf_counter()
    with counting("writing", chosen.rows, unit="rows") as progress:
        master = build_master(
            retail.products(chosen.rows, seed=1),
            path,
            key="product_id",
            if_exists="replace",
            progress=progress,
        )
    master.vacuum(keep_for=timedelta(0))  # of earlier demos
    console.print(f"{chosen.rows / (time.perf_counter() - started):,.0f} rows/s\n")
    show(master)

    console.rule("changing some prices: a new version, the old one stays readable")
    changed = min(chosen.rows, _PRICE_CHANGES)
    newer = master.upsert(retail.products(changed, seed=2).read_all())
    console.print(f"{newer}\n{master}")

    console.rule("verifying every page of the new version")
    found = newer.verify()
    console.print(f"{found.pages:,} pages, {found.rows:,} rows, {len(found.damaged)} damaged")

    console.rule("next")
    command = Path(sys.executable).parent / "semistream"
    console.print(f"{command} master info {shlex.quote(str(path))}", soft_wrap=True, markup=False)
    return 1 if found.damaged or found.rows != newer.rows else 0


def _check_own(path: Path) -> None:
    """The demo builds over an earlier demo, and over nothing else."""
    with contextlib.suppress(NotAStoreError):
        if open_master(path).schema.names != retail.PRODUCTS.names:
            raise InvalidInputError(
                f"the demo's store at {path}",
                found="another store",
                hint="Choose another --folder; nothing was changed.",
            )
