"""The front stage (CACHING section 3): hot master rows before any join.

Every arriving tuple probes the hot rows first and is answered there, or goes on to the join behind. That join tells which
loaded rows met how many waiting tuples; keys met by enough of them are taken in, in place of the least frequent.
CMESHJOIN, CHYBRIDJOIN and CINLJ are this stage over MESHJOIN, HYBRIDJOIN and INLJ.

A tuple that waits when its row is taken in is answered by the join behind, once; only later arrivals meet the row here.
A key is taken in with all its rows or not at all: where keys repeat, only those whose rows are all loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.front import FrequencyRecorder
from semistream.joins.base import Answers, Join, JoinStats, Observer, Snapshot
from semistream.joins.hotrows import HotRows
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples
from semistream.master.keys import Keys
from semistream.memory.leaves import Rows
from semistream.memory.rowstore import string_bytes
from semistream.ranges import runs

I64 = NDArray[np.int64]
Complete = Callable[
    [Loaded, I64], NDArray[np.bool_]
]  # which of these loaded rows have keys that are loaded whole
_AT_ONCE = 1024  # tuples probed together, at least
_AMPLE = 1.1  # and, of those expected to fill the places behind, a few more
_LEAST_SHARE = 0.01


class Watched(Protocol):
    """Who tells which loaded rows met tuples."""

    observer: Observer | None


@dataclass(frozen=True)
class _Newcomers:
    """Rows to be taken in, of keys that end with those at `last`."""

    rows: Rows
    codes: NDArray[np.uint64]
    frequency: I64
    last: I64


@dataclass
class FrontStage:
    """Hot rows over a join."""

    behind: Join
    hot: HotRows
    recorder: FrequencyRecorder
    complete: Complete | None  # None where no key repeats
    watched: Watched | None = None
    absent_share: float = 1.0  # of the tuples, lately
    newcomers: list[_Newcomers] = field(default_factory=list)

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
        some = tuples.select(slice(0, max(_AT_ONCE, int(_AMPLE * self.behind.room / self.absent_share))))
        known = self.hot.find(some)
        absent = np.flatnonzero(known < 0)
        self.absent_share = 0.9 * self.absent_share + 0.1 * max(len(absent) / len(some), _LEAST_SHARE)
        self.newcomers.clear()  # of tuples whose answers nobody wanted: they may be asked for again
        taken = len(some)
        behind: Answers = iter(())
        if len(absent):
            behind, count = self.behind.offer(some.select(absent))
            taken = int(absent[count]) if count < len(absent) else taken
        known = known[:taken]
        self.stats.front_probes += taken
        self.recorder.used(known, full=self.hot.table.room == 0)
        # Hot rows answer first: the join behind may read, and what it reads may take the places of those found here.
        hot = self.hot.answer(some.select(slice(0, taken)), known)
        return chain(hot, behind, self._welcomed()), taken

    def answer_known(self, tuples: Tuples) -> tuple[Answers, I64]:
        """Answer who meets a hot row; give which do not, none of whom is taken."""
        known = self.hot.find(tuples)
        self.stats.front_probes += len(tuples)
        self.recorder.used(known, full=self.hot.table.room == 0)
        return self.hot.answer(tuples, known), np.flatnonzero(known < 0)

    def advance(self) -> Answers:
        """Let the join behind do its disk access; it reports what it met to `observe`."""
        return self.behind.advance()

    def watch(self, watched: Watched | None) -> None:
        """Look on as the join behind matches."""
        self.watched = watched
        if watched is not None:
            watched.observer = self.observe

    def unwatch(self) -> None:
        """Look on no longer."""
        if self.watched is not None:
            self.watched.observer = None

    def observe(self, loaded: Loaded, rows: I64) -> None:
        """Lines 19 to 22: take in rows that enough waiting tuples met. `rows` has a row once per tuple, in one run."""
        if self.recorder.is_sketched:  # nobody waits: all of them were looked for here a moment ago
            met, frequency = runs(rows)
        else:
            met, frequency = self.hot.table.absent_often(loaded.probes, rows, self.recorder.threshold)
        full = self.hot.table.room == 0
        codes = loaded.codes(met)
        worthy, frequency = self.recorder.worthy(codes, frequency, full=full)
        if worthy is not None:
            # Keys that repeat are counted once a row: all rows of a key or none.
            if self.complete is not None:
                worthy = np.isin(codes, codes[worthy])
            met, frequency = met[worthy], frequency[worthy]
        if len(met) and self.complete is not None:
            whole = self.complete(loaded, met)
            met, frequency = met[whole], frequency[whole]
        if len(met):
            self.newcomers.append(self._newcomers(loaded, met, frequency))
            # Room is made for all of them at once, unless what they take meanwhile would be much.
            if not self.recorder.is_sketched or sum(some.rows.count for some in self.newcomers) >= _AT_ONCE:
                self._take_in()

    def _newcomers(self, loaded: Loaded, met: I64, frequency: I64) -> _Newcomers:
        last = np.arange(len(met), dtype=np.int64)
        if self.complete is not None:  # keys repeat: all rows of a key or none
            order, ends = _by_key(loaded.keys.take(met))
            met, frequency, last = met[order], frequency[order], ends - 1
        return _Newcomers(self.hot.rows_of(loaded, met), loaded.codes(met), frequency, last)

    def _take_in(self) -> None:
        """As many of the newcomers as there is room for."""
        newcomers, self.newcomers = self.newcomers, []
        if not newcomers:
            return
        left = self._fitting(newcomers)
        self.stats.cached += left
        for some in newcomers:
            taken = min(left, len(some.last))
            if taken:
                last = some.last[:taken]
                slots = self.hot.table.add(some.rows, np.arange(last[-1] + 1), some.codes[: last[-1] + 1])
                self.recorder.enter(slots[last], some.frequency[last])
            left -= taken

    def _welcomed(self) -> Answers:
        """No answers: who came in while others were answered is taken in when that is done."""
        self._take_in()
        yield from ()

    def _fitting(self, newcomers: list[_Newcomers]) -> int:
        """How many keys there is room for, once the least frequent have made it."""
        table = self.hot.table
        counts = [some.rows.count for some in newcomers]
        before = np.cumsum(counts) - counts
        last = np.concatenate([some.last + rows for some, rows in zip(newcomers, before, strict=True)])
        heap = np.cumsum(
            np.concatenate([string_bytes(some.rows, np.arange(some.rows.count)) for some in newcomers])
        )[last]
        most = int(np.searchsorted(last + 1, table.capacity, side="right"))
        if table.store.layout.has_heap:
            most = min(most, int(np.searchsorted(heap, len(table.store.heap), side="right")))
        if not most:
            return 0
        return most if self._make_room(int(last[most - 1]) + 1, int(heap[most - 1])) else 0

    def state(self) -> dict[str, NDArray[np.generic]]:
        """The hot rows and how often each is used, as arrays to be kept elsewhere."""
        return {**self.hot.table.arrays(), **self.recorder.arrays()}

    def adopt(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Go on with the state of a stage of the same master, columns and size."""
        self.hot.table.adopt(state)
        self.recorder.adopt(state)

    def forget_changed(self, unchanged: Callable[[Keys], NDArray[np.bool_]]) -> None:
        """Drop the rows of keys that another version of the master may have otherwise."""
        known = np.flatnonzero(self.recorder.uses >= 0)
        stale = known[~unchanged(self.hot.keys(known))]
        self.recorder.forget(stale)
        if len(stale):
            self.hot.table.remove(stale)
        self.stats.evicted += len(stale)

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

    def shed(self, count: int) -> pa.RecordBatch:
        """Those that wait behind."""
        return self.behind.shed(count)

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first."""
        return self.behind.snapshot(limit)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:
        """They go on waiting behind."""
        return self.behind.restore(tuples, snapshot)


def _by_key(keys: Keys) -> tuple[I64, I64]:
    """An order in which equal keys are together, and where in it each key ends."""
    order = np.arange(len(keys), dtype=np.int64) if keys.is_sorted() else keys.argsort()
    return order, np.append(np.flatnonzero(keys.take(order).starts())[1:], len(keys))
