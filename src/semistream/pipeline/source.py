"""The stream of a pipeline: a format of Spark's, with the heartbeat beside it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from semistream.errors import InvalidInputError
from semistream.pipeline import heartbeat
from semistream.pipeline.config import SourceConfig
from semistream.pipeline.ledger import Ledger
from semistream.spark import workload_source


def open_source(spark: SparkSession, config: SourceConfig, ledger: Ledger) -> DataFrame:
    """The streaming DataFrame; a format that Spark does not know is told with what to do."""
    if config.format == workload_source.FORMAT:
        workload_source.register(spark)
    heartbeat.register(spark)
    reader = spark.readStream.format(config.format).options(**config.options)
    try:
        if config.schema is not None:
            reader = reader.schema(config.schema)
        stream = reader.load() if config.path is None else reader.load(config.path)
        columns = stream.schema.fields
    except Exception as error:  # PySpark has several for this
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidInputError(
            f'source.format = "{config.format}"', found=said[0], hint=_hint(said[0])
        ) from error
    beats = spark.readStream.format(heartbeat.FORMAT).option("path", str(ledger.heartbeat)).load()
    # It is always there, though few need it: Spark cannot go on with a checkpoint when a source is added or taken away.
    return stream.union(
        beats.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in columns])
    )


def _hint(said: str) -> str:
    if "DATA_SOURCE_NOT_FOUND" in said or "Failed to find" in said:
        return "Check the name, or put the connector on Spark's classpath (spark.jars.packages)."
    if "schema" in said.lower():
        return 'Add schema = "name TYPE, ..." to [source].'
    return "Check [source]: its options are Spark's."
