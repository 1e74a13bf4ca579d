"""What the demo says."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from semistream.cli.demo_check import Fingerprint
from semistream.cli.demo_choices import COLUMNS, Choices
from semistream.cli.demo_compare import Comparison
from semistream.cli.demo_live import Watched
from semistream.cli.demo_spark import WORKERS
from semistream.config import format_bytes
from semistream.master import Master

_QUERY = (
    "select category, count(*) as sales, sum(quantity * price) as revenue "
    "from sales group by category order by revenue desc"
)


def title(choices: Choices) -> str:
    """Of the picture."""
    return (
        f"{choices.tuples:,} sales, Zipf exponent {choices.skew:g}, joined with {choices.rows:,} products "
        f"within {format_bytes(choices.memory_bytes)} a worker"
    )


def announce(console: Console, choices: Choices, master: Master) -> None:
    """What is about to run."""
    share = choices.memory_bytes / master.nbytes
    _say(
        console,
        f"{choices.tuples:,} sales, {choices.rate_per_s:,.0f} a second on average and eight times the usual in bursts; "
        f"a product's popularity follows Zipf's law with exponent {choices.skew:g}. {WORKERS} Spark workers join them by "
        f"{choices.algorithm!r} within {format_bytes(choices.memory_bytes)} each, {share:.0%} of the master.",
    )


def stream(console: Console, watched: Watched, *, idle_bytes: int) -> None:
    """What the stream's run was like."""
    flow, rates = watched.flow, watched.rates()
    seconds, total = np.array(flow.seconds), sum(flow.tuples)
    waits = _waits(watched)
    largest = max(batch.counts.peak_rss_bytes for batch in flow.batches)
    used = max(batch.counts.used_bytes for batch in flow.batches)
    budget = max(batch.counts.budget_bytes for batch in flow.batches)
    front = sum(batch.counts.front_hits for batch in flow.batches) / max(total, 1)
    pages = sum(batch.counts.pages for batch in flow.batches)
    _table(
        console,
        [
            ("rows", f"{total:,} sales in, {flow.rows:,} rows out, in {watched.elapsed_s:.0f} s"),
            (
                "micro-batches",
                f"{len(seconds)}: p50 {_at(seconds, 50)}, p99 {_at(seconds, 99)}",
            ),
            (
                "service rate",
                f"{total / seconds.sum():,.0f} tuples/s while a micro-batch ran, {max(rates):,.0f} at best",
            ),
            (
                "from arrival to warehouse",
                f"{_at(waits, 50)} in the median micro-batch, {waits.max():.1f} s at worst",
            ),
            ("front stage", f"answered {front:.1%} without the disk; the rest took {pages:,} page reads"),
            ("memory of the join", f"{format_bytes(used)} of {format_bytes(budget)} a worker, at most"),
            (
                "memory of a worker",
                f"{format_bytes(largest)} at most; {format_bytes(idle_bytes)} with next to nothing to join "
                "(Python, Arrow, compiled code)",
            ),
        ],
    )


def check(
    console: Console, tuples: int, found: Fingerprint, problems: Sequence[str], *, seconds: float
) -> None:
    """Whether the warehouse holds what it must."""
    if problems:
        console.print(f"[bold red]NO[/]: {'; '.join(problems)}.\n")
        return
    _say(
        console,
        f"Yes. {tuples:,} sales in, {found.rows:,} rows out, each sale once; every value of the {len(COLUMNS)} columns "
        f"is the one that DuckDB's batch join of the same stream and products gives (sums of hashes by column, and of "
        f"whole rows; {seconds:.1f} s).",
    )


def comparison(console: Console, found: Comparison) -> None:
    """The two joins, side by side, and what exactly that means."""
    table = Table(box=None, pad_edge=False)
    for name in ("", "median micro-batch", "tuples/s"):
        table.add_column(name, justify="left" if not name else "right")
    for name, side in (("semistream", found.ours), ("Spark's stream-static join", found.sparks)):
        table.add_row(name, f"{side.median_s:.2f} s", f"{side.rate_per_s:,.0f}")
    console.print(table)
    ratio = found.sparks.median_s / found.ours.median_s
    faster = f"{ratio:.1f} times as long" if ratio >= 1 else f"only {ratio:.2f} of the time"
    same = (
        "Both gave the same rows." if not found.problems else f"THE ROWS DIFFER: {'; '.join(found.problems)}."
    )
    _say(
        console,
        f"Spark's took {faster}. Compared: micro-batches {found.first} to {found.last} of {found.batch_tuples:,} tuples "
        f"each, after warming up with those before; the same tuples for both, as fast as they are taken, into a Delta table. "
        f"Spark read the master as Parquet ({format_bytes(found.parquet_bytes)}), with a hint to broadcast the "
        f"micro-batch, without which it is slower. {same}",
    )


def where(console: Console, choices: Choices, *, seconds: float) -> None:
    """Where everything is, and how to look at it."""
    console.rule("5  look at it", align="left")
    _table(
        console,
        [
            ("the sales", f"{choices.sales} (a Delta table)"),
            ("the master", f"{choices.products}"),
            ("the picture", f"{choices.picture}"),
            ("what Spark said", f"{choices.log}"),
        ],
    )
    console.print(query_command(choices), soft_wrap=True, markup=False)
    console.print(f"\nThis took {seconds:.0f} s.")


def query_command(choices: Choices) -> str:
    """A shell command that queries the warehouse with DuckDB."""
    code = (
        "import duckdb; from deltalake import DeltaTable; "
        f"sales = DeltaTable({json.dumps(str(choices.sales))}).to_pyarrow_dataset(); "
        f"print(duckdb.sql({json.dumps(_QUERY)}))"
    )
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    return f"{shlex.quote(str(python))} -c {shlex.quote(code)}"


def _waits(watched: Watched) -> NDArray[np.float64]:
    """For every micro-batch, how long its oldest tuple took from its arrival into the warehouse."""
    firsts = np.cumsum([0, *(batch.counts.tuples for batch in watched.flow.batches)])[:-1]
    stream = watched.stream
    arrived = [float(stream.arrivals.times(int(i), int(i) + 1, seed=stream.seed)[0]) for i in firsts]
    written = [batch.written_at - watched.began for batch in watched.flow.batches]
    waits: NDArray[np.float64] = np.array(written) - np.array(arrived)
    return waits


def _at(seconds: NDArray[np.float64], percent: int) -> str:
    return f"{np.percentile(seconds, percent, method='inverted_cdf'):.2f} s"


def _table(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, value)
    console.print(table)
    console.print()


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False)
    console.print()
