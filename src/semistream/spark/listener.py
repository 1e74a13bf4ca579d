"""Who is told what every micro-batch did (a placeholder until the sinks are written)."""

from __future__ import annotations

from pyspark.sql.streaming import StreamingQueryListener


class MetricsListener(StreamingQueryListener):
    """Not written yet."""
