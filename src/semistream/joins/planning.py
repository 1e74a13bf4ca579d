"""Who chooses where the algorithm is "auto", and who tunes a join that runs. Joins know no costs, so `cost/` hands both in."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from semistream.joins.driver import Retune
from semistream.joins.opening import Opening

Chooser = Callable[[Opening, pa.RecordBatch | None], Opening]
_chooser: list[Chooser] = []
_retuner: list[Callable[[Opening], Retune]] = []


def choose_with(chooser: Chooser, retuner: Callable[[Opening], Retune]) -> None:
    """Ask these from now on."""
    _chooser[:], _retuner[:] = [chooser], [retuner]


def retuner_for(opening: Opening) -> Retune | None:
    """Who watches the stream, for a join that was planned as `opening` says."""
    return _retuner[0](opening) if _retuner else None


def planned(opening: Opening, sample: pa.RecordBatch | None) -> Opening:
    """The same with an algorithm, its parameters, and why; `sample` is what has arrived already."""
    if opening.algorithm != "auto":
        return opening
    return _chooser[0](opening, sample) if _chooser else opening
