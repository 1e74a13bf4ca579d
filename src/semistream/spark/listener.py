"""Who is told what every micro-batch did, without touching the query.

Counts are never late. Spark's scheduler hands a task's accumulator updates to Python, and waits until they are
acknowledged, before it counts the task as done; the micro-batch's job ends after its tasks, and its progress event is
posted after its job. What may be late is the event: Spark delivers it on a thread of its own, so a query can have ended a
moment before its last micro-batch is told. `spark.stop()` delivers what is left.
"""

from __future__ import annotations

import contextlib
import sys
from functools import cached_property
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from semistream.spark.events import java_listener
from semistream.spark.metric_sinks import BatchMetrics, Prometheus, Sink, To, sink_for
from semistream.spark.metrics import BatchId, counts_of

__all__ = ["BatchMetrics", "MetricsListener"]


class MetricsListener(StreamingQueryListener):
    """Tells, for every micro-batch and enrichment, what `enrich()` did.

    Add it with `spark.streams.addListener(ss.MetricsListener(to=...))`, before the query starts. Micro-batches in which no
    tuple reached an enrichment are not told of. A sink that fails is reported once on standard error and then left alone:
    no query ends for its metrics.

    Args:
        to: "console" for a line on standard error, or an open text stream for the same line there; a path (a string that
            ends in .jsonl or .json, or a path object) to append JSON lines to; "prometheus", "prometheus:PORT" or
            "prometheus:HOST:PORT" to serve a page for Prometheus, on 127.0.0.1:9464 by default and on any free port
            if PORT is 0; or a function, called with a `BatchMetrics`.
    """

    def __init__(self, to: To = "console") -> None:
        self._to = to
        self._sink: Sink | None = sink_for(to)

    @cached_property
    def _jlistener(self) -> Any:
        """What Spark calls, where there is a JVM at hand."""
        return java_listener(progress=self.onQueryProgress)

    @property
    def address(self) -> str | None:
        """Where the Prometheus page is, as a URL; None with other sinks, and once closed."""
        return self._sink.address if isinstance(self._sink, Prometheus) else None

    def close(self) -> None:
        """Tell no more, and give back what the sink holds: the Prometheus page's port."""
        sink, self._sink = self._sink, None
        if isinstance(sink, Prometheus):
            sink.close()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Tell of a micro-batch that has ended."""
        sink = self._sink
        if sink is None:
            return
        try:
            for record in _records(event.progress):
                sink(record)
        except Exception as error:
            self._give_up(error)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell: its last micro-batch has been told of."""

    def _give_up(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            self.close()
        with contextlib.suppress(Exception):  # standard error may be what has failed
            sys.stderr.write(
                f"semistream: warning: MetricsListener(to={self._to!r}) failed and tells no more; queries go on. "
                f"{type(error).__name__}: {error}\n"
            )


def _records(progress: Any) -> list[BatchMetrics]:
    counts = counts_of(BatchId(str(progress.id), progress.batchId))
    return [
        BatchMetrics(
            query_id=str(progress.id),
            query_name=progress.name,
            batch_id=progress.batchId,
            enrichment=label,
            time=progress.timestamp,
            duration_ms=progress.batchDuration,
            input_rows=progress.numInputRows,
            counts=counts[label],
        )
        for label in sorted(counts)
    ]
