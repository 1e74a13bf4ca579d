"""`Pipeline`: a stream, joined with one or more masters, into a warehouse, with memory across micro-batches.

Every micro-batch goes through four steps, and may die between any two of them:

    decide    its outcome goes into the ledger, by a rename           (decide.py)
    sink      the answers go into the warehouse, exactly once         (sinks/)
    letters   dead letters go into their table, the same way
    commit    Spark notes the end in its checkpoint

Run again, a micro-batch that was decided is not decided anew, and a sink that has its answers takes no second ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from semistream.errors import InvalidInputError, SemistreamError
from semistream.pipeline.config import PipelineConfig
from semistream.pipeline.decide import Decider
from semistream.pipeline.due import due_us
from semistream.pipeline.ledger import Ledger, Outcome, who_waits
from semistream.pipeline.plan import FlowPlan, plan_flow
from semistream.pipeline.report import BatchReport, Report, sample_of
from semistream.pipeline.sample import weighed
from semistream.pipeline.sinks import Sink, open_sink
from semistream.pipeline.sinks.parquet import ParquetSink
from semistream.pipeline.source import open_source
from semistream.spark.cleaning import clean_up_after
from semistream.spark.errors import from_spark
from semistream.spark.session import local_session

_QUERY_ID = "sql.streaming.queryId"  # set by Spark on the thread that runs a micro-batch
_LOOK_EVERY_S = 0.05
_STOPPED_WITHIN_MS = 60_000
_INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling sleep: java.lang.InterruptedException"
)
Told = Callable[[BatchReport], None]


class _StoppingError(Exception):
    """A micro-batch that was not begun, because the pipeline is stopping."""


@dataclass
class Pipeline:
    """A pipeline that can be run; one at a time on a state."""

    config: PipelineConfig
    _stop: threading.Event = field(default_factory=threading.Event)

    @staticmethod
    def from_file(path: str | os.PathLike[str], *, overload: dict[str, Any] | None = None) -> Pipeline:
        """The pipeline that a TOML file describes; what is wrong in it is told at once.

        Args:
            path: The file.
            overload: What stands in its table [overload], in the place of that.
        """
        return Pipeline(PipelineConfig.from_file(path, overload=overload))

    @property
    def ledger(self) -> Ledger:
        """What waits, and what became of the last micro-batches."""
        return Ledger(self.config.state)

    def run(self, *, spark: SparkSession | None = None, tell: Told = lambda _: None) -> Report:
        """Run until everything is done (trigger "available-now"), `stop()` is called, or SIGINT or SIGTERM comes.

        Args:
            spark: The session to run on; by default the active one, or a local one.
            tell: Called after every micro-batch.

        Returns:
            What became of all tuples.
        """
        self._stop.clear()
        spark = spark if spark is not None else local_session(f"semistream {self.config.name}")
        if not hasattr(spark, "_jsparkSession"):
            raise InvalidInputError(
                "a pipeline on Spark Connect",
                found="a session whose micro-batches run on the server",
                hint="Run it where the driver is, or use ss.enrich.",
            )
        with self.ledger.locked(), _signals(self.stop):
            return _Running.prepare(self.config, self.ledger, spark, tell, self._stop).run()

    def stop(self) -> None:
        """End after the micro-batch that is running."""
        self._stop.set()


@dataclass
class _Running:
    """One run."""

    config: PipelineConfig
    ledger: Ledger
    spark: SparkSession
    tell: Told
    stopping: threading.Event
    stream: DataFrame
    plan: FlowPlan
    sink: Sink
    decider: Decider
    batches: int = 0
    rows: int = 0
    draining: bool = False
    working: bool = False
    last: Outcome | None = None  # that is in the warehouse
    failure: BaseException | None = None
    held: threading.Event = field(
        default_factory=threading.Event
    )  # a micro-batch that is not to be begun any more

    @staticmethod
    def prepare(
        config: PipelineConfig, ledger: Ledger, spark: SparkSession, tell: Told, stopping: threading.Event
    ) -> _Running:
        """Check everything that can be checked before a row is read."""
        stream = weighed(open_source(spark, config.source, ledger), config.overload)
        plan = plan_flow(config, stream)
        _check_waiting(ledger.newest(), plan)
        sink = open_sink(config.sink, plan.output, spark)
        decider = Decider(spark, plan, ledger, slots=max(1, spark.sparkContext.defaultParallelism))
        clean_up_after(spark)
        return _Running(config, ledger, spark, tell, stopping, stream, plan, sink, decider)

    def run(self) -> Report:
        """Run the query to its end."""
        self.last = self.ledger.newest()
        self.ledger.beat_at(None if self.last is None else due_us(self.last, self.plan))
        ended = self._query()
        if self.config.on_stop == "drain" and self._delayed():
            self._drain()
        accounts = self.last.accounts if self.last is not None else {}
        waiting = who_waits(self.last) if self.last is not None else []
        sample = sample_of(self.last) if self.last is not None else None
        return Report(self.batches, self.rows, ended, accounts, waiting, sample)

    def _query(self) -> str:
        """Start it, and look after it until it ends or is to end."""
        writer = self._writer()
        if self.config.trigger is None:
            writer = writer.trigger(availableNow=True)
        else:
            millis = self.config.trigger.total_seconds() * 1000
            writer = writer.trigger(processingTime=f"{millis:.0f} milliseconds")
        with _stopped_at_end(writer.start()) as query:
            while query.isActive and (self.working or not self.stopping.is_set()):
                time.sleep(_LOOK_EVERY_S)
            self._raise(query)
            self._let_commit(query)
        return "stopped" if self.stopping.is_set() else "all there was is done"

    def _drain(self) -> None:
        """Micro-batches of the heartbeat, and of what arrives meanwhile, until nobody waits who need not."""
        self.stopping.clear()
        self.held.clear()
        self.draining = True
        self.ledger.beat_at(None, drain=True)
        with _stopped_at_end(self._writer().start()) as query:
            while query.isActive and (self.working or (self._delayed() and not self.stopping.is_set())):
                time.sleep(_LOOK_EVERY_S)
            self._raise(query)
            self.stopping.set()
            self._let_commit(query)

    def _let_commit(self, query: StreamingQuery) -> None:
        """Give Spark a moment to note the end of the last micro-batch; if it does not, that one is run again, to no effect."""
        until = time.monotonic() + 2.0
        while time.monotonic() < until and query.isActive and not self.held.is_set():
            status = query.status
            if not status.get("isTriggerActive") or "Waiting" in str(status.get("message")):
                return
            time.sleep(_LOOK_EVERY_S)

    def _writer(self) -> DataStreamWriter:
        writer = self.stream.writeStream.foreachBatch(self._micro_batch).queryName(self.config.name)
        return writer.option("checkpointLocation", str(self.ledger.checkpoint))

    def _micro_batch(self, rows: DataFrame, batch: int) -> None:
        """What Spark calls."""
        if self.stopping.is_set():
            self._await_stop()
        self.working = True
        try:
            self._work(rows, batch)
        except Exception as error:
            self.failure = error
            raise
        except BaseException as error:  # it would end Spark's thread here and hang the query
            self.failure = error
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        finally:
            self.working = False

    def _await_stop(self) -> None:
        """A micro-batch that is not begun: wait for the query to be stopped, in a call of Spark's own thread.

        A call that is interrupted is what Spark takes for a stop; any other error it would log as one. It knows it by its words, and
        looks for them with an expression that recurses for every character after them: with all of the trace it may run
        out of stack.
        """
        self.held.set()
        try:
            self.spark.sparkContext._jvm.java.lang.Thread.sleep(_STOPPED_WITHIN_MS)
        except Py4JJavaError:
            raise _StoppingError(_INTERRUPTED) from None
        raise _StoppingError("the pipeline is stopping")

    def _work(self, rows: DataFrame, batch: int) -> None:
        began = time.perf_counter()
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        outcome = self.decider.decide(rows, batch, query, drain=self.draining)
        decided = time.perf_counter()
        done = self.sink.write(outcome.answers, query=query, batch=batch)
        self.decider.write_seconds = time.perf_counter() - decided
        self._write_letters(outcome)
        self.ledger.forget_before(batch - 1)
        self.last = outcome
        self.ledger.beat_at(due_us(outcome, self.plan), drain=self.draining and self._delayed())
        report = BatchReport.of(outcome, sink=done, seconds=time.perf_counter() - began)
        self.batches += 1
        self.rows += report.rows
        with contextlib.suppress(Exception):  # nobody's micro-batch ends for its report
            self.tell(report)

    def _write_letters(self, outcome: Outcome) -> None:
        """A folder for each enrichment: their tuples have other columns."""
        for number, label in enumerate(outcome.labels):
            files = [outcome.path(file) for file in outcome.of_kind("dead") if file.stage == number]
            if files:
                folder = Path(self.config.sink.dead_letters, label.replace("/", "-"))
                ParquetSink.open(str(folder)).write(files, query=outcome.query, batch=outcome.batch)

    def _delayed(self) -> bool:
        return self.last is not None and any(waiting.reason != "missing" for waiting in who_waits(self.last))

    def _raise(self, query: StreamingQuery) -> None:
        """The error that a query ended with, as what it is; a stop is none."""
        error: BaseException | None = self.failure
        if error is None and not query.isActive and not self.stopping.is_set():
            error = query.exception()
        if error is None:
            return
        ours = None if isinstance(error, SemistreamError) else from_spark(error)
        if ours is None:
            raise error
        raise ours from error


def _check_waiting(newest: Outcome | None, plan: FlowPlan) -> None:
    """Tuples that wait at an enrichment must find it again."""
    holds = {stage.hold.label for stage in plan.stages}
    for waiting in who_waits(newest) if newest is not None else []:
        if waiting.enrichment not in holds:
            raise InvalidInputError(
                f"the ledger of {newest.folder if newest else ''}",
                found=f"{waiting.tuples:,} tuples that wait at {waiting.enrichment}, at which nobody may wait now",
                hint='Run the pipeline as it was, with on_stop = "drain", before you change it.',
            )


@contextlib.contextmanager
def _stopped_at_end(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        with contextlib.suppress(Exception):
            query.stop()


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM ask for a stop; a second one is Python's again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: Any) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        stop()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
