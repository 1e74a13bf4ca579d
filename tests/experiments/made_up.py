"""Results that no run gave: what a judge is tried on."""

from __future__ import annotations

from collections.abc import Callable

from semistream.experiments.case import Measured
from semistream.experiments.registry import studies_of
from semistream.experiments.scale import SCALES
from semistream.experiments.study import Run, Study


def measured(rate: float, **more) -> Measured:
    """Of 1,000 seconds."""
    counts = dict.fromkeys(("misses", "front_hits", "admitted", "front_probes", "cached", "evicted"), 0)
    values = {
        "answered": round(1000 * rate),
        "rows": round(1000 * rate),
        "advances": 1000,
        "pages": 1000,
        "probes": 1000,
        "calls": 1000,
        "seeks": 0,
        "bytes": 10**9,
        "disk_seconds": 500.0,
        "seconds": 1000.0,
        "mean_pending": 1000.0,
        "window_tuples": 1000,
        "used": {"window": 50_000, "front stage": 10_000},
        **counts,
        **more,
    }
    return Measured(**values)


def study_named(name: str) -> Study:
    from semistream.experiments.claims import CLAIMS

    return next(study for study in studies_of(tuple(CLAIMS)) if study.name == name)


def run_of(name: str, point: Callable[[str, float], Measured], *, scale: str = "default") -> Run:
    """A run of a study whose every point is made up."""
    study = study_named(name)
    at = study.points(SCALES[scale])
    xs = tuple(dict.fromkeys(x for _, x in at))
    return Run(study, SCALES[scale], xs, {key: point(*key) for key in at})
