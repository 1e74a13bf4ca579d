"""What every micro-batch did, counted in the workers and brought to the driver by a Spark accumulator.

Counts are kept by query, micro-batch, enrichment and partition, and a partition that is run again replaces what it counted
before: so a sum is exact however often tasks are retried.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

KEPT_BATCHES = 1_000  # of all queries; older ones are forgotten
BATCH_JOB = "batch"  # in place of a query's id


@dataclass(frozen=True)
class BatchId:
    """A micro-batch of a query, or a batch job (query "batch", number -1)."""

    query: str = BATCH_JOB
    number: int = -1


@dataclass(frozen=True)
class Counts:
    """What one enrichment did. Sums over the tasks, except where a comment says otherwise."""

    tuples: int = 0  # arrived
    matches: int = 0  # tuples that met a master row
    misses: int = 0  # tuples that met none
    rows: int = 0  # put out
    front_hits: int = 0  # tuples answered by the front stage
    pages: int = 0  # read
    bytes: int = 0  # read
    read_seconds: float = 0.0  # in reading
    join_seconds: float = 0.0  # in the join, reading included, waiting for Spark not
    budget_bytes: int = 0  # of one worker: the largest
    used_bytes: int = 0  # of that budget: the largest
    peak_rss_bytes: int = 0  # of a worker process: the largest
    version: int = 0  # of the master: the newest

    @property
    def front_share(self) -> float:
        """The share of the tuples that the front stage answered."""
        return self.front_hits / self.tuples if self.tuples else 0.0

    @staticmethod
    def total(counts: Iterable[Counts]) -> Counts:
        """All of them together."""
        every = list(counts)
        largest = ("budget_bytes", "used_bytes", "peak_rss_bytes", "version")
        return Counts(
            **{
                f.name: (max if f.name in largest else sum)(getattr(c, f.name) for c in every)
                for f in fields(Counts)
            }
            if every
            else {}
        )

    def to_dict(self) -> dict[str, float]:
        """As a record of JSON, with the front stage's share."""
        return asdict(self) | {"front_share": round(self.front_share, 4)}


Collected = dict[tuple[BatchId, str], dict[int, Counts]]  # by micro-batch and enrichment, then by partition


class _Merge(AccumulatorParam[Collected]):
    """Later counts of the same partition replace earlier ones; the oldest micro-batches are forgotten."""

    def zero(self, value: Collected) -> Collected:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: Collected, value2: Collected) -> Collected:  # noqa: N802
        for key, partitions in value2.items():
            value1.setdefault(key, {}).update(partitions)
        while len(value1) > KEPT_BATCHES:
            del value1[next(iter(value1))]
        return value1


_accumulators: dict[str, Accumulator[Collected]] = {}
_lock = threading.Lock()


def accumulator_of(context: SparkContext) -> Accumulator[Collected]:
    """The one accumulator of an application, made when it is first asked for."""
    with _lock:
        key = str(context.applicationId)
        if key not in _accumulators:
            _accumulators[key] = context.accumulator({}, _Merge())
        return _accumulators[key]


def counts_of(batch: BatchId, label: str | None = None) -> dict[str, Counts]:
    """What is known on the driver of a micro-batch, by enrichment (or of one enrichment)."""
    found: dict[str, Counts] = {}
    with _lock:
        accumulators = list(_accumulators.values())
    for accumulator in accumulators:
        for (which, name), partitions in list(accumulator.value.items()):
            if which == batch and label in (None, name):
                found[name] = Counts.total(list(partitions.values()))
    return found


def peak_rss_bytes() -> int:
    """The most memory this process has had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
