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

I64 = NDArray[np.int64]
Complete = Callable[
    [Loaded, I64], NDArray[np.bool_]
]  # which of these loaded rows have keys that are loaded whole


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
        first = self.hot.find(tuples)
        absent = np.flatnonzero(first < 0)
        taken = len(tuples)
        answers: Answers = []
        if len(absent):
            behind, count = self.behind.offer(tuples.select(absent))
            answers += behind
            taken = int(absent[count]) if count < len(absent) else taken
        first = first[:taken]
        hits = first[first >= 0]
        if len(hits):
            self.recorder.used(hits)
            answers += self.hot.answer(tuples.select(slice(0, taken)), first)
        return answers, taken

    def advance(self) -> Answers:
        """Let the join behind do its disk access; it reports what it met to `observe`."""
        return self.behind.advance()

    def observe(self, loaded: Loaded, rows: I64) -> None:
        """Lines 19 to 22: take in rows that enough waiting tuples met. `rows` has a row once per tuple."""
        met, frequency = np.unique(rows, return_counts=True)
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
        self.recorder.adapt(len(met), full=self.hot.table.room == 0)

    def _take_in(self, loaded: Loaded, met: I64, frequency: I64) -> None:
        keys = loaded.keys.take(met)
        order = keys.argsort()
        starts = np.flatnonzero(keys.take(order).starts())
        counts = np.diff(np.append(starts, len(met)))
        # The most frequent keys first, with all their rows; what the table could not hold if it were empty stays out.
        ranked = np.argsort(-frequency[order][starts], kind="stable")
        rows = np.concatenate([order[starts[k] : starts[k] + counts[k]] for k in ranked.tolist()])
        heap = self.hot.table.store.heap_bytes_of(self.hot.rows_of(loaded, met[rows]), np.arange(len(rows)))
        ends = np.cumsum(counts[ranked])
        fits = (ends <= self.hot.table.capacity) & (np.cumsum(heap)[ends - 1] <= self._heap_bytes)
        taken = int(fits.sum()) if fits.all() else int(np.argmin(fits))
        if not taken:
            return
        rows = rows[: ends[taken - 1]]
        if not self._make_room(len(rows), int(heap[: len(rows)].sum())):
            return
        slots = self.hot.keep(loaded, met[rows])
        heads = ends[:taken] - counts[ranked[:taken]]
        self.recorder.enter(slots[heads], frequency[rows[heads]])
        self.stats.cached += taken

    def fill(self, loaded: Loaded, rows: I64) -> None:
        """Keep rows, whole keys, from the first on, as many as there is room for."""
        table = self.hot.table
        heap = np.cumsum(table.store.heap_bytes_of(self.hot.rows_of(loaded, rows), np.arange(len(rows))))
        count = min(
            table.room,
            int(np.searchsorted(heap, table.store.heap_room, side="right")) if self._has_heap else len(rows),
        )
        if count < len(rows):  # not in the middle of a key
            starts = np.flatnonzero(loaded.keys.take(rows).starts())
            count = int(starts[np.searchsorted(starts, count, side="right") - 1]) if count else 0
        if count:
            slots = self.hot.keep(loaded, rows[:count])
            self.recorder.enter(slots[loaded.keys.take(rows[:count]).starts()], np.ones(1, dtype=np.int64))

    @property
    def _has_heap(self) -> bool:
        return self.hot.table.store.layout.has_heap

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
