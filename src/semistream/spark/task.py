"""What workers are told and where they are: an enrichment as it is sent to them, and the task that they run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from semistream.errors import StoreError
from semistream.joins.opening import Opening
from semistream.joins.reader import reserve_for
from semistream.joins.registry import Settings
from semistream.joins.sides import JoinShape, shape_join
from semistream.master import Master
from semistream.master.pins import pin
from semistream.spark.metrics import BatchId, Collected, Counted, Counts, Place

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_EXECUTION_ID = "spark.sql.execution.id"


@dataclass(frozen=True)
class Step:
    """One enrichment, as it is sent to the workers. Columns go by number: c0, c1, ..."""

    uid: str  # the same for enrichments that are the same but for the master's version: they share what is kept
    label: str
    master: Master
    on: dict[str, str]
    how: str
    columns: tuple[str, ...]
    algorithm: str
    memory_bytes: int
    disk: str
    settings: Settings
    follows: bool  # the newest version of the master, from micro-batch to micro-batch
    types: tuple[pa.DataType, ...]  # that Spark has for the master's columns

    def shape(self, stream: pa.Schema) -> JoinShape:
        """What joins what."""
        return shape_join(stream, self.master, on=self.on, how=self.how, columns=self.columns)

    def opening(self, shape: JoinShape, master: Master, heap_bytes: float) -> Opening:
        """What is to be opened."""
        return Opening(
            self.algorithm,
            master,
            shape,
            self.memory_bytes,
            self.disk,
            heap_bytes,
            self.settings,
            reserve_bytes=reserve_for(master, self.memory_bytes) if self.follows else 0,
        )


@dataclass
class Task:
    """Where this is: which task of which micro-batch."""

    batch: BatchId
    place: Place
    collected: Accumulator[Collected] | None
    versions: dict[int, int] = field(default_factory=dict)  # of the masters of steps
    under_way: list[Future[None]] = field(default_factory=list)

    @staticmethod
    def current(collected: Accumulator[Collected] | None) -> Task:
        """The task that this process runs."""
        context = TaskContext.get()
        if context is None:
            return Task(BatchId(), Place(), collected)
        query, number = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        batch = BatchId(query, int(number)) if query and number else BatchId()
        run = int(context.getLocalProperty(_EXECUTION_ID) or 0)
        place = Place(run, context.stageId(), context.partitionId(), context.taskAttemptId())
        return Task(batch, place, collected)

    def pinning(self, steps: tuple[Step, ...], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pin the versions when the first tuples come, so that the pins become safe while the others do."""
        for batch in batches:
            if len(batch) and not self.versions:
                for step in steps:
                    self.version(step)
            yield batch

    def version(self, step: Step) -> int:
        """The master's version that answers this micro-batch."""
        if id(step) not in self.versions:
            self.versions[id(step)] = self._pinned(step)
        return self.versions[id(step)]

    def _pinned(self, step: Step) -> int:
        if self.batch == BatchId():
            return step.master.version
        storage, version = step.master.storage, step.master.version
        if step.follows:
            return pin(storage, self.batch.query, self.batch.number, meanwhile=self._meanwhile)
        # Where it can be, so that vacuum knows; the version is known anyway.
        name = f"{self.batch.query}-at-{version}"
        with contextlib.suppress(StoreError):
            pin(
                storage,
                name,
                self.batch.number,
                version,
                meanwhile=lambda act: self._meanwhile(_if_it_can(act)),
            )
        return version

    def _meanwhile(self, act: Callable[[], None]) -> None:
        """Do something while the task goes on."""
        one = ThreadPoolExecutor(max_workers=1)
        self.under_way.append(one.submit(act))
        one.shutdown(wait=False)

    def wait(self) -> None:
        """Until that is done."""
        while self.under_way:
            self.under_way.pop().result()

    def count(self, step: Step, counts: Counts) -> None:
        """Tell the driver what was done."""
        if self.collected is not None:
            self.collected.add({(self.batch, step.uid): Counted.at(self.place, step.label, counts)})


def _if_it_can(act: Callable[[], None]) -> Callable[[], None]:
    def tried() -> None:
        with contextlib.suppress(StoreError):
            act()

    return tried
