"""Who chooses where the algorithm is "auto", and who tunes a join that runs.

Joins know no costs: whoever does is looked up by name, when there is something to choose.
"""

from __future__ import annotations

import importlib

import pyarrow as pa

from semistream.joins.driver import Retune
from semistream.joins.opening import Opening
from semistream.joins.paced import RetuneToRate

_CHOOSER, _RETUNER = "semistream.cost.auto", "semistream.cost.retuning"
_REPLANNER = "semistream.cost.replanning"


def retuner_for(opening: Opening) -> Retune:
    """Who watches the stream, for a join that was planned as `opening` says."""
    retuner: Retune = importlib.import_module(_RETUNER).Retuner(opening)
    return retuner


def rate_retuner_for(opening: Opening) -> RetuneToRate:
    """Who watches how fast the stream arrives."""
    retuner: RetuneToRate = importlib.import_module(_RETUNER).RateRetuner(opening)
    return retuner


def may_be_replanned(opening: Opening, sample: pa.RecordBatch | None) -> bool:
    """Whether a plan is made of too few tuples to tell: a plan there is only for "auto", and where tuples may wait."""
    if opening.algorithm != "auto" or opening.settings.at_once or not opening.master.rows:
        return False
    enough: int = importlib.import_module(_REPLANNER).ENOUGH
    return sample is not None and len(sample) < enough


def replanner_for(opening: Opening, then: Retune | None) -> Retune:
    """Who plans once more, when there are tuples enough, for a join that `opening` asks for; then the other watches."""
    replanner: Retune = importlib.import_module(_REPLANNER).Replanner(opening, then)
    return replanner


def paced_replanner_for(opening: Opening, then: RetuneToRate | None) -> RetuneToRate:
    """The same for a stream that has arrival times."""
    module = importlib.import_module(_REPLANNER)
    replanner: RetuneToRate = module.PacedReplanner(module.Replanner(opening), then)
    return replanner


def planned(opening: Opening, sample: pa.RecordBatch | None) -> Opening:
    """The same with an algorithm, its parameters, and why; `sample` is what has arrived already."""
    if opening.algorithm != "auto":
        return opening
    chosen: Opening = importlib.import_module(_CHOOSER).choose(opening, sample)
    return chosen
