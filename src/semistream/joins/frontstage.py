"""The front stage (CACHING section 3): hot master rows before any join.

Every arriving tuple probes the hot rows first and is answered there, or goes on to the join behind. That join tells which
loaded rows met how many waiting tuples; keys met by enough of them are taken in, in place of the least frequent.
CMESHJOIN, CHYBRIDJOIN and CINLJ are this stage over MESHJOIN, HYBRIDJOIN and INLJ.

A tuple that waits when its row is taken in is answered by the join behind, once; only later arrivals meet the row here.
A key is taken in with all its rows or not at all: where keys repeat, only those whose rows are all loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.front import FrequencyRecorder
from semistream.joins.base import Answers, Join, JoinStats
from semistream.joins.hotrows import HotRows
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples, probes_of
from semistream.master.keys import Keys
from semistream.memory.rowstore import string_bytes

I64 = NDArray[np.int64]
Complete = Callable[
    [Loaded, I64], NDArray[np.bool_]
]  # which of these loaded rows have keys that are loaded whole
_AT_ONCE = 1024  # tuples probed together, at least
_PER_PLACE = 8  # and for every place behind


@dataclass
class FrontStage:
    """Hot rows over a join."""

    behind: Join
    hot: HotRows
    recorder: FrequencyRecorder
    complete: Complete

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.behind.stats

    @property
    def room(self) -> int:
        """As much as the join behind has: every tuple might have to wait."""
        return self.behind.room

    @property
    def pending(self) -> int:
        """How many tuples wait."""
        return self.behind.pending

    @property
    def bound(self) -> int:
        """That of the join behind."""
        return self.behind.bound

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Algorithm 3: answer who meets a hot row; the others wait, as long as there is room for them."""
        # Probing many more tuples than can wait would be for nothing: they come again.
        some = tuples.select(slice(0, max(_AT_ONCE, _PER_PLACE * self.behind.room)))
        known = self.hot.find(some)
        absent = np.flatnonzero(known < 0)
        taken = len(some)
        answers: Answers = []
        if len(absent):
            behind, count = self.behind.offer(some.select(absent))
            answers += behind
            taken = int(absent[count]) if count < len(absent) else taken
        known = known[:taken]
        self.recorder.used(known, full=self.hot.table.room == 0)
        answers += self.hot.answer(some.select(slice(0, taken)), known)
        return answers, taken

    def advance(self) -> Answers:
        """Let the join behind do its disk access; it reports what it met to `observe`."""
        return self.behind.advance()

    def observe(self, loaded: Loaded, rows: I64) -> None:
        """Lines 19 to 22: take in rows that enough waiting tuples met. `rows` has a row once per tuple, in one run."""
        met, frequency = _runs(rows)
        often = frequency >= self.recorder.threshold
        met, frequency = met[often], frequency[often]
        if len(met):
            whole = self.complete(loaded, met)
            met, frequency = met[whole], frequency[whole]
        if len(met):
            new = self.hot.table.find(probes_of(loaded.keys.take(met))) < 0
            met, frequency = met[new], frequency[new]
        if len(met):
            self._take_in(loaded, met, frequency)

    def _take_in(self, loaded: Loaded, met: I64, frequency: I64) -> None:
        order, starts = _by_key(loaded.keys.take(met))
        counts = np.diff(np.append(starts, len(met)))
        # The most frequent keys first, with all their rows; what the table could not hold if it were empty stays out.
        ranked = np.argsort(-frequency[order[starts]], kind="stable")
        starts, counts = starts[ranked], counts[ranked]
        ends = np.cumsum(counts)
        rows = order[np.repeat(starts - (ends - counts), counts) + np.arange(len(met))]
        kept = self.hot.rows_of(loaded, met[rows])
        heap = np.cumsum(string_bytes(kept, np.arange(len(rows))))
        fits = (ends <= self.hot.table.capacity) & (heap[ends - 1] <= self._heap_bytes)
        taken = int(fits.sum()) if fits.all() else int(np.argmin(fits))
        if not taken:
            return
        rows = rows[: ends[taken - 1]]
        if not self._make_room(len(rows), int(heap[len(rows) - 1])):
            return
        slots = self.hot.keep(loaded, kept, met[rows])
        last = ends[:taken] - 1
        self.recorder.enter(slots[last], frequency[rows[last]])
        self.stats.cached += taken

    def fill(self, loaded: Loaded, rows: I64) -> None:
        """Keep rows, whole keys, from the first on, as many as there is room for."""
        table = self.hot.table
        kept = self.hot.rows_of(loaded, rows)
        heap = np.cumsum(string_bytes(kept, np.arange(len(rows))))
        fitting = int(np.searchsorted(heap, table.store.heap_room, side="right"))
        count = min(table.room, fitting if table.store.layout.has_heap else len(rows))
        begins = np.append(np.flatnonzero(loaded.keys.take(rows).starts()), len(rows))
        keys = int(np.searchsorted(begins, count, side="right")) - 1  # not in the middle of a key
        if keys > 0:
            slots = self.hot.keep(loaded, kept, rows[: begins[keys]])
            self.recorder.enter(slots[begins[1 : keys + 1] - 1], np.ones(keys, dtype=np.int64))

    @property
    def _heap_bytes(self) -> int:
        store = self.hot.table.store
        return len(store.heap) if store.layout.has_heap else 1

    def _make_room(self, rows: int, heap_bytes: int) -> bool:
        """Let the least frequent keys go until so much is free."""
        table = self.hot.table
        while True:
            short = rows - table.room
            if table.store.layout.has_heap and table.store.heap_room < heap_bytes:
                short = max(short, 1)
            if short <= 0:
                return True
            victims = self.recorder.victims(short)
            if not len(victims):
                return False
            table.remove(victims)
            self.stats.evicted += len(victims)

    def snapshot(self) -> pa.RecordBatch:
        """The waiting tuples, oldest first."""
        return self.behind.snapshot()


def _runs(rows: I64) -> tuple[I64, I64]:
    """Each row once, and how often it is there."""
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    return rows[begins], np.diff(np.append(begins, len(rows)))


def _by_key(keys: Keys) -> tuple[I64, I64]:
    """An order in which equal keys are together, and where in it each key begins."""
    everything = np.arange(len(keys), dtype=np.int64)
    if keys.is_sorted():  # as the rows of a page are in layout "key"
        return everything, everything[keys.starts()]
    order = keys.argsort()
    return order, everything[keys.take(order).starts()]
