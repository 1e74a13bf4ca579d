"""Soft state is removed when its query ends, and when the driver's process does.

On hosts other than the driver's, the next worker that starts removes what JVMs that are gone left behind (softstate.py).
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from semistream.spark.events import java_listener
from semistream.spark.softstate import Process, forget

_AT_MOST_MS = 2000
_cleaned: weakref.WeakKeyDictionary[Any, StreamingQueryListener] = weakref.WeakKeyDictionary()
_exits: set[Process] = set()


class _Cleaner(StreamingQueryListener):
    """Forgets the soft state of queries that end."""

    @cached_property
    def _jlistener(self) -> Any:
        return java_listener(terminated=lambda query: forget(query=query))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Spark calls what `_jlistener` says."""


def clean_up_after(spark: SparkSession) -> None:
    """Listen, once a session, for queries that end; at exit, remove what the driver's own JVM had."""
    if spark in _cleaned or not hasattr(
        spark, "_jsparkSession"
    ):  # Connect's workers are another host's business
        return
    listener = _Cleaner()
    _cleaned[spark] = listener
    spark.streams.addListener(listener)
    atexit.register(_stop_listening, weakref.ref(spark), listener)
    jvm = Process.of(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    if jvm is not None and jvm not in _exits:
        _exits.add(jvm)
        atexit.register(forget, jvm=jvm)


def _stop_listening(spark: weakref.ref[SparkSession], listener: StreamingQueryListener) -> None:
    """A driver that ends without stopping its session: Spark would log a trace for every event it can tell nobody of."""
    session = spark()
    if session is not None:
        with contextlib.suppress(Exception):  # the session may be stopped, its JVM gone
            session.streams.removeListener(listener)
            # An event that was on its way to it is still answered.
            session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_AT_MOST_MS)
