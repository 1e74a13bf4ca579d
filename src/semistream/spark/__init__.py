"""Where it runs: what semistream does with Spark. Of all folders only this one, pipeline/ and cli/ import pyspark.

enrich.py      DataFrame in, DataFrame out: checks, schema, the one mapInArrow
worker.py      what a Python worker does with the tuples of a task
softstate.py   front stages that the workers of a host share
metrics.py     what every micro-batch did, brought to the driver;  listener.py  who is told
source.py      a DataFrame as the source of a master
workload_source.py   streams of the workload/ folder as a Spark source
"""

from semistream.spark.enrich import enrich, metrics_of
from semistream.spark.errors import explained
from semistream.spark.listener import MetricsListener

__all__ = ["MetricsListener", "enrich", "explained", "metrics_of"]
