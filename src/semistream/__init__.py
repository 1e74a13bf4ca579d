"""semistream joins a fast stream with a master table far larger than memory, inside a fixed byte budget, on Spark.

Data flows through the folders in this order:

    workload/  what arrives  ->  master/  what it meets  ->  memory/  where it waits  ->  front/  what is hot
      ->  shedding/  what can wait  ->  joins/  how it matches  ->  cost/  what we expect  ->  spark/  where it runs
      ->  pipeline/  end to end  ->  cli/
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semistream.cost import Calibration, Tuning, calibrate, tune
from semistream.errors import MissingDependencyError, SemistreamError
from semistream.joins import ALGORITHMS, JoinedStream, join
from semistream.master import Master, build_master, open_master
from semistream.shedding import Shedding

if TYPE_CHECKING:
    from semistream.pipeline import Pipeline
    from semistream.spark.enrich import enrich, metrics_of
    from semistream.spark.errors import explained
    from semistream.spark.listener import MetricsListener

__all__ = [
    "ALGORITHMS",
    "Calibration",
    "JoinedStream",
    "Master",
    "MetricsListener",
    "Pipeline",
    "SemistreamError",
    "Shedding",
    "Tuning",
    "build_master",
    "calibrate",
    "enrich",
    "explained",
    "join",
    "metrics_of",
    "open_master",
    "tune",
]

_ON_SPARK = ("MetricsListener", "Pipeline", "enrich", "explained", "metrics_of")


def __getattr__(name: str) -> Any:
    """Names that need PySpark are looked up when they are used: the rest works without it."""
    if name not in _ON_SPARK:
        raise AttributeError(f"module 'semistream' has no attribute {name!r}")
    try:
        return getattr(
            import_module("semistream.pipeline" if name == "Pipeline" else "semistream.spark"), name
        )
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("pyspark", "pandas")):
            raise
        raise MissingDependencyError(
            f"semistream.{name}", found=f"no {error.name}", hint="pip install 'semistream[spark]'"
        ) from error
