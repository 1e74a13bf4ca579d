"""Soft state is removed when its query ends, and when the driver's process does.

On hosts other than the driver's, the next worker that starts removes what JVMs that are gone left behind (softstate.py).
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from semistream.spark.softstate import Process, forget

_cleaned: weakref.WeakKeyDictionary[Any, StreamingQueryListener] = weakref.WeakKeyDictionary()
_exits: set[Process] = set()


class _Cleaner(StreamingQueryListener):
    """Forgets the soft state of queries that end."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Remove what the query had on this host."""
        forget(query=str(event.id))


def clean_up_after(spark: SparkSession) -> None:
    """Listen, once a session, for queries that end; at exit, remove what the driver's own JVM had."""
    if spark in _cleaned or not hasattr(
        spark, "_jsparkSession"
    ):  # Connect's workers are another host's business
        return
    listener = _Cleaner()
    _cleaned[spark] = listener
    spark.streams.addListener(listener)
    jvm = Process.of(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    if jvm is not None and jvm not in _exits:
        _exits.add(jvm)
        atexit.register(forget, jvm=jvm)
