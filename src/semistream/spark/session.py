"""A Spark session for the commands of this package, when the user has brought none."""

from __future__ import annotations

from pyspark.sql import SparkSession

from semistream.spark.environment import prepare_environment


def local_session(name: str) -> SparkSession:
    """The session that is there (spark-submit), or a quiet local one on all cores."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    prepare_environment()
    session = SparkSession.builder.appName(name).config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
