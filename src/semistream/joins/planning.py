"""Who chooses where the algorithm is "auto". Joins know no costs, so `cost/` hands its chooser in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from semistream.joins.opening import Opening

Chooser = Callable[[Opening, pa.RecordBatch | None], Opening]
_chooser: list[Chooser] = []


def choose_with(chooser: Chooser) -> None:
    """Ask this one from now on."""
    _chooser[:] = [chooser]


def planned(opening: Opening, sample: pa.RecordBatch | None) -> Opening:
    """The same with an algorithm, its parameters, and why; `sample` is what has arrived already."""
    if opening.algorithm != "auto":
        return opening
    return _chooser[0](opening, sample) if _chooser else replace(opening, algorithm=opening.name)
