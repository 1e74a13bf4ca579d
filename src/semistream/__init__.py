"""semistream joins a fast stream with a master table far larger than memory, inside a fixed byte budget, on Spark.

Data flows through the folders in this order:

    workload/  what arrives  ->  master/  what it meets  ->  memory/  where it waits  ->  front/  what is hot
      ->  shedding/  what can wait  ->  joins/  how it matches  ->  cost/  what we expect  ->  spark/  where it runs
      ->  pipeline/  end to end  ->  cli/
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from semistream.errors import MissingDependencyError, SemistreamError

if TYPE_CHECKING:
    from semistream.cost import Calibration, Tuning, calibrate, tune
    from semistream.joins import ALGORITHMS, JoinedStream, join
    from semistream.master import Master, build_master, open_master
    from semistream.pipeline import Pipeline
    from semistream.shedding import Shedding
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

_FOLDERS = {
    "cost": ("Calibration", "Tuning", "calibrate", "tune"),
    "joins": ("ALGORITHMS", "JoinedStream", "join"),
    "master": ("Master", "build_master", "open_master"),
    "pipeline": ("Pipeline",),
    "shedding": ("Shedding",),
    "spark": ("MetricsListener", "enrich", "explained", "metrics_of"),
    "workload": (),
}
_FOLDER_OF = {name: folder for folder, names in _FOLDERS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names are looked up when they are used: most work without PySpark, and a Spark worker loads only what it runs."""
    if name in _FOLDERS:
        return import_module(f"semistream.{name}")
    if name not in _FOLDER_OF:
        raise AttributeError(f"module 'semistream' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"semistream.{_FOLDER_OF[name]}"), name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("pyspark", "pandas")):
            raise
        raise MissingDependencyError(
            f"semistream.{name}", found=f"no {error.name}", hint="pip install 'semistream[spark]'"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
