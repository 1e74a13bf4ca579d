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


def retuner_for(opening: Opening) -> Retune:
    """Who watches the stream, for a join that was planned as `opening` says."""
    retuner: Retune = importlib.import_module(_RETUNER).Retuner(opening)
    return retuner


def rate_retuner_for(opening: Opening) -> RetuneToRate:
    """Who watches how fast the stream arrives."""
    retuner: RetuneToRate = importlib.import_module(_RETUNER).RateRetuner(opening)
    return retuner


def planned(opening: Opening, sample: pa.RecordBatch | None) -> Opening:
    """The same with an algorithm, its parameters, and why; `sample` is what has arrived already."""
    if opening.algorithm != "auto":
        return opening
    chosen: Opening = importlib.import_module(_CHOOSER).choose(opening, sample)
    return chosen
