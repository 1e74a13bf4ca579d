"""Every algorithm by its name, put together from its parts inside a budget.

| name | is |
|---|---|
| inlj, meshjoin, r-meshjoin, hybridjoin | themselves |
| x-hybridjoin | pinned pages before hybridjoin |
| optimised-x-hybridjoin | hot rows that never change before hybridjoin |
| cinlj, cmeshjoin, chybridjoin | the front stage before inlj, meshjoin, hybridjoin |
| in-memory | the whole master as hot rows |
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.config import format_bytes
from semistream.errors import InvalidInputError
from semistream.front import BYTES_PER_ROW, FrequencyRecorder
from semistream.joins.base import Join, JoinStats
from semistream.joins.frontstage import FrontStage
from semistream.joins.hotrows import HotRows
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.inlj import IndexNestedLoopJoin
from semistream.joins.inmemory import InMemoryJoin
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.pagefinder import PageFinder, is_unique
from semistream.joins.reader import Loaded, MasterReader, index_bytes
from semistream.joins.sides import JoinShape
from semistream.joins.waiting import Waiting
from semistream.joins.xhybridjoin import XHybridJoin
from semistream.master import Master
from semistream.master.disk import Disk
from semistream.memory.budget import Budget
from semistream.memory.rowstore import RecordLayout
from semistream.memory.rowtable import RowTable

ALGORITHMS = (
    "inlj",
    "meshjoin",
    "r-meshjoin",
    "hybridjoin",
    "x-hybridjoin",
    "optimised-x-hybridjoin",
    "cinlj",
    "cmeshjoin",
    "chybridjoin",
    "in-memory",
    "auto",
)
_SCAN_BUFFER = 12 << 20  # two halves; smaller reads do not keep a fast disk busy, nor the joining thread
_BLOCK_BUFFER = 4 << 20
_BURST = 4
_CONDITIONAL = ("meshjoin", "r-meshjoin", "cmeshjoin", "in-memory")
_INDEXED = ("inlj", "hybridjoin", "x-hybridjoin", "optimised-x-hybridjoin", "cinlj", "chybridjoin")


@dataclass(frozen=True)
class Settings:
    """The free parameters of the algorithms; None takes the default."""

    disk_buffer: int | None = None  # bytes
    front_share: float | None = None  # of the memory: hot rows, or pinned pages
    block_pages: int = 1  # b of the hybrid family
    parallel: int = 64  # blocks chosen at once; 1 is the papers'
    per_step: int | None = None  # w of meshjoin


@dataclass
class OpenJoin:
    """A join with its disks, to be closed."""

    join: Join
    disks: list[Disk] = field(default_factory=list)
    finder: PageFinder | None = None
    reader: MasterReader | None = None

    def close(self) -> None:
        """Close what was opened."""
        if self.reader is not None:
            self.reader.close()
        for disk in self.disks:
            disk.close()
        if self.finder is not None:
            self.finder.close()


def check_algorithm(name: str) -> str:
    """A name of ALGORITHMS, or an error that says which was meant."""
    if name not in ALGORITHMS:
        near = difflib.get_close_matches(name, ALGORITHMS, n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise InvalidInputError(
            f"algorithm={name!r}",
            found="no such algorithm",
            hint=f"{meant}Choose one of {', '.join(ALGORITHMS)}.",
        )
    return name


def open_join(
    algorithm: str,
    master: Master,
    shape: JoinShape,
    *,
    memory_bytes: int,
    disk_kind: str,
    heap_bytes: float,
    settings: Settings,
) -> OpenJoin:
    """Put an algorithm together inside `memory_bytes`. `heap_bytes` is what the strings of a stream tuple take."""
    name = check_algorithm(algorithm)
    if name == "auto":
        scan = master.layout == "heap" or shape.condition is not None
        name = "cmeshjoin" if scan else "chybridjoin"
    _check_condition(name, shape)
    stats = JoinStats(budget_bytes=memory_bytes, plan=f"{name} within {format_bytes(memory_bytes)}")
    budget = Budget(memory_bytes)
    disk = master.open_disk(disk_kind)
    opened = _Parts(name, master, shape, budget, stats, disk, disk_kind, heap_bytes, settings).build()
    stats.used = budget.taken
    return opened


def _check_condition(name: str, shape: JoinShape) -> None:
    if shape.condition is not None and name not in _CONDITIONAL:
        raise InvalidInputError(
            f"condition= with algorithm={name!r}",
            found="a join that looks rows up by key",
            hint=f"Use one of {', '.join(_CONDITIONAL)}.",
        )
    if not shape.is_keyed and name == "in-memory":
        raise InvalidInputError(
            "algorithm='in-memory' without on=", found="no key to look up", hint="Use meshjoin, which scans."
        )


@dataclass
class _Parts:
    """What every algorithm is built from."""

    name: str
    master: Master
    shape: JoinShape
    budget: Budget
    stats: JoinStats
    disk: Disk
    disk_kind: str
    heap_bytes: float
    settings: Settings

    def build(self) -> OpenJoin:
        opened = OpenJoin(join=None, disks=[self.disk])  # type: ignore[arg-type]
        if self.name in _INDEXED:
            opened.finder = PageFinder.open(
                self.master, self.stats, self.budget, self.disk_kind, who=self.name
            )
        reader = opened.reader = self._reader()
        if self.name == "in-memory":
            opened.join = InMemoryJoin.open(self.shape, reader, self.budget, self.stats)
            return opened
        if self.name == "x-hybridjoin":
            pinned_reader = self._pinned_reader()
            hybrid = self._hybrid(self._waiting(reader), opened.finder)
            opened.join = XHybridJoin(hybrid, _first_pages(pinned_reader))
            return opened
        # Only a key can say that a row in memory is all that a tuple may meet.
        fronted = self.name.startswith(("c", "optimised")) and self.shape.is_keyed
        front = self._front(reader) if fronted else None
        waiting = self._waiting(reader)
        behind = self._behind(waiting, opened.finder)
        opened.join = behind
        if front is not None:
            hot, recorder = front
            whole = None if is_unique(self.master) else _Complete(opened.finder, self.master)
            stage = FrontStage(behind, hot, recorder, whole)
            if self.name.startswith("optimised"):
                _fill(stage, reader)
            else:
                waiting.observer = stage.observe
            opened.join = stage
        return opened

    def _reader(self) -> MasterReader:
        scanning = "mesh" in self.name or self.name == "in-memory"
        size = self.settings.disk_buffer or min(
            _SCAN_BUFFER if scanning else _BLOCK_BUFFER, self.budget.total_bytes // (5 if scanning else 8)
        )
        self.budget.take("index", index_bytes(self.master), who=self.name)
        # Scans read ahead; a simulated disk's time passes in turn, so there it would change nothing but the counts.
        halves = 2 if scanning and self.disk_kind in ("direct", "buffered") else 1
        return MasterReader.open(
            self.master, self.shape, self.disk, self.budget, size, who=self.name, halves=halves
        )

    def _pinned_reader(self) -> MasterReader:
        share = self.settings.front_share if self.settings.front_share is not None else 0.25
        pages = max(1, int(share * self.budget.total_bytes) // self.master.page_bytes)
        size = min(pages, max(self.master.pages, 1)) * self.master.page_bytes
        return MasterReader.open(
            self.master, self.shape, self.disk, self.budget, size, who=self.name, name="pinned pages"
        )

    def _waiting(self, reader: MasterReader) -> Waiting:
        return Waiting.open(
            self.shape, reader, self.budget, self.stats, heap_bytes=self.heap_bytes, who=self.name
        )

    def _hybrid(self, waiting: Waiting, finder: PageFinder | None) -> HybridJoin:
        if finder is None:
            raise AssertionError("opened for every indexed join")
        return HybridJoin(waiting, finder, self.settings.block_pages, self.settings.parallel)

    def _behind(self, waiting: Waiting, finder: PageFinder | None) -> Join:
        if self.name in ("inlj", "cinlj") and finder is not None:
            return IndexNestedLoopJoin(waiting, finder)
        if "mesh" in self.name:
            # MESHJOIN lets w tuples in per iteration, R-MESHJOIN what there is room for.
            if self.name == "r-meshjoin":
                return MeshJoin(waiting)
            if self.settings.per_step is not None:
                return MeshJoin(waiting, self.settings.per_step)
            iterations = -(-max(self.master.pages, 1) // waiting.reader.pages_at_once)
            return MeshJoin(waiting, -(-waiting.window.capacity // iterations), burst=_BURST)
        return self._hybrid(waiting, finder)

    def _front(self, reader: MasterReader) -> tuple[HotRows, FrequencyRecorder] | None:
        share = self.settings.front_share if self.settings.front_share is not None else 0.35
        nbytes = int(share * self.budget.left_bytes)
        if nbytes <= 0:
            return None
        heap = _heap_bytes_per_row(reader)
        layout = RecordLayout.of(HotRows.leaves(self.shape))
        rows = RowTable.capacity_for(layout, nbytes, heap)
        rows = RowTable.capacity_for(layout, nbytes - BYTES_PER_ROW * rows, heap)  # for the recorder
        if rows < 1:
            return None
        hot = HotRows.allocate(
            self.shape, self.budget, self.stats, rows, heap, name="front stage", who=self.name
        )
        return hot, FrequencyRecorder.allocate(self.budget, rows, who=self.name)


@dataclass(frozen=True)
class _Complete:
    """Which loaded rows have keys that are loaded whole: only those may be cached."""

    finder: PageFinder | None
    master: Master

    def __call__(self, loaded: Loaded, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        finder = self.finder or PageFinder(self.master, JoinStats(), None, None)
        complete = finder.complete_rows(loaded, loaded.keys.take(np.empty(0, dtype=np.int64)))
        return np.ones(len(rows), dtype=np.bool_) if complete is None else np.isin(rows, complete)


def _heap_bytes_per_row(reader: MasterReader) -> float:
    """What the strings of a master row take, from a first read."""
    loaded = _first_pages(reader)
    if loaded is None or not loaded.found.rows:
        return 0.0
    return HotRows.string_bytes(loaded) / loaded.found.rows


def _first_pages(reader: MasterReader) -> Loaded | None:
    """The first pages, as many as the buffer holds: in layout "frequency" the most popular ones."""
    pages = np.arange(min(reader.pages_at_once, reader.master.pages), dtype=np.int64)
    pages = pages[: reader.fitting(pages)]
    return reader.load(pages) if len(pages) else None


def _fill(stage: FrontStage, reader: MasterReader) -> None:
    """OPT-X: load the first rows of the master into H_R, for good."""
    start = 0
    while start < reader.master.pages and stage.hot.table.room:
        pages = np.arange(start, min(start + reader.pages_at_once, reader.master.pages), dtype=np.int64)
        pages = pages[: max(1, reader.fitting(pages))]
        loaded = reader.load(pages)
        rows = np.arange(loaded.found.rows, dtype=np.int64)
        rows = rows if stage.complete is None else rows[stage.complete(loaded, rows)]
        stage.fill(loaded, rows)
        start += len(pages)
