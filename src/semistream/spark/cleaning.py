"""Soft state is removed when its query ends, and when the driver's process does.

On hosts other than the driver's, the next worker that starts removes what JVMs that are gone left behind (softstate.py).
"""

from __future__ import annotations

import atexit
import weakref
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

from semistream.spark.softstate import forget, sweep

_cleaned: weakref.WeakKeyDictionary[Any, StreamingQueryListener] = weakref.WeakKeyDictionary()


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
        forget(str(event.id))


def clean_up_after(spark: SparkSession) -> None:
    """Listen, once a session, for queries that end."""
    if spark in _cleaned:
        return
    if not _cleaned:
        atexit.register(sweep)
    listener = _Cleaner()
    _cleaned[spark] = listener
    if hasattr(
        spark, "_jsparkSession"
    ):  # on Connect listeners run in the server, which has its own workers' host
        spark.streams.addListener(listener)
