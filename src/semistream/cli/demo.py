"""`semistream demo`: a master, a bursty stream, Spark, a warehouse, and whether it all is right; in under three minutes."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.console import Console


def add_command(commands: Any) -> None:
    """Add `demo` to the parser."""
    parser = commands.add_parser(
        "demo",
        help="a stream of sales joined with millions of products on Spark, into a warehouse, checked",
        description="Builds a master of products, runs a bursty, skewed stream of sales through enrich() on a local Spark "
        "into a Delta table, checks every value against a batch join, and runs the same through Spark's own join.",
    )
    parser.add_argument(
        "--rows", type=int, default=5_000_000, help="products in the master (default: 5,000,000)"
    )
    parser.add_argument("--memory", default="64MB", help="budget of each worker (default: 64MB)")
    parser.add_argument(
        "--skew",
        type=float,
        default=1.0,
        help="Zipf exponent of the products' popularity, 0 to 2 (default: 1)",
    )
    parser.add_argument("--algorithm", default="auto", help="of the join (default: auto)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=30.0, help="of stream (default: 30)")
    length.add_argument("--tuples", type=int, help="of stream, in place of --seconds")
    parser.add_argument(
        "--rate", type=float, default=60_000.0, help="tuples a second, on average (default: 60,000)"
    )
    parser.add_argument("--folder", default="demo", help="where to put everything (default: ./demo)")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Check what was asked, then show it."""
    from semistream.cli.demo_choices import Choices, check_own, require_packages, try_out

    require_packages()
    choices = Choices.of(chosen)
    check_own(choices)
    began, console = time.perf_counter(), Console(highlight=False)
    with console.status("trying it out; the first time this compiles"):
        try_out(choices)
    from semistream.cli.demo_show import show  # imports Spark, which takes a while

    return show(choices, console, began=began)
