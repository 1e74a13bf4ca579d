"""Every algorithm put together from its parts inside a budget, and moved on to a new version of the master.

| name | is |
|---|---|
| inlj, meshjoin, r-meshjoin, hybridjoin | themselves |
| x-hybridjoin | pinned pages before hybridjoin |
| optimised-x-hybridjoin | hot rows that never change before hybridjoin |
| cinlj, cmeshjoin, chybridjoin | the front stage before inlj, meshjoin, hybridjoin |
| in-memory | the whole master as hot rows |
| batch look-up | the front stage before look-ups that nobody waits for: `auto` on Spark |
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from semistream.config import format_bytes
from semistream.errors import InvalidInputError
from semistream.front import FrequencyRecorder
from semistream.joins import rmeshjoin
from semistream.joins.base import Answers, Join, JoinStats
from semistream.joins.closed import Closed
from semistream.joins.division import (
    block_pages,
    default_disk,
    disk_buffer_bytes,
    front_rows,
    pinned_bytes,
    reads_ahead,
)
from semistream.joins.frontstage import FrontStage, Watched
from semistream.joins.hotrows import HotRows
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.inlj import IndexNestedLoopJoin
from semistream.joins.inmemory import InMemoryJoin
from semistream.joins.lookup import BatchLookUp
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.optimisedxhybridjoin import fill_hot_rows
from semistream.joins.pagefinder import PageFinder, is_unique, same_pages
from semistream.joins.reader import Loaded, MasterReader, index_bytes, reserve_for
from semistream.joins.registry import BATCH_LOOKUP, FRONTED, LOOKING_UP, SCANNING, Settings, check_algorithm
from semistream.joins.sides import JoinShape, Tuples
from semistream.joins.waiting import Waiting
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.master import Master
from semistream.memory.budget import Budget


@dataclass(frozen=True)
class Opening:
    """What is to be opened. `heap_bytes` is what the strings of a stream tuple take."""

    algorithm: str
    master: Master
    shape: JoinShape
    memory_bytes: int
    disk_kind: str
    heap_bytes: float
    settings: Settings
    reserve_bytes: int = 0  # left free, for the index of another version
    ordered_bytes: int = 0  # for answers that wait for their turn
    stream_bytes: int = (
        0  # for tuples that have arrived and are not offered, or are on their way to and from the store
    )
    why: str = ""  # this algorithm, where it was chosen
    planned_for: tuple[float, float] | None = None  # the skew and the share of misses, where it was chosen

    @property
    def name(self) -> str:
        """The algorithm, chosen if that was left to us."""
        name = check_algorithm(self.algorithm)
        if name != "auto":
            return name
        if self.master.layout == "heap" or self.shape.condition is not None:
            return "cmeshjoin"
        return BATCH_LOOKUP if self.settings.at_once else "chybridjoin"


@dataclass
class OpenJoin:
    """A join with what it was made of; to be closed."""

    opening: Opening
    budget: Budget
    reader: MasterReader
    finder: PageFinder | None
    join: Join

    def close(self) -> None:
        """Close what was opened."""
        if isinstance(self.join, FrontStage):
            self.join.unwatch()  # else the two would keep each other alive
        self.reader.close()
        self.reader.disk.close()
        if self.finder is not None:
            self.finder.close()

    def give_up(self, master: Master) -> None:
        """Close it and let go of its memory, which a join with `master` needs: nobody waits in it."""
        self.close()
        self.opening = replace(self.opening, master=master, heap_bytes=self.heap_bytes)
        self.join = Closed(self.join.stats, self.opening.shape, self.opening.master.version)
        self.reader.let_go(master)
        self.finder = None

    @property
    def disk_seconds(self) -> float:
        """Time spent reading, in all."""
        disks = [self.reader.disk, self.finder.index_disk if self.finder is not None else None]
        return sum(disk.stats.seconds for disk in disks if disk is not None)

    @property
    def heap_bytes(self) -> float:
        """What the strings of a tuple may take in the window as it is divided now."""
        waiting = getattr(innermost(self.join), "waiting", None)
        return waiting.heap_bytes if isinstance(waiting, Waiting) else self.opening.heap_bytes

    def look_up_at(self, position: float) -> None:
        """Let the tuples at this position of the queue choose what is read, where tuples choose."""
        hybrid = innermost(self.join)
        if isinstance(hybrid, HybridJoin):
            hybrid.look_up = position

    def answer_known(self, tuples: Tuples) -> tuple[Answers, NDArray[np.int64]]:
        """Answer who meets a hot row, where there is a front stage; give which do not, none of whom is taken."""
        if isinstance(self.join, FrontStage):
            return self.join.answer_known(tuples)
        return iter(()), np.arange(len(tuples), dtype=np.int64)

    def move_to(self, master: Master) -> bool:
        """Go on with another version, when nobody waits: rows in memory that it has unchanged are kept.

        False where that cannot be done within what is allocated: open the join anew then.
        """
        name, reader = self.opening.name, self.reader
        if name in ("in-memory", "x-hybridjoin", "optimised-x-hybridjoin"):
            return False
        if not self.opening.reserve_bytes:  # the indexes of both have no room beside each other
            return False
        grown = index_bytes(master) - self.budget.taken["index"]
        if grown > self.budget.left_bytes or not reader.has_room_for(master):
            return False
        if self.finder is not None and not self.finder.has_room_for(master):
            return False
        front = self.join if isinstance(self.join, FrontStage) else None
        if front is not None:
            front.forget_changed(lambda keys: same_pages(reader.master, master, keys))
        self.close()
        self.budget.taken["index"] += grown
        self.opening = replace(self.opening, master=master)
        reader.move_to(master, master.open_disk(self.opening.disk_kind))
        if self.finder is not None:
            self.finder.move_to(master, self.opening.disk_kind)
        if front is not None:
            front.complete = _complete(master, self.finder)
            front.watch(front.watched)
        behind = front.behind if front is not None else self.join
        if isinstance(behind, MeshJoin):
            behind.restart(_per_step(self.opening, behind.waiting))
        return True


def innermost(join: Join) -> Join:
    """The join behind hot rows and pinned pages: where tuples wait, if they do."""
    behind = join.behind if isinstance(join, FrontStage) else join
    return behind.hybrid if isinstance(behind, XHybridJoin) else behind


def plan_line(opening: Opening) -> str:
    """What runs and why, in one line."""
    why = f": {opening.why}" if opening.why else ""
    return f"{opening.name} within {format_bytes(opening.memory_bytes)}{why}"


def open_join(opening: Opening, stats: JoinStats | None = None) -> OpenJoin:
    """Put an algorithm together; `stats` go on counting where there are some."""
    stats = JoinStats() if stats is None else stats
    stats.budget_bytes = opening.memory_bytes
    stats.plan = plan_line(opening)
    _check(opening)
    budget = Budget(opening.memory_bytes - opening.reserve_bytes)
    parts = _Parts(opening, budget, stats)
    try:
        opened = parts.build()
    except BaseException:
        parts.close()
        raise
    budget.total_bytes = opening.memory_bytes
    stats.used = budget.taken
    return opened


def moved_to(opened: OpenJoin, master: Master) -> OpenJoin:
    """The join on another version of the master, when nobody waits: the same one, or a new one in its place."""
    current = opened.opening.master
    if master.schema != current.schema or master.key != current.key:
        raise InvalidInputError(
            f"following {current.path} from version {current.version} to {master.version}",
            found="other columns or another key",
            hint="Start a new join.",
        )
    stats = opened.join.stats
    if not opened.move_to(master):
        del current  # its index takes memory too
        opened.give_up(master)
        reserve_bytes = reserve_for(master, opened.opening.memory_bytes)
        opened = open_join(replace(opened.opening, reserve_bytes=reserve_bytes), stats)
    stats.versions += 1
    return opened


def _check(opening: Opening) -> None:
    name, shape = opening.name, opening.shape
    if shape.condition is not None and name not in (*SCANNING, "in-memory"):
        raise InvalidInputError(
            f"condition= with algorithm={name!r}",
            found="a join that looks rows up by key",
            hint=f"Use one of {', '.join(SCANNING)}.",
        )
    if not shape.is_keyed and name == "in-memory":
        raise InvalidInputError(
            "algorithm='in-memory' without on=", found="no key to look up", hint="Use meshjoin, which scans."
        )


class _Parts:
    """What every algorithm is built from, in the order in which it takes its part of the budget."""

    def __init__(self, opening: Opening, budget: Budget, stats: JoinStats) -> None:
        self.opening, self.budget, self.stats = opening, budget, stats
        self.name, self.master, self.shape = opening.name, opening.master, opening.shape
        self.settings = opening.settings
        self.finder: PageFinder | None = None
        self.reader: MasterReader | None = None
        self.disk = self.master.open_disk(opening.disk_kind)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.disk.close()
        if self.finder is not None:
            self.finder.close()

    def build(self) -> OpenJoin:
        if self.opening.ordered_bytes:
            self.budget.take("ordered output", self.opening.ordered_bytes, who=self.name)
        if self.opening.stream_bytes:
            self.budget.take("stream buffer", self.opening.stream_bytes, who=self.name)
        if self.name in LOOKING_UP:
            self.finder = PageFinder.open(
                self.master, self.stats, self.budget, self.opening.disk_kind, who=self.name
            )
        self.reader = self._reader()
        return OpenJoin(self.opening, self.budget, self.reader, self.finder, self._join(self.reader))

    def _join(self, reader: MasterReader) -> Join:
        if self.name == "in-memory":
            return InMemoryJoin.open(self.shape, reader, self.budget, self.stats)
        if self.name == "x-hybridjoin":
            pinned = _first_pages(self._pinned_reader())
            return XHybridJoin(self._hybrid(self._waiting(reader)), pinned)
        # Only a key can say that a row in memory is all that a tuple may meet.
        front = self._front(reader) if self.name in FRONTED and self.shape.is_keyed else None
        watched: Watched
        behind: Join
        if self.name == BATCH_LOOKUP and self.finder is not None:
            watched = behind = BatchLookUp(self.shape, reader, self.finder, self.stats)
        else:
            watched = waiting = self._waiting(reader)
            behind = self._behind(waiting)
        if front is None:
            return behind
        stage = FrontStage(behind, *front, _complete(self.master, self.finder))
        if self.name == "optimised-x-hybridjoin":
            fill_hot_rows(stage, reader)
        else:
            stage.watch(watched)
        return stage

    def _reader(self) -> MasterReader:
        self.budget.take("index", index_bytes(self.master), who=self.name)
        defaults = default_disk(self.master, self.opening.disk_kind)
        return MasterReader.open(
            self.master,
            self.shape,
            self.disk,
            self.budget,
            disk_buffer_bytes(self.name, self.budget.total_bytes, defaults, self.settings),
            who=self.name,
            halves=2 if reads_ahead(self.name, self.opening.disk_kind, self.settings) else 1,
        )

    def _pinned_reader(self) -> MasterReader:
        size = pinned_bytes(self.master, self.budget.total_bytes, self.budget.left_bytes, self.settings)
        return MasterReader.open(
            self.master, self.shape, self.disk, self.budget, size, who=self.name, name="pinned pages"
        )

    def _waiting(self, reader: MasterReader) -> Waiting:
        return Waiting.open(
            self.shape, reader, self.budget, self.stats, heap_bytes=self.opening.heap_bytes, who=self.name
        )

    def _hybrid(self, waiting: Waiting) -> HybridJoin:
        if self.finder is None:
            raise AssertionError("opened for every join that looks up")
        blocks = block_pages(waiting.reader.pages_at_once, self.opening.disk_kind, self.settings)
        return HybridJoin(waiting, self.finder, blocks, self.settings.parallel)

    def _behind(self, waiting: Waiting) -> Join:
        if self.name in SCANNING:
            return MeshJoin(waiting, _per_step(self.opening, waiting))
        if self.name in ("inlj", "cinlj") and self.finder is not None:
            return IndexNestedLoopJoin(waiting, self.finder)
        return self._hybrid(waiting)

    def _front(self, reader: MasterReader) -> tuple[HotRows, FrequencyRecorder] | None:
        heap = heap_bytes_per_row(reader)
        rows = front_rows(self.name, self.shape, self.budget.left_bytes, heap, self.settings)
        if rows < 1:
            return None
        hot = HotRows.allocate(
            self.shape, self.budget, self.stats, rows, heap, name="front stage", who=self.name
        )
        sketched = self.name == BATCH_LOOKUP
        return hot, FrequencyRecorder.allocate(self.budget, rows, sketched=sketched, who=self.name)


@dataclass(frozen=True)
class _Complete:
    """Which loaded rows have keys that are loaded whole: only those may be cached."""

    finder: PageFinder

    def __call__(self, loaded: Loaded, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        nobody = loaded.keys.take(np.empty(0, dtype=np.int64))
        complete = self.finder.complete_rows(loaded, nobody)
        return np.ones(len(rows), dtype=np.bool_) if complete is None else np.isin(rows, complete)


def _complete(master: Master, finder: PageFinder | None) -> _Complete | None:
    """None where no key repeats."""
    return None if is_unique(master) else _Complete(finder or PageFinder(master, JoinStats(), None, None))


def _per_step(opening: Opening, waiting: Waiting) -> int | None:
    """w: MESHJOIN lets so many tuples in per iteration, R-MESHJOIN what there is room for."""
    if opening.name == "r-meshjoin":
        return rmeshjoin.PER_STEP
    if opening.settings.per_step is not None:
        return opening.settings.per_step
    iterations = -(-max(opening.master.pages, 1) // waiting.reader.pages_at_once)
    return -(-waiting.window.capacity // iterations)


def heap_bytes_per_row(reader: MasterReader) -> float:
    """What the strings of a master row take, from a first read."""
    loaded = _first_pages(reader)
    if loaded is None or not loaded.found.rows:
        return 0.0
    return HotRows.string_bytes(loaded) / loaded.found.rows


def heap_bytes_of(master: Master, shape: JoinShape) -> float:
    """The same, without a join: from the first page."""
    if not any(leaf.is_varying for leaf in HotRows.leaves(shape)) or not master.pages:
        return 0.0
    budget = Budget(1 << 40)
    with closing(master.open_disk("buffered")) as disk:
        reader = MasterReader.open(master, shape, disk, budget, master.page_bytes, who="a look at the master")
        return heap_bytes_per_row(reader)


def _first_pages(reader: MasterReader) -> Loaded | None:
    """The first pages, as many as the buffer holds: in layout "frequency" the most popular ones."""
    pages = np.arange(min(reader.pages_at_once, reader.master.pages), dtype=np.int64)
    pages = pages[: reader.fitting(pages)]
    return reader.load(pages) if len(pages) else None
