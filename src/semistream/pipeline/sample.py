"""What is told of a stream of which only a sample was joined: tuples shed at random, and dropped.

Every tuple carries a weight from the source to the sink. When a micro-batch has its answers, the driver reads their weights,
and the columns whose sums are wanted, and adds them to what it knows; that is a part of the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from semistream.errors import InvalidInputError, did_you_mean
from semistream.pipeline.config import OverloadConfig
from semistream.shedding import WEIGHT_COLUMN, Estimate, Estimator


@dataclass(frozen=True)
class Sample:
    """What a sample says of everything that has arrived."""

    scale_up: float  # arrived tuples for each one that was let in
    count: Estimate  # of the rows that there would be
    sums: dict[str, Estimate]

    def to_json(self) -> dict[str, Any]:
        """As a record of JSON."""
        sums = {name: _record(one) for name, one in self.sums.items()}
        return {"scale_up": self.scale_up, "count": _record(self.count), "sums": sums}

    @staticmethod
    def of_json(found: dict[str, Any]) -> Sample:
        """What `to_json` gave."""
        sums = {name: _estimate(one) for name, one in found["sums"].items()}
        return Sample(float(found["scale_up"]), _estimate(found["count"]), sums)


@dataclass(frozen=True)
class Sampling:
    """How estimates go on from micro-batch to micro-batch."""

    sum_of: tuple[str, ...]
    confidence: float
    one_row_each: bool  # no master's key repeats

    def after(
        self, before: dict[str, Any] | None, *, arrived: int, kept: int, share: float, files: Sequence[str]
    ) -> dict[str, Any]:
        """With a micro-batch more: so many arrived, so many of them were let in, and these files have the answers."""
        estimator = Estimator(self.sum_of, self.confidence, self.one_row_each)
        if before is not None:
            estimator.go_on_with(before["seen"])
        estimator.sampled(arrived, kept, 1 / share)
        for path in files:
            with pq.ParquetFile(path) as file:
                for rows in file.iter_batches(columns=[WEIGHT_COLUMN, *self.sum_of]):
                    estimator.answered(rows)
        sample = Sample(estimator.scale_up, estimator.count, estimator.sums)
        return {**sample.to_json(), "seen": estimator.to_json()}


def weighed(stream: DataFrame, config: OverloadConfig) -> DataFrame:
    """The stream; where answers are a sample, with a weight for each tuple."""
    if not config.shedding.is_sampled:
        return stream
    if WEIGHT_COLUMN in stream.columns:
        raise InvalidInputError(
            'overload.strategy = "random" with fate = "dropped"',
            found=f"a column {WEIGHT_COLUMN!r} in the stream, where the weights go",
            hint="Rename it.",
        )
    return stream.withColumn(WEIGHT_COLUMN, F.lit(1.0))


def check_sums(config: OverloadConfig, output: pa.Schema) -> None:
    """Only what is in the output, and a number, can be summed."""
    for name in config.shedding.summed:
        if name not in output.names:
            raise InvalidInputError(
                f"overload.sum_of = {name!r}",
                found="no such column in the output",
                hint=f"{did_you_mean(name, output.names)}It has {', '.join(output.names)}.",
            )
        kind = output.field(name).type
        if not (pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind)):
            raise InvalidInputError(
                f"overload.sum_of = {name!r}", found=f"a column of {kind}", hint="Name one of numbers."
            )


def _record(estimate: Estimate) -> dict[str, float | None]:
    """As JSON, which has no infinity: no bound is null."""
    error = estimate.error if math.isfinite(estimate.error) else None
    return {"value": estimate.value, "error": error, "confidence": estimate.confidence}


def _estimate(found: dict[str, Any]) -> Estimate:
    error = math.inf if found["error"] is None else found["error"]
    return Estimate(found["value"], error, found["confidence"])
