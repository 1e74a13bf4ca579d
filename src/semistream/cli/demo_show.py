"""The demo itself, section by section."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from semistream.cli import demo_report as report
from semistream.cli.demo_check import expected_of, fingerprint_of
from semistream.cli.demo_choices import MASTER_SEED, PAGE_BYTES, SALES, TABLE_NAME, Choices, few_products
from semistream.cli.demo_compare import compare
from semistream.cli.demo_live import Watched, busy, watching
from semistream.cli.demo_picture import draw
from semistream.cli.demo_spark import Flow, quiet_session, read_stream, run_stream
from semistream.cli.demo_warehouse import Warehouse
from semistream.cli.progress import counting
from semistream.config import format_bytes
from semistream.master import Master, build_master
from semistream.spark.enrich import enrich
from semistream.workload import retail

_LARGEST_BATCH = 200_000  # tuples: after a burst the display goes on
_LEAD_S = 5.0  # from the start of the query to the first tuple: until then Spark starts what makes it


def show(choices: Choices, console: Console, *, began: float) -> int:
    """Everything, in order; 0 if what came out is what had to come out. `began` is when, by `time.perf_counter()`."""
    choices.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="semistream-demo-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)  # for what is not to stay: checkpoints, Spark's files, what is only compared
        master = _build(choices, console)
        with contextlib.ExitStack() as open_things:
            with busy(console, "starting Spark and its workers"):
                spark = open_things.enter_context(quiet_session(scratch, choices.log))
                idle_bytes = _warm_up(choices, spark, scratch)
            watched = _stream(choices, console, spark, master, scratch)
            report.stream(console, watched, idle_bytes=idle_bytes)
            starts_at = datetime.fromtimestamp(watched.began, UTC)
            problems = _check(choices, console, starts_at, scratch)
            console.rule("4  the same with Spark's own join", align="left")
            with busy(console, "writing the master as Parquet, then both joins over the same micro-batches"):
                compared = compare(choices, spark, master, starts_at, scratch)
            report.comparison(console, compared)
            problems += compared.problems
    draw(watched, choices.picture, title=report.title(choices))
    report.where(console, choices, seconds=time.perf_counter() - began)
    return 1 if problems else 0


def _build(choices: Choices, console: Console) -> Master:
    console.rule("1  a master of products", align="left")
    started = time.perf_counter()
    with counting("writing", choices.rows, unit="rows") as progress:
        source = retail.products(choices.rows, MASTER_SEED)
        master = build_master(
            source,
            choices.products,
            key="product_id",
            page_bytes=PAGE_BYTES,
            if_exists="replace",
            progress=progress,
        )
    seconds = time.perf_counter() - started
    master.vacuum(keep_for=timedelta(0))  # of earlier demos
    console.print(
        f"{master.rows:,} products in {master.pages:,} pages, {format_bytes(master.nbytes)}, sorted by product_id: "
        f"built in {seconds:.1f} s.\n"
    )
    return master


def _warm_up(choices: Choices, spark: SparkSession, scratch: Path) -> int:
    """Start the workers, and let them load what they need; gives the memory one has then, with next to nothing to join."""
    few, master = few_products(choices, scratch / "few-products")
    starts_at = datetime.now(UTC)
    sales = read_stream(spark, few.stream_options(tuples=few.tuples, starts_at=starts_at), pace="none")
    enriched = enrich(sales, master, on="product_id", memory=few.memory_bytes, algorithm=few.algorithm)
    table = Warehouse.create(scratch / "few-sales", SALES, name=TABLE_NAME)
    flow = run_stream(enriched, table, tuples=few.tuples, checkpoint=scratch / "few", flow=Flow())
    return max(batch.counts.peak_rss_bytes for batch in flow.batches)


def _stream(
    choices: Choices, console: Console, spark: SparkSession, master: Master, scratch: Path
) -> Watched:
    console.rule("2  sales arrive, and go into the warehouse with their product", align="left")
    report.announce(console, choices, master)
    if choices.sales.exists():
        shutil.rmtree(choices.sales)  # an earlier demo's: that was checked
    warehouse = Warehouse.create(choices.sales, SALES, name=TABLE_NAME)
    starts_at = datetime.now(UTC) + timedelta(seconds=_LEAD_S)
    options = choices.stream_options(tuples=choices.tuples, starts_at=starts_at)
    sales = read_stream(spark, options, max_rows_per_batch=str(_LARGEST_BATCH))
    enriched = enrich(
        sales, master, on="product_id", memory=choices.memory_bytes, algorithm=choices.algorithm
    )
    flow = Flow()
    stream = choices.workload(tuples=choices.tuples, starts_at=starts_at)
    watched = Watched(flow, stream, starts_at.timestamp())
    with watching(console, watched) as watch:
        checkpoint = scratch / "checkpoint"
        run_stream(enriched, warehouse, tuples=choices.tuples, checkpoint=checkpoint, flow=flow, watch=watch)
    return watched


def _check(choices: Choices, console: Console, starts_at: datetime, scratch: Path) -> list[str]:
    console.rule("3  is it right?", align="left")
    started = time.perf_counter()
    with busy(console, "joining the same by DuckDB"):
        expected = expected_of(choices, starts_at, choices.tuples, scratch)
        found = fingerprint_of(Warehouse(choices.sales).dataset(), scratch)
    problems = found.differences(expected)
    report.check(console, choices.tuples, found, problems, seconds=time.perf_counter() - started)
    return problems
