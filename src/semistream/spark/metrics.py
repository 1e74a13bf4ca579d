"""What every micro-batch did, counted in the workers and brought to the driver by a Spark accumulator.

Counts are kept by micro-batch, enrichment and task. A task that is tried again replaces what it counted before, and a query
that is run again replaces its run before, so a sum is that of one run however often parts of it were retried.
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


@dataclass(frozen=True)
class Place:
    """Who counted: a task of a stage, which attempt of it, and the run of the query (Spark's execution id)."""

    run: int = 0
    stage: int = 0
    partition: int = 0
    attempt: int = 0


@dataclass
class Counted:
    """What the tasks of one run counted for one enrichment."""

    label: str
    run: int
    tasks: dict[
        tuple[int, int], tuple[int, Counts]
    ]  # by stage and partition: the attempt, and what it counted

    @staticmethod
    def at(place: Place, label: str, counts: Counts) -> Counted:
        """What one task counted."""
        return Counted(label, place.run, {(place.stage, place.partition): (place.attempt, counts)})

    def add(self, other: Counted) -> Counted:
        """With what other tasks counted; a later run stands alone."""
        if other.run != self.run:
            return max(self, other, key=lambda counted: counted.run)
        for task, (attempt, counts) in other.tasks.items():
            known = self.tasks.get(task)
            if known is None or attempt > known[0]:
                self.tasks[task] = (attempt, counts)
            elif attempt == known[0]:  # one task that went through several partitions, as after coalesce()
                self.tasks[task] = (attempt, Counts.total([known[1], counts]))
        return self


Collected = dict[tuple[BatchId, str], Counted]  # by micro-batch and enrichment


class _Merge(AccumulatorParam[Collected]):
    """See `Counted.add`; the oldest micro-batches are forgotten."""

    def zero(self, value: Collected) -> Collected:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: Collected, value2: Collected) -> Collected:  # noqa: N802
        for key, counted in value2.items():
            value1[key] = value1[key].add(counted) if key in value1 else counted
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


def counts_of(batch: BatchId) -> dict[str, Counts]:
    """What is known on the driver of a micro-batch, by the label of each enrichment."""
    here = [counted for (which, _), counted in _known() if which == batch]
    newest: dict[str, int] = {}
    for counted in here:
        newest[counted.label] = max(counted.run, newest.get(counted.label, counted.run))
    found: dict[str, Counts] = {}
    for counted in here:
        if counted.run < newest[counted.label]:
            continue  # the micro-batch was run again, by a query that had been changed
        name, number = counted.label, 2
        while name in found:
            name, number = f"{counted.label}-{number}", number + 1
        found[name] = _sum(counted)
    return found


def counts_of_step(uid: str) -> Counts | None:
    """What an enrichment counted in its last run as a batch job."""
    for (which, name), counted in _known():
        if which == BatchId() and name == uid:
            return _sum(counted)
    return None


def _known() -> list[tuple[tuple[BatchId, str], Counted]]:
    with _lock:
        accumulators = list(reversed(_accumulators.values()))  # of the newest application first
    return [item for accumulator in accumulators for item in list(accumulator.value.items())]


def _sum(counted: Counted) -> Counts:
    return Counts.total(counts for _, counts in list(counted.tasks.values()))


def peak_rss_bytes() -> int:
    """The most memory this process has had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
