"""A pipeline in a process of its own, in which somebody dies by kill -9: `python killed.py FILE [VICTIM STAGE COUNT]`.

VICTIM is the driver, its JVM or a worker; it dies at the COUNTth time that STAGE is reached. Run by test_kills.py.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from semistream.pipeline import decide, ledger, sinks
from semistream.pipeline import pipeline as piped
from semistream.pipeline.tasks import Arrivals, Holding
from semistream.spark.environment import prepare_environment

MARK = "semistream.test.mark"  # a local property: the file that says that the worker has died
DRIVER_STAGES = (
    "begin",  # nothing is done yet
    "rename",  # all jobs are done, nothing is decided
    "decided",  # the sink has nothing
    "written",  # the sink has it, dead letters not
    "end",  # only Spark's commit is missing
    "commit",  # somewhere around that
)
WORKER_STAGES = ("arrivals", "holding")


def _die_once() -> None:
    """Kill this worker, if it is to die and none has."""
    context = TaskContext.get()
    mark = context.getLocalProperty("semistream.test.mark") if context is not None else None
    if mark and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)


class KilledArrivals(Arrivals):
    def __call__(self, batches):
        for result in super().__call__(batches):
            _die_once()
            yield result


class KilledHolding(Holding):
    def __call__(self, batches):
        for result in super().__call__(batches):
            _die_once()
            yield result


class Reaper:
    def __init__(self, spark: SparkSession, victim: str, stage: str, count: int) -> None:
        self.pid = os.getpid()
        if victim == "jvm":
            self.pid = spark._jvm.java.lang.ProcessHandle.current().pid()
        self.stage, self.left = stage, count

    def at(self, stage: str) -> None:
        if stage != self.stage:
            return
        self.left -= 1
        if self.left:
            return
        if stage == "commit":
            wait = (time.time_ns() % 40_000) / 1e6
            threading.Timer(wait, os.kill, (self.pid, signal.SIGKILL)).start()
        else:
            os.kill(self.pid, signal.SIGKILL)  # if it was the JVM, the driver goes on for as long as it can

    def around(self, owner, name: str, before: str | None, after: str | None) -> None:
        real = getattr(owner, name)

        def reaped(*args, **options):
            if before:
                self.at(before)
            found = real(*args, **options)
            if after:
                self.at(after)
            return found

        setattr(owner, name, reaped)


def main(file: str, victim: str = "", stage: str = "", count: str = "1") -> None:
    prepare_environment()
    spark = (
        SparkSession.builder.master("local[2,4]")  # a task may die and be tried again
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    if victim == "worker":
        mark = f"{file}.{time.time_ns()}.died"
        spark.sparkContext.setLocalProperty(MARK, mark)
        if stage == "arrivals":
            decide.Arrivals = KilledArrivals
        else:
            decide.Holding = KilledHolding
    elif victim:
        reaper = Reaper(spark, victim, stage, int(count))
        reaper.around(decide.Decider, "decide", "begin", None)
        reaper.around(ledger.Ledger, "decide", "rename", "decided")
        reaper.around(sinks.Guarded, "write", None, "written")
        reaper.around(piped._Running, "_work", None, "end")
        reaper.around(piped._Running, "_work", None, "commit")
    told = piped.Pipeline.from_file(file).run(spark=spark)
    sys.stdout.write(f"DONE {told.ledger}\n")
    if not told.adds_up:
        sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
