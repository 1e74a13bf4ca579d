"""Queries in a Spark application of their own, whose processes may be killed: `python faulty.py SCENARIO FOLDER`.

What is found is printed as one line of JSON. Run by test_enrich_faults.py and test_connect.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from enriching import ByBatch, expected, read_files, rows_of, run, table, write_files
from pyspark import TaskContext
from pyspark.sql import SparkSession

import semistream as ss
from semistream.joins.registry import Settings
from semistream.spark.environment import prepare_environment
from semistream.spark.metrics import BatchId, counts_of
from semistream.spark.softstate import private_folder
from semistream.spark.worker import Enrichment

KEYS = {"k": "k"}
SCHEMA = "k long, n long"
OPTIONS = {"on": "k", "how": "left", "memory": "1MB", "settings": Settings(front_share=0.05)}
KILL = "semistream.test.kill"  # a local property: whom the first task of every stage kills


class KilledOnce(Enrichment):
    """The first attempt of a job's first task dies after its first output, as by the system's out-of-memory killer."""

    def __call__(self, batches):
        context = TaskContext.get()
        victim = context.getLocalProperty("semistream.test.kill") if context.partitionId() == 0 else None
        # Once a stage: it is run again, from its first attempt on, when an executor that held its input died.
        marker = Path(context.getLocalProperty("semistream.test.folder"), f"killed-{context.stageId()}")
        for batch in super().__call__(batches):
            yield batch
            if victim and not marker.exists():
                marker.touch()
                os.kill(os.getpid() if victim == "worker" else _executor(), signal.SIGKILL)


def _executor() -> int:
    """The JVM that a worker works for; nobody else may be killed, whatever becomes of the processes in between."""
    daemon = os.getppid()
    jvm = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    said = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (daemon, jvm)]
    if b"pyspark.daemon" not in said[0] or b"ExecutorBackend" not in said[1]:
        raise RuntimeError(f"not killed: {said}")
    return jvm


def session(master: str, options: dict[str, str] | None = None) -> SparkSession:
    prepare_environment()
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(Path(sys.argv[2]) / "warehouse"))
        .config(map=options or {})
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext.setLocalProperty("semistream.test.folder", sys.argv[2])
    sys.modules["semistream.spark.enrich"].Enrichment = KilledOnce
    return spark


def sides(tuples: int = 40_000) -> tuple[pa.Table, pa.Table]:
    """Tuples for several batches of output a task; every key many times, so that all become hot."""
    stream = table(k=[i % 700 for i in range(tuples)], n=range(tuples))
    return stream, table(k=range(500), v=[f"value {i}" for i in range(500)])


def jvm_of(spark: SparkSession) -> int:
    return spark._jvm.java.lang.ProcessHandle.current().pid()


def states(*jvms: int) -> list[str]:
    """The soft state that the workers of these JVMs have on this host."""
    names = [path.name for path in private_folder().iterdir() if list(path.glob("*.front"))]
    return sorted(name for name in names if int(name.partition(".")[0]) in jvms)


def batch(spark: SparkSession, folder: Path) -> dict:
    stream, master = sides()
    store = ss.build_master(master, folder / "master", key="k", page_bytes=4096)
    found = ss.enrich(spark.createDataFrame(stream).repartition(4), store, **OPTIONS)
    right = rows_of(found.collect()) == expected(stream, master, KEYS, "left")
    return {"right": [right], "counts": [ss.metrics_of(found)["master"].tuples]}


def streaming(spark: SparkSession, folder: Path) -> dict:
    """Two micro-batches, with a change of the master between them."""
    stream, master = sides()
    parts = [stream.slice(0, 20_000), stream.slice(20_000)]
    masters = [master, table(k=range(500), v=["changed"] * 100 + master["v"].to_pylist()[100:])]
    store = ss.build_master(master, folder / "followed", key="k", page_bytes=4096)
    df = read_files(spark, write_files(folder / "in", *parts), SCHEMA).repartition(2)
    sink = ByBatch()

    def write(batch, number):
        sink(batch, number)
        store.upsert(masters[1].slice(0, 100))

    query = run(ss.enrich(df, store, **OPTIONS), folder / "checkpoint", write)
    wanted = [(i, expected(parts[i], masters[i], KEYS, "left")) for i in range(2)]
    counts = [counts_of(BatchId(query.id, i))["followed"] for i in range(2)]
    return {"right": [sink.ran == wanted], "counts": [each.tuples for each in counts]}


def failed_tasks(spark: SparkSession) -> int:
    """How many tasks failed in all, from Spark's own accounts."""
    store = spark.sparkContext._jsc.sc().statusStore()
    stages = store.stageList(
        None, False, False, spark.sparkContext._gateway.new_array(spark._jvm.double, 0), None
    )
    return sum(stages.apply(i).numFailedTasks() for i in range(stages.size()))


def worker_killed(folder: Path) -> dict:
    """A worker dies in the batch job, and one in each of the micro-batches."""
    spark = session("local[2,4]")
    spark.sparkContext.setLocalProperty(KILL, "worker")
    one, two = batch(spark, folder), streaming(spark, folder)
    return {
        "right": one["right"] + two["right"],
        "counts": one["counts"] + two["counts"],
        "killed": failed_tasks(spark),
        "jvm": jvm_of(spark),
        "states": states(jvm_of(spark)),
    }


def executors(spark: SparkSession) -> set[int]:
    """The executors of a local cluster are children of the driver's JVM."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == jvm_of(spark) and b"ExecutorBackend" in (path.parent / "cmdline").read_bytes():
                found.add(int(path.parent.name))
    return found


def cluster(folder: Path) -> dict:
    """Executors in JVMs of their own: one dies, another comes, and sweeps what the dead one left."""
    whole = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    spark = session("local-cluster[2,1,1024]", whole)
    first = executors(spark)
    before = batch(spark, folder / "before")
    shared = states(*first)
    spark.sparkContext.setLocalProperty(KILL, "executor")
    dying = batch(spark, folder / "dying")
    spark.sparkContext.setLocalProperty(KILL, None)
    dead = first - executors(spark)
    after, until = [], time.monotonic() + 60
    while states(*dead) and time.monotonic() < until:  # until the executor in its place has had a task
        after.append(batch(spark, folder / f"after {len(after)}"))
    every = [before, dying, *after, streaming(spark, folder)]
    return {
        "right": [right for each in every for right in each["right"]],
        "counts": dying["counts"],
        "executors": len(first),
        "shared": shared,
        "dead": len(dead),
        "left behind": states(*dead),
    }


def connected(folder: Path) -> dict:
    """Over Spark Connect: a client without a JVM of its own."""
    prepare_environment()
    os.environ["SPARK_TESTING"] = (
        "1"  # its server then takes a port that is free, not the one everybody's takes
    )
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    stream, master = sides(4_000)
    store = ss.build_master(spark.createDataFrame(master), folder / "master", key="k", page_bytes=4096)
    before = {row.key: row.value for row in spark.sql("SET").collect()}
    df = spark.createDataFrame(stream)
    found = ss.enrich(df, store, **OPTIONS)
    names = table(v=["value 1", "value 2"], name=["one", "two"])
    star = ss.enrich(found, ss.build_master(names, folder / "names", key="v"), on="v", memory="1MB")
    wanted = expected(stream, master, KEYS, "left")
    result = {
        "client": f"{type(spark).__module__}",
        "columns": [(f.name, f.dataType.simpleString(), f.nullable) for f in found.schema],
        "batch": rows_of(found.collect()) == wanted,
        "arrow": rows_of(found.toArrow()) == wanted,
        "star": rows_of(star.collect())
        == Counter(
            {
                (*row, {"value 1": "one", "value 2": "two"}[row[2]]): n
                for row, n in wanted.items()
                if row[2] in ("value 1", "value 2")
            }
        ),
        "plans": star._explain_string().count("MapInArrow"),
        "metrics": sorted(ss.metrics_of(found)),
        "limit": len(found.limit(3).collect()),
        "again": found.count() == wanted.total(),
    }
    result["streaming"] = connected_stream(spark, store, folder)
    result["errors"] = connected_errors(spark, store, df)
    after = {row.key: row.value for row in spark.sql("SET").collect()}
    result["settings"] = {key: value for key, value in after.items() if before.get(key) != value}
    spark.stop()
    return result


def connected_stream(spark, store: ss.Master, folder: Path) -> list:
    """A Parquet sink: what foreachBatch runs on Connect runs on the server."""
    files = write_files(folder / "in", table(k=[1, 2, 900], n=[0, 1, 2]))
    out, checkpoint = folder / "out", folder / "checkpoint"
    seen = []
    for number in range(3):
        found = ss.enrich(read_files(spark, files, SCHEMA), ss.open_master(store.path), **OPTIONS)
        query = (
            found.writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(checkpoint))
        )
        query.trigger(availableNow=True).start().awaitTermination()
        seen.append(
            sorted((row.n, row.v) for row in spark.read.schema(found.schema).parquet(str(out)).collect())
        )
        store.upsert(table(k=[1], v=[f"after {number}"]))
        write_files(folder / "in", table(k=[1], n=[10 + number]), first=number + 1)
    return seen


def connected_errors(spark, store: ss.Master, df) -> list[str]:
    said = []
    try:
        ss.enrich(df, store, on="nobody")
    except ss.SemistreamError as error:
        said.append(type(error).__name__)
    found = ss.enrich(df, store, on="k", algorithm="in-memory", memory="1KB")
    try:
        with ss.explained():
            found.collect()
    except ss.SemistreamError as error:
        said += [type(error).__name__, error.hint, type(error.__cause__).__name__]
    return said


def not_stopped(folder: Path) -> dict:
    """A driver that ends when its query does, and leaves its session to itself."""
    spark = session("local[1]")
    spark.sparkContext.setLogLevel("ERROR")
    store = ss.build_master(table(k=range(100), v=range(100)), folder / "master", key="k")
    files = write_files(folder / "in", *(table(k=range(100), n=range(100)) for _ in range(5)))
    found = ss.enrich(read_files(spark, files, SCHEMA), store, on="k", memory="1MB")
    query = found.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    return {"batches": running.lastProgress.batchId + 1}


SCENARIOS = {
    "not-stopped": not_stopped,
    "worker-killed": worker_killed,
    "cluster": cluster,
    "connected": connected,
}

if __name__ == "__main__":
    answer = SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.write(f"\nFOUND {json.dumps(answer)}\n")
