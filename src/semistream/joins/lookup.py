"""Batch look-up: every tuple of a batch is answered at once, and a page that several of them need is read once.

HYBRIDJOIN lets tuples wait so that a page read serves many of them. Where a whole batch has arrived and must be answered
before the next one comes (a micro-batch on Spark), there is nothing to wait for: the keys are sorted, the pages they need
are read in that order, as many at a time as the disk buffer holds, and each key finds its rows in them by binary search.
No window is needed, so its memory goes to the front stage.

Cost of a batch of n tuples with k distinct keys on p pages: n log n to sort, p c_IO(1), k log d for the searches among the
d rows of a disk buffer, n c_O. The symbols are the papers'; the algorithm is none of theirs, and what `auto` uses on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.base import Answers, JoinStats, Observer, Snapshot
from semistream.joins.pagefinder import Found, PageFinder, is_unique
from semistream.joins.reader import Loaded, MasterReader
from semistream.joins.sides import JoinShape, Tuples
from semistream.master.keys import Keys, NarrowKeys, positions_of
from semistream.ranges import MOST_PAIRS, distinct, numbered, parts_of, repeated, spread

I64 = NDArray[np.int64]
_AT_ONCE = 1 << 16  # tuples: bounds what sorting them takes


@dataclass
class BatchLookUp:
    """Answers what is offered; nobody ever waits."""

    shape: JoinShape
    reader: MasterReader
    finder: PageFinder
    stats: JoinStats
    observer: Observer | None = None
    pending: int = 0
    bound: int = 0

    @property
    def room(self) -> int:
        """As many as are sorted together."""
        return _AT_ONCE

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Answer the tuples."""
        some = tuples.select(slice(0, _AT_ONCE))
        return self._answered(some), len(some)

    def advance(self) -> Answers:
        """Nothing is left to be done."""
        return iter(())

    def shed(self, count: int) -> pa.RecordBatch:  # noqa: ARG002
        """Nobody waits."""
        return self.shape.no_tuples()

    def snapshot(self, limit: int | None = None) -> Snapshot:  # noqa: ARG002 - there is nobody
        """Nobody waits."""
        return Snapshot.untouched(self.shape.no_tuples(), self.reader.master.version)

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:  # noqa: ARG002 - they are offered again
        """None of them need wait here."""
        snapshot.check_untouched()
        return 0

    def _answered(self, tuples: Tuples) -> Answers:
        asked = _Asked.of(tuples)
        found = self.finder.find(asked.keys)
        unmet = [np.flatnonzero(found.nowhere())]
        for keys, pages, page in self._groups(found):
            met = np.zeros(len(keys), dtype=np.bool_)
            while len(pages):  # once, but for a key with more pages than the disk buffer holds
                count = max(1, self.reader.fitting(pages))
                loaded = self._load(pages[:count])
                rows, counts = self._rows_of(asked.keys.take(keys), loaded, page)
                yield from self._put_out(tuples, asked, loaded, keys, rows, counts)
                met |= counts > 0
                pages = pages[count:]
            unmet.append(keys[~met])
        missed = asked.tuples_of(np.concatenate(unmet))
        self.stats.misses += len(missed)
        self.stats.answered += len(tuples)
        nothing = self.shape.missed(lambda: self.shape.tuples_of(self.shape.some(tuples, missed)))
        if nothing is not None:
            self.stats.rows += len(nothing)
            yield nothing

    def _groups(self, found: Found) -> Iterator[tuple[I64, I64, I64]]:
        """Keys whose pages the disk buffer holds together, those pages, and which of them each key has, one key after the other.

        A key with more pages than that comes alone.
        """
        keys, is_in_order = np.flatnonzero(~found.nowhere()), self.reader.master.layout == "key"
        if not is_in_order:
            keys = keys[np.argsort(found.pages[found.starts[keys]], kind="stable")]
        counts = found.starts[keys + 1] - found.starts[keys]
        ends = np.cumsum(counts)
        pages = found.pages[spread(found.starts[keys], counts)]
        lengths = self.reader.master.index.extents(pages).length
        lengths[1:][pages[1:] == pages[:-1]] = 0  # shared with the key before
        total = (
            np.concatenate([[0], np.cumsum(lengths)[ends - 1]]) if len(keys) else np.zeros(1, dtype=np.int64)
        )
        # A group's first page may be one that the group before had last: it is read again.
        room = self.reader.half_bytes - self.reader.master.index.max_page_bytes
        begin = 0
        while begin < len(keys):
            end = max(begin + 1, int(np.searchsorted(total, total[begin] + room, side="right")) - 1)
            theirs = pages[ends[begin] - counts[begin] : ends[end - 1]]
            if is_in_order:
                yield keys[begin:end], distinct(theirs), numbered(theirs)
            else:
                yield keys[begin:end], *np.unique(theirs, return_inverse=True)
            begin = end

    def _load(self, pages: I64) -> Loaded:
        self.stats.advances += 1
        self.stats.pages += len(pages)
        return self.reader.load(pages)

    def _rows_of(self, keys: Keys, loaded: Loaded, page: I64) -> tuple[I64, I64]:
        """The loaded rows of all keys, one key after the other, and how many each has."""
        if self._has_own_page and isinstance(keys, NarrowKeys):
            self.stats.probes += len(keys)
            rows = loaded.find(keys.codes, page)
            is_met = rows >= 0
            return rows[is_met], is_met.astype(np.int64)
        ordered, order = loaded.keys, None
        if not ordered.is_sorted():
            order = ordered.argsort()
            ordered = ordered.take(order)
        self.stats.probes += len(keys)
        first = positions_of(keys, ordered, side="left")
        counts = positions_of(keys, ordered, side="right") - first
        rows = spread(first, counts)
        return rows if order is None else order[rows], counts

    @property
    def _has_own_page(self) -> bool:
        """Whether a key is on one page and has one row there, and rows are in the order of a column that is the key."""
        master = self.reader.master
        return master.layout == "key" and len(master.key) == 1 and is_unique(master)

    def _put_out(
        self, tuples: Tuples, asked: _Asked, loaded: Loaded, keys: I64, rows: I64, counts: I64
    ) -> Answers:
        """Every tuple of every key with every row of it; of one row, all its tuples together."""
        owner = keys if len(rows) == len(keys) and counts.all() else np.repeat(keys, counts)
        times = asked.counts[owner]
        for begin, end in parts_of(times, MOST_PAIRS):
            at = asked.order[spread(asked.starts[owner[begin:end]], times[begin:end])]
            yield from self._joined(tuples, at, loaded, np.repeat(rows[begin:end], times[begin:end]))
        if self.observer is not None and len(rows):
            self.observer(loaded, repeated(rows, times, MOST_PAIRS))

    def _joined(self, tuples: Tuples, at: I64, loaded: Loaded, rows: I64) -> Answers:
        for batch, _ in self.shape.joined(
            lambda part, most: self.shape.some(tuples, at[part], most),
            lambda part, most: loaded.rows(rows[part], most),
            len(at),
        ):
            self.stats.rows += len(batch)
            yield batch


@dataclass(frozen=True)
class _Asked:
    """The distinct keys of some tuples, in order: those of key i are order[starts[i] : starts[i] + counts[i]]."""

    keys: Keys
    order: I64
    starts: I64
    counts: I64

    @staticmethod
    def of(tuples: Tuples) -> _Asked:
        keys = (
            NarrowKeys(tuples.codes) if isinstance(tuples.keys, NarrowKeys) else tuples.keys.take(tuples.at)
        )
        order = keys.ordering()
        ordered = keys.take(order)
        starts = np.flatnonzero(ordered.starts())
        return _Asked(ordered.take(starts), order, starts, np.diff(starts, append=len(order)))

    def tuples_of(self, keys: I64) -> I64:
        """All tuples of some keys."""
        return self.order[spread(self.starts[keys], self.counts[keys])]
