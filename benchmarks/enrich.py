"""How long does a micro-batch take through enrich(), against what people do on Spark without it?

    a  Spark's stream-static inner join          d  the same with broadcast(master)
    b  the same, left outer                      e  identity mapInArrow: what crossing into Python costs
    c  foreachBatch, the keys as an IN-list      f  mapInArrow, a dictionary before LMDB, as one writes it by hand
    g  mapInArrow that takes the same columns from a table of 64 rows: what the wider output costs, whoever looks up

local[2], Zipf 1, 5 % of the master as memory, the page cache warm for everyone. Every case is a streaming query of its own
over the same Parquet files, one or two per micro-batch, into the noop sink; its figure is the median `triggerExecution` of
the micro-batches after its warm-up. Cases take turns.

    python enrich.py [batch]            200 k-row micro-batches against a, b, d, e, f, g
    python enrich.py sizes              1 k against c, 10 k against e, 1 M against f
    python enrich.py large              a master ten times larger (needs 25 GB of disk)
    python enrich.py memory             peak resident memory of the workers
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

import by_hand
import semistream as ss
from data import ROOT, ROWS, SEED, products_parquet, products_store
from joins import Loop
from measure import Case, Ratio, alternate, report
from semistream.config import parse_bytes
from semistream.master import Master
from semistream.spark.environment import prepare_environment
from semistream.workload import Workload, Zipf

BUDGET = "60MB"  # 5 % of 1.2 GB
TASKS = 2
PAGE_BYTES = 4096  # what a look-up reads; the store's default of 16 KiB is for scans
REPEATS = 3
LARGE = 10 * ROWS


def stream_files(batch_rows: int, batches: int, keys: int) -> Path:
    """Parquet files of sales, two per micro-batch."""
    sales = Workload(Zipf(keys, 1.0, popularity="scattered"), seed=SEED)
    return write_stream(ROOT / f"sales-{keys}-{batch_rows}", sales, batch_rows, batches)


def write_stream(folder: Path, sales: Workload, batch_rows: int, batches: int) -> Path:
    """The first micro-batches of a stream, in the files that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    part = batch_rows // TASKS
    for i in range(batches * TASKS):
        path = folder / f"{i:06d}.parquet"
        if not path.exists():
            pq.write_table(
                pa.Table.from_batches([sales.slice(i * part, (i + 1) * part)]), path.with_suffix(".aside")
            )
            path.with_suffix(".aside").rename(path)
    return folder


def linked(files: Path, batches: int, folder: Path) -> Path:
    """A new folder with the files of the first micro-batches."""
    folder.mkdir()
    for path in sorted(files.glob("*.parquet"))[: batches * TASKS]:
        os.link(path, folder / path.name)
    return folder


class Query:
    """A streaming query, run over some micro-batches more with every turn."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        files: Path,
        job: Callable[[DataFrame], DataFrame],
        *,
        warm: int,
        turn: int,
        each_batch: Callable[[DataFrame, int], None] | None = None,
    ) -> None:
        self.name, self.files, self.warm, self.turn = name, files, warm, turn
        self.spark, self.job, self.each_batch = spark, job, each_batch

    def __call__(self) -> float:
        """The median seconds of a micro-batch, in a query that was warmed up before."""
        with tempfile.TemporaryDirectory() as scratch:
            source = linked(self.files, self.warm + self.turn, Path(scratch, "in"))
            stream = (
                self.spark.readStream.schema(self.spark.read.parquet(str(self.files)).schema)
                .option("maxFilesPerTrigger", TASKS)
                .parquet(str(source))
            )
            writing = self.job(stream).writeStream.option("checkpointLocation", f"{scratch}/checkpoint")
            writing = writing.foreachBatch(self.each_batch) if self.each_batch else writing.format("noop")
            query = writing.trigger(availableNow=True).start()
            query.awaitTermination()
            progress = [p for p in query.recentProgress if p.numInputRows]
        if len(progress) != self.warm + self.turn:
            sys.exit(f"{self.name}: {len(progress)} micro-batches instead of {self.warm + self.turn}")
        return float(median(p.durationMs["triggerExecution"] for p in progress[self.warm :])) / 1000


def session(memory: str) -> SparkSession:
    """What a small machine's Spark is, with room enough for the broadcast."""
    prepare_environment()
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def lookup_store(rows: int = ROWS) -> Master:
    """The products in small pages."""
    path = ROOT / f"store4k-{rows}"
    if not path.exists():
        print(f"building the store of {rows:,} products in {path} (once)", file=sys.stderr)
        ss.build_master(str(products_parquet(rows)), path, key="product_id", page_bytes=PAGE_BYTES)
    return ss.open_master(path)


def warm_page_cache(*folders: Path) -> None:
    """Everybody's master is in the page cache before the clock runs."""
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass


def ours(master: Master) -> Callable[[DataFrame], DataFrame]:
    """Ours, with nothing tuned."""
    return lambda stream: ss.enrich(stream, master, on="product_id", memory=BUDGET)


def identity(stream: DataFrame) -> DataFrame:
    """Rows into Python and out again."""
    return stream.mapInArrow(lambda batches: batches, stream.schema)


def gather(store: Master) -> Callable[[DataFrame], DataFrame]:
    """Rows into Python and out again, as wide as ours."""
    some = next(store.scan()).slice(0, 64)
    few = some.select(some.schema.names[1:])

    def taken(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = few.take(pa.array(batch.column(0).to_numpy() % 64))
            names = [*batch.schema.names, *few.schema.names]
            yield pa.RecordBatch.from_arrays([*batch.columns, *rows.columns], names)

    def job(stream: DataFrame) -> DataFrame:
        return stream.mapInArrow(taken, ss.enrich(stream, store, on="product_id", memory=BUDGET).schema)

    return job


def static_join(spark: SparkSession, how: str, rows: int = ROWS) -> Callable[[DataFrame], DataFrame]:
    """Spark's own."""
    return lambda stream: stream.join(spark.read.parquet(str(products_parquet(rows))), "product_id", how)


def broadcast_join(spark: SparkSession) -> Callable[[DataFrame], DataFrame]:
    """The master sent to every task."""
    return lambda stream: stream.join(F.broadcast(spark.read.parquet(str(products_parquet()))), "product_id")


def lmdb_join(master: Master, store: Master) -> Callable[[DataFrame], DataFrame]:
    """The hand-written look-up, filled once."""
    path = ROOT / f"lmdb-{master.rows}"
    if not path.exists():
        Loop(products_store(), [Workload(Zipf(ROWS, 1.0), rows=10, seed=SEED).slice(0, 10)])
    payload = pa.schema(list(store.schema)[1:])
    capacity = parse_bytes(BUDGET) // by_hand.ROW_BYTES

    def job(stream: DataFrame) -> DataFrame:
        stream.sparkSession.sparkContext.addPyFile(by_hand.__file__)  # so that workers keep what it opens
        enriched = ss.enrich(stream, store, on="product_id", memory=BUDGET)  # for its schema alone
        return stream.mapInArrow(
            lambda batches: by_hand.in_worker(batches, str(path), capacity, payload), enriched.schema
        )

    return job


def key_partitioned(spark: SparkSession) -> Path:
    """The master as Parquet in a thousand directories by key, for (c)."""
    path = ROOT / f"products-by-key-{ROWS}"
    if not (path / "_SUCCESS").exists():
        print(f"writing {path} (once)", file=sys.stderr)
        shutil.rmtree(path, ignore_errors=True)
        products = spark.read.parquet(str(products_parquet()))
        parts = products.withColumn("part", (F.col("product_id") % 1000).cast("int"))
        parts.repartition(200, "part").write.partitionBy("part").parquet(str(path))
    return path


def in_list(spark: SparkSession) -> Callable[[DataFrame, int], None]:
    """(c): the keys of the micro-batch, pushed down to a master partitioned by key."""
    master = spark.read.parquet(str(key_partitioned(spark)))

    def each(batch: DataFrame, _: int) -> None:
        keys = [row[0] for row in batch.select("product_id").distinct().collect()]
        some = master.where(F.col("part").isin(sorted({key % 1000 for key in keys})))
        some = some.where(F.col("product_id").isin(keys)).drop("part")
        batch.join(some, "product_id").write.format("noop").mode("overwrite").save()

    return each


def at_200k(spark: SparkSession) -> bool:
    """The main comparison."""
    store = lookup_store()
    files = stream_files(200_000, 60, ROWS)
    cases: dict[str, Case] = {  # Spark's own code is compiled while the first dozens of micro-batches run
        "identity mapInArrow (e)": Query(spark, "e", files, identity, warm=40, turn=15),
        "a gather of as many columns (g)": Query(spark, "g", files, gather(store), warm=40, turn=15),
        "semistream": Query(spark, "semistream", files, ours(store), warm=45, turn=15),
        "dictionary and LMDB, by hand (f)": Query(
            spark, "f", files, lmdb_join(store, store), warm=15, turn=8
        ),
        "Spark's join, inner (a)": Query(spark, "a", files, static_join(spark, "inner"), warm=3, turn=4),
        "Spark's join, left outer (b)": Query(spark, "b", files, static_join(spark, "left"), warm=1, turn=1),
        "Spark's join, broadcast (d)": Query(spark, "d", files, broadcast_join(spark), warm=0, turn=1),
    }
    warm_page_cache(ROOT / f"store4k-{ROWS}", products_parquet(), ROOT / f"lmdb-{ROWS}")
    # Those that go through the same code of Spark's, which is compiled while it runs: not counted.
    for name in list(cases)[:3]:
        cases[name]()
    figures = alternate(cases, repeats=5)
    ratios = [
        Ratio("e / ours", "identity mapInArrow (e)", "semistream", at_least=0.75),
        Ratio("g / ours", "a gather of as many columns (g)", "semistream"),
        Ratio("a / ours", "Spark's join, inner (a)", "semistream", at_least=4),
        Ratio("b / ours", "Spark's join, left outer (b)", "semistream", at_least=15),
        Ratio("f / ours", "dictionary and LMDB, by hand (f)", "semistream", at_least=1.4),
        Ratio("d / ours", "Spark's join, broadcast (d)", "semistream"),
    ]
    title = f"200,000 tuples against {ROWS // 10**6} million rows in {BUDGET}"
    return report("enrich at 200 k", figures, ratios, unit="s a micro-batch", seed=SEED, title=title)


def at_other_sizes(spark: SparkSession) -> bool:
    """Small and large micro-batches."""
    store = lookup_store()
    small, tenth, large = (
        stream_files(1_000, 60, ROWS),
        stream_files(10_000, 200, ROWS),
        stream_files(1_000_000, 16, ROWS),
    )
    nothing: Callable[[DataFrame], DataFrame] = lambda stream: stream  # noqa: E731
    cases: dict[str, Case] = {
        "e at 10 k": Query(spark, "e", tenth, identity, warm=20, turn=40),
        "ours at 10 k": Query(spark, "ours", tenth, ours(store), warm=120, turn=40),
        "ours at 1 k": Query(spark, "ours", small, ours(store), warm=30, turn=20),
        "c at 1 k": Query(spark, "c", small, nothing, warm=2, turn=4, each_batch=in_list(spark)),
        "ours at 1 M": Query(spark, "ours", large, ours(store), warm=8, turn=6),
        "f at 1 M": Query(spark, "f", large, lmdb_join(store, store), warm=4, turn=3),
    }
    warm_page_cache(ROOT / f"store4k-{ROWS}", key_partitioned(spark), ROOT / f"lmdb-{ROWS}")
    figures = alternate(cases, repeats=REPEATS)
    ratios = [
        Ratio("ours / e at 10 k", "ours at 10 k", "e at 10 k", at_most=1.3),
        Ratio("c / ours at 1 k", "c at 1 k", "ours at 1 k", at_least=1),
        Ratio("f / ours at 1 M", "f at 1 M", "ours at 1 M", at_least=2),
    ]
    return report("enrich at other sizes", figures, ratios, unit="s a micro-batch", seed=SEED)


def at_ten_times_the_master(spark: SparkSession) -> bool:
    """100 million rows in the same memory."""
    small, large = lookup_store(), lookup_store(LARGE)
    files, large_files = stream_files(200_000, 50, ROWS), stream_files(200_000, 50, LARGE)
    cases: dict[str, Case] = {
        "ours": Query(spark, "ours", files, ours(small), warm=30, turn=15),
        "ours, 100 M": Query(spark, "ours", large_files, ours(large), warm=30, turn=15),
    }
    warm_page_cache(ROOT / f"store4k-{ROWS}", ROOT / f"store4k-{LARGE}")
    figures = alternate(cases, repeats=REPEATS)
    spark_join = Query(spark, "a", large_files, static_join(spark, "inner", LARGE), warm=1, turn=1)
    warm_page_cache(products_parquet(LARGE))  # the two do not fit beside each other
    figures["a inner, 100 M"] = [spark_join() for _ in range(REPEATS)]
    ratios = [
        Ratio("ours at 100 M / ours", "ours, 100 M", "ours", at_most=1.6),
        Ratio("a / ours at 100 M", "a inner, 100 M", "ours, 100 M", at_least=25),
    ]
    return report("enrich at ten times the master", figures, ratios, unit="s a micro-batch", seed=SEED)


def worker_memory(spark: SparkSession) -> bool:
    """The most memory a worker ever had, from its own counts."""
    store, files, peaks = lookup_store(), stream_files(200_000, 50, ROWS), []
    for _ in range(REPEATS):
        told: list[float] = []
        listener = ss.MetricsListener(to=lambda batch: told.append(batch.counts.peak_rss_bytes / 1e6))  # noqa: B023
        spark.streams.addListener(listener)
        Query(spark, "ours", files, ours(store), warm=30, turn=15)()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        spark.streams.removeListener(listener)
        peaks.append(max(told))
    figures = {"worker": peaks, "budget + 250 MB": [parse_bytes(BUDGET) / 1e6 + 250] * REPEATS}
    ratios = [Ratio("worker / allowed", "worker", "budget + 250 MB", at_most=1)]
    return report("memory of a worker", figures, ratios, unit="MB", seed=SEED)


def main() -> int:
    """Measure and report."""
    studies = {
        "batch": at_200k,
        "sizes": at_other_sizes,
        "large": at_ten_times_the_master,
        "memory": worker_memory,
    }
    which = sys.argv[1] if len(sys.argv) > 1 else "batch"
    if which not in studies:
        sys.exit(f"{which!r} is none of {', '.join(studies)}")
    return 0 if studies[which](session("4g" if which != "batch" else "14g")) else 1


if __name__ == "__main__":
    sys.exit(main())
