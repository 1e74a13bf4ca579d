"""What a sample of a stream's answers says of the answers of the whole stream.

Each arriving tuple is kept with a probability p that depends on the load alone, and one that is kept has the weight 1 / p.
With y_t what a tuple contributes (one for each of its rows, or their values), N tuples arrived and sums over those that are kept,

    total  =  N * sum(w y) / sum(w)                                (Hajek's ratio estimator: N is known)
    error  =  z * N / sum(w) * sqrt(sum((w^2 - w) (y - R)^2)),     R = sum(w y) / sum(w)

where (w^2 - w) = (1 - p) / p^2 is the variance of w times the share that was kept. A tuple must have at most one row for
that: where the master's keys repeat, the bounds are infinite. Tuples that still wait count as if they had no row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

WEIGHT_COLUMN = "semistream_weight"


@dataclass(frozen=True)
class Estimate:
    """A total is between `value - error` and `value + error`, as often as `confidence` says."""

    value: float
    error: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.value:,.0f} +- {self.error:,.0f}"


@dataclass
class _Sums:
    """Sums over the rows of the sample."""

    weighted: float = 0.0  # w y
    spread: float = 0.0  # (w^2 - w) y
    squares: float = 0.0  # (w^2 - w) y^2

    def add(self, weights: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        variances = weights * weights - weights
        self.weighted += float(weights @ values)
        self.spread += float(variances @ values)
        self.squares += float(variances @ (values * values))


@dataclass
class Estimator:
    """Estimates of the number of rows, and of sums of columns."""

    sum_of: Sequence[str] = ()
    confidence: float = 0.95
    one_row_each: bool = True  # the master's keys are unique
    arrived: int = 0  # N
    kept: int = 0
    weights: float = 0.0  # sum(w) over tuples that were kept
    variances: float = 0.0  # sum(w^2 - w)
    _rows: _Sums = field(default_factory=_Sums)
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def sampled(self, arrived: int, kept: int, weight: float) -> None:
        """So many tuples arrived, and so many of them were kept, each with this weight."""
        self.arrived += arrived
        self.kept += kept
        self.weights += kept * weight
        self.variances += kept * (weight * weight - weight)

    def resumed(self, weights: NDArray[np.float64]) -> None:
        """Tuples of an earlier sample, with their weights, stand for as many as they did there."""
        self.arrived += round(float(weights.sum()))
        self.kept += len(weights)
        self.weights += float(weights.sum())
        self.variances += float((weights * weights - weights).sum())

    def answered(self, batch: pa.RecordBatch) -> None:
        """Rows that were put out, with their weights."""
        weights = batch.column(WEIGHT_COLUMN).to_numpy()
        self._rows.add(weights, np.ones(len(batch)))
        for name in self.sum_of:
            values = pc.fill_null(batch.column(name).cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
            self._sums.setdefault(name, _Sums()).add(weights, values)

    def to_json(self) -> dict[str, Any]:
        """What it has seen, as a record of JSON."""
        return {
            "arrived": self.arrived,
            "kept": self.kept,
            "weights": self.weights,
            "variances": self.variances,
            "rows": asdict(self._rows),
            "sums": {name: asdict(sums) for name, sums in self._sums.items()},
        }

    def go_on_with(self, seen: dict[str, Any]) -> None:
        """Begin with what another one has seen, as `to_json` gave it."""
        self.arrived, self.kept = int(seen["arrived"]), int(seen["kept"])
        self.weights, self.variances = float(seen["weights"]), float(seen["variances"])
        self._rows = _Sums(**seen["rows"])
        self._sums = {name: _Sums(**sums) for name, sums in seen["sums"].items()}

    @property
    def scale_up(self) -> float:
        """Arrived tuples per kept one."""
        return self.arrived / self.kept if self.kept else 1.0

    @property
    def count(self) -> Estimate:
        """Of the rows that all arrived tuples would have."""
        return self._estimate(self._rows)

    @property
    def sums(self) -> dict[str, Estimate]:
        """Of the columns in those rows."""
        return {name: self._estimate(self._sums.get(name, _Sums())) for name in self.sum_of}

    def _estimate(self, sums: _Sums) -> Estimate:
        if not self.weights:
            return Estimate(0.0, math.inf if self.arrived else 0.0, self.confidence)
        mean = sums.weighted / self.weights
        scale = self.arrived / self.weights
        variance = sums.squares - 2 * mean * sums.spread + mean * mean * self.variances
        deviation = scale * math.sqrt(max(variance, 0.0))
        z = NormalDist().inv_cdf(0.5 + self.confidence / 2)
        error = z * deviation if self.one_row_each or not self.variances else math.inf
        return Estimate(self.arrived * mean, error, self.confidence)
