"""What a Python worker does for `enrich`: one pass over the tuples of a task, through every enrichment of a star.

A worker keeps its open joins, with their buffers and front stages, between the tasks it is given. What it keeps is soft:
another worker, or this one started anew, goes on from the front stage that was published last (softstate.py), or from
nothing. Every tuple of a task is answered before the task ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.accumulators import Accumulator

from semistream.arrow import plain
from semistream.joins.driver import Driver
from semistream.joins.frontstage import FrontStage
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import OpenJoin, moved_to, open_join
from semistream.master import Master
from semistream.spark.giving_back import give_back, settle
from semistream.spark.metrics import Collected, Counts, peak_rss_bytes
from semistream.spark.softstate import SoftState, digest_of, sweep
from semistream.spark.task import Step, Task

_TUPLES_AT_ONCE = 1 << 17  # more than Spark sends in a batch: the more, the fewer pages are read
_BYTES_AT_ONCE = 8 << 20  # of tuples, unless Spark sends more in a batch
_ROWS_OUT = (
    1 << 13
)  # a batch costs Spark as much as some thousand rows; arrays of more are new memory each time
_PUBLISH_EVERY_S = 10.0
_TRY_AGAIN_S = 60.0  # where a state could not be written
_PUBLISH_SHARE = 0.1  # of the front stage's places: so many newcomers make a new state worth publishing


@dataclass(frozen=True)
class Enrichment:
    """The function that Spark runs in its workers: batches of tuples in, enriched batches out.

    In between columns go by number: names may repeat in another case, or be those of a master.
    """

    steps: tuple[Step, ...]
    collected: Accumulator[Collected] | None = None
    names: tuple[str, ...] | None = None  # of the output's columns; their numbers if there are none

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Enrich the tuples of one task."""
        task = Task.current(self.collected)
        stream: Iterator[pa.RecordBatch] = together(
            map(_numbered, map(plain, task.pinning(self.steps, batches))), _TUPLES_AT_ONCE, _BYTES_AT_ONCE
        )
        for step in self.steps:
            stream = as_spark_has_them(step, together(_enriched(step, task, stream), _ROWS_OUT))
        make_room_for(self.steps)
        for batch in stream:
            task.wait()
            yield batch if self.names is None else batch.rename_columns(self.names)
        task.wait()  # that there is no answer is one too


@dataclass
class Kept:
    """An open join that a worker keeps."""

    opened: OpenJoin
    schema: pa.Schema
    used_at: float = 0.0
    is_settled: bool = False  # has loaded its kernels, and let go of what came before it
    published_at: float = field(default_factory=time.monotonic)
    failed_at: float = float("-inf")  # when there was no room for it
    generation: int = 0  # of the published state that the front stage began with
    newcomers: int = 0  # when it was last published or adopted

    def serves(self, schema: pa.Schema, master: Master, heap_bytes: float | None = None) -> bool:
        """Whether it can go on: with this stream, and with this version or another one of the same store."""
        if heap_bytes not in (None, self.opened.heap_bytes):
            return False
        current = self.opened.opening.master
        same_store = master.version != current.version or master.manifest == current.manifest
        return schema == self.schema and same_store and master.schema == current.schema

    def share_front(self, step: Step, task: Task) -> None:
        """Publish the front stage if it has learnt much since it was published last."""
        front = _shared_front(self.opened)
        if front is None:
            return
        soft = _soft_state(task)
        if soft is None:
            return
        if not soft.generation(step.uid):  # none yet, or it went with the query's last run
            self.generation = self.newcomers = 0
        learnt = front.stats.cached - self.newcomers
        if learnt < _PUBLISH_SHARE * front.hot.table.capacity:
            return
        if self.generation and time.monotonic() - self.published_at < _PUBLISH_EVERY_S:
            return
        if time.monotonic() - self.failed_at < _TRY_AGAIN_S:
            return
        self.generation = soft.publish(step.uid, self._digest(step), front.state())
        self.published_at, self.newcomers = time.monotonic(), front.stats.cached
        if not self.generation:
            self.failed_at = time.monotonic()

    def adopt_front(self, step: Step, task: Task) -> None:
        """Go on with the front stage that was published last, if it is another's."""
        front = _shared_front(self.opened)
        soft = _soft_state(task) if front is not None else None
        generation = soft.generation(step.uid) if soft is not None else 0
        if front is None or soft is None or generation in (0, self.generation):
            return
        self.generation = generation
        state, own = soft.load(step.uid, self._digest(step)), front.state()
        if state is not None and all(
            name in state and state[name].size == array.size and state[name].dtype == array.dtype
            for name, array in own.items()
        ):
            front.adopt(state)
        self.newcomers = front.stats.cached

    def _digest(self, step: Step) -> str:
        opening = self.opened.opening
        return digest_of(
            (opening.master.manifest, self.schema, step.columns, step.how, step.memory_bytes, opening.name)
        )


_kept: dict[str, Kept] = {}
_swept: list[bool] = []


def _shared_front(opened: OpenJoin) -> FrontStage | None:
    """The front stage, where there is one that learns."""
    return opened.join if isinstance(opened.join, FrontStage) and opened.join.watched is not None else None


def _soft_state(task: Task) -> SoftState | None:
    if not _swept:
        _swept.append(True)
        sweep()
    return SoftState.open(task.batch.query)


def _enriched(step: Step, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The tuples of a task through one enrichment."""
    arriving, leaving = _Timed(batches), _Timed(iter(()))
    first = next(arriving, None)
    if first is None:
        task.count(step, Counts(budget_bytes=step.memory_bytes))
        return
    arriving.seconds = 0.0  # of what came before the join began
    began = time.perf_counter()
    kept = take_join(step, task, first)
    opening_s = time.perf_counter() - began
    try:
        before, disk = numbers_of(kept), kept.opened.reader.disk.stats.snapshot()
        driver = Driver(kept.opened, chain([first], arriving))
        leaving.source = chain.from_iterable(driver.run())
        yield from leaving
        kept.share_front(step, task)
        keep_join(step, kept)
    except (
        BaseException
    ):  # also where Spark wants no more: tuples may wait inside, so it cannot be used again
        kept.opened.close()
        raise
    read, after = kept.opened.reader.disk.stats - disk, numbers_of(kept)
    task.count(
        step,
        Counts(
            **{name: after[name] - before[name] for name in after},
            bytes=read.bytes,
            read_seconds=read.seconds,
            join_seconds=opening_s + leaving.seconds - arriving.seconds,
            budget_bytes=step.memory_bytes,
            used_bytes=kept.opened.budget.used_bytes,
            peak_rss_bytes=peak_rss_bytes(),
            version=kept.opened.opening.master.version,
        ),
    )


def numbers_of(kept: Kept) -> dict[str, int]:
    """What a join has done so far."""
    stats = kept.opened.join.stats
    return {
        "tuples": stats.tuples,
        "matches": stats.answered - stats.misses,
        "misses": stats.misses,
        "rows": stats.rows,
        "front_hits": stats.front_hits,
        "pages": stats.pages,
    }


def take_join(
    step: Step,
    task: Task,
    first: pa.RecordBatch,
    *,
    version: int | None = None,
    heap_bytes: float | None = None,
) -> Kept:
    """The worker's join for this enrichment, on the version that answers the micro-batch; opened if there is none.

    `version` is another one, for tuples that have begun with it.
    `heap_bytes` asks for a window made for tuples with so many bytes of strings each: what waited in one like it fits.
    """
    version = task.version(step) if version is None else version
    master = step.master if version == step.master.version else step.master.at_version(version)
    kept = _kept.pop(step.uid, None)
    if kept is not None and not kept.serves(first.schema, master, heap_bytes):
        kept.opened.close()
        kept = None
    if kept is None:
        shape = step.shape(first.schema)
        heap_bytes = string_bytes_of(shape, first) if heap_bytes is None else heap_bytes
        opened = open_join(step.opening(shape, master, heap_bytes))
        kept = Kept(opened, first.schema)
    elif kept.opened.opening.master.version != version:
        kept.opened, kept.is_settled = moved_to(kept.opened, master), False
    kept.adopt_front(step, task)
    return kept


def keep_join(step: Step, kept: Kept) -> None:
    """Keep a join in which nobody waits, for the next task."""
    kept.used_at = time.monotonic()
    if not kept.is_settled:
        give_back()
        settle()
        kept.is_settled = True
    _kept[step.uid] = kept


def make_room_for(steps: tuple[Step, ...]) -> None:
    """Close joins of other queries, those used longest ago first, until they hold no more memory than this task may."""
    ours = {step.uid for step in steps}
    others = sorted((uid for uid in _kept if uid not in ours), key=lambda uid: _kept[uid].used_at)
    held = sum(_kept[uid].opened.budget.total_bytes for uid in others)
    for uid in others:
        if held <= sum(step.memory_bytes for step in steps):
            return
        held -= _kept[uid].opened.budget.total_bytes
        _kept.pop(uid).opened.close()


@dataclass
class _Timed(Iterator[pa.RecordBatch]):
    """Batches, and the seconds spent in making them."""

    source: Iterator[pa.RecordBatch]
    seconds: float = 0.0

    def __next__(self) -> pa.RecordBatch:
        began = time.perf_counter()
        try:
            return next(self.source)
        finally:
            self.seconds += time.perf_counter() - began


def _numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns([f"c{i}" for i in range(batch.num_columns)])


def together(
    batches: Iterable[pa.RecordBatch], most: int, most_bytes: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Small batches put together, up to so many rows and bytes; empty ones are left out."""
    some: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        size = 0 if most_bytes is None else batch.nbytes
        if rows and (rows + len(batch) > most or (most_bytes is not None and nbytes + size > most_bytes)):
            yield pa.concat_batches(some) if len(some) > 1 else some[0]
            some, rows, nbytes = [], 0, 0
        if len(batch):
            some.append(batch)
            rows += len(batch)
            nbytes += size
    if rows:
        yield pa.concat_batches(some) if len(some) > 1 else some[0]


def as_spark_has_them(step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The output with columns by number, the master's in the types that Spark has for them."""
    for batch in batches:
        columns, first = batch.columns, batch.num_columns - len(step.types)
        for i, kind in enumerate(step.types, first):
            columns[i] = _cast(columns[i], kind)
        yield pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in Spark's type; of times finer than a microsecond, the microsecond they are in."""
    if column.type == kind:
        return column
    if pat.is_struct(kind):
        children = [_cast(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pat.is_timestamp(kind) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(kind, safe=False)
