"""A pipeline in a process of its own, in which somebody dies by kill -9: `python killed.py FILE [VICTIM STAGE COUNT]`.

VICTIM is the driver, its JVM or a worker; it dies at the COUNTth time that STAGE is reached. Where it was a worker, Spark tries its
task again, and the driver dies at the end of that micro-batch: every life ends by a kill. Run by test_kills.py.
"""

from __future__ import annotations

import os
import random
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
    "rationed",  # tuples have arrived, and it is said who of them is shed
    "rename",  # all jobs are done, nothing is decided
    "decided",  # the sink has nothing
    "writing",  # somewhere in the sink
    "written",  # the sink has it, dead letters not
    "end",  # only Spark's commit is missing
    "commit",  # somewhere around that
)
WORKER_STAGES = ("arrivals", "holding")
TIMED = {"commit": 40, "writing": 300}  # stages that take some milliseconds, in the midst of which it dies


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
        self.after: Path | None = None  # the mark of a worker that must have died before

    def at(self, stage: str) -> None:
        if stage != self.stage or (self.after is not None and not self.after.exists()):
            return
        self.left -= 1
        if self.left:
            return
        if stage in TIMED:
            wait = random.random() * TIMED[stage] / 1e3
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
        # A life is short: code that is compiled well would never be used.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    if victim:
        reaper = Reaper(spark, victim, stage, int(count))
        if victim == "worker":
            mark = f"{file}.{time.time_ns()}.died"
            spark.sparkContext.setLocalProperty(MARK, mark)
            reaper.stage, reaper.after = "end", Path(mark)
            if stage == "arrivals":
                decide.Arrivals = KilledArrivals
            else:
                decide.Holding = KilledHolding
        reaper.around(decide.Decider, "decide", "begin", None)
        reaper.around(decide._Run, "_ration", None, "rationed")
        reaper.around(ledger.Ledger, "decide", "rename", "decided")
        reaper.around(sinks.Guarded, "write", "writing", "written")
        reaper.around(piped._Running, "_work", None, "end")
        reaper.around(piped._Running, "_work", None, "commit")
    told = piped.Pipeline.from_file(file).run(spark=spark)
    sys.stdout.write(f"DONE {told.ledger}\n")
    if not told.adds_up:
        sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
