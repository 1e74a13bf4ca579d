"""Events of streaming queries, without what PySpark makes of them.

PySpark turns every event into Python objects before it calls a listener: a hundred calls into the JVM for the progress of a
micro-batch, some 60 ms of processor time on two cores that the query's own tasks want. Spark is given an object of its own
interface here, which asks an event for what is wanted of it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext


@dataclass(frozen=True)
class Progress:
    """What a micro-batch that has ended is told by; named as PySpark names it."""

    id: str
    name: str | None
    batchId: int  # noqa: N815
    timestamp: str
    batchDuration: int  # noqa: N815
    numInputRows: int  # noqa: N815

    @staticmethod
    def of(progress: Any) -> Progress:
        """From the JVM's."""
        return Progress(
            str(progress.id()),
            progress.name(),
            progress.batchId(),
            progress.timestamp(),
            progress.batchDuration(),
            progress.numInputRows(),
        )


@dataclass(frozen=True)
class ProgressEvent:
    """A micro-batch has ended."""

    progress: Progress


@dataclass
class _Called:
    """What Spark calls; its methods are named as Spark's are."""

    progress: Callable[[ProgressEvent], None] | None
    terminated: Callable[[str], None] | None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A micro-batch has ended."""
        if self.progress is not None:
            self.progress(ProgressEvent(Progress.of(event.progress())))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """A query has ended."""
        if self.terminated is not None:
            self.terminated(str(event.id()))

    class Java:
        """For py4j."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def java_listener(
    *,
    progress: Callable[[ProgressEvent], None] | None = None,
    terminated: Callable[[str], None] | None = None,
) -> Any:
    """A listener as the JVM has them, for `_jlistener`; `terminated` is called with the query's id."""
    streaming = SparkContext._jvm.org.apache.spark.sql.streaming
    return streaming.PythonStreamingQueryListenerWrapper(_Called(progress, terminated))
