"""What the joins that let tuples wait have in common: admitting, matching, answering, letting go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.joins.base import Answers, JoinStats, Observer
from semistream.joins.reader import Loaded, MasterReader
from semistream.joins.sides import JoinShape, Tuples
from semistream.master.keys import Keys, NarrowKeys, WideKeys, pairwise_equal
from semistream.memory.budget import Budget
from semistream.memory.rowstore import RecordLayout, string_bytes
from semistream.memory.table import Probes
from semistream.memory.window import Window

I64 = NDArray[np.int64]
_NOBODY = np.empty(0, dtype=np.int64)


@dataclass
class Waiting:
    """The window of a join and everything that goes in and out of it."""

    shape: JoinShape
    reader: MasterReader
    window: Window
    stats: JoinStats
    observer: Observer | None = None

    @staticmethod
    def open(
        shape: JoinShape,
        reader: MasterReader,
        budget: Budget,
        stats: JoinStats,
        *,
        heap_bytes: float,
        who: str,
    ) -> Waiting:
        """Give all that is left of the budget to the window."""
        layout = RecordLayout.of(shape.window_leaves)
        capacity = Window.capacity_for(layout, max(budget.left_bytes, 0), heap_bytes)
        window = Window.allocate(budget, layout, max(capacity, 1), heap_bytes, wide=shape.wide, who=who)
        return Waiting(shape, reader, window, stats)

    def admit(self, tuples: Tuples, most: int) -> int:
        """Let tuples wait, from the first on, as many as there is room for; give how many."""
        at = tuples.at[:most]
        count = self.window.fits(tuples.rows, at)
        if not count and most > 0 and len(at) and not self.window.waiting:
            raise InvalidInputError(
                "a stream tuple in the window",
                found=f"one of {string_bytes(tuples.rows, at[:1])[0]:,} bytes of strings",
                hint="Raise memory=: the empty window has no room for it.",
            )
        if count:
            self.window.admit(tuples.rows, at[:count], tuples.codes[:count])
            self.stats.admitted += count
        return count

    def match(self, loaded: Loaded, rows: I64 | None = None) -> tuple[Answers, I64]:
        """Join loaded rows, or some of them, with the waiting tuples.

        Gives the output, and the slots of the tuples that met something: of one key oldest first, perhaps repeated.
        """
        probes = loaded.probes if rows is None else _some(loaded.probes, rows, wide=self.shape.wide)
        self.stats.probes += len(probes.codes)
        answers: Answers = []
        met: list[I64] = []
        joined: list[I64] = []
        following = (0, 0)
        while following[0] < len(probes.codes):
            slots, found, following = self.window.match(probes, following)
            if len(slots):
                at = found if rows is None else rows[found]
                answers += self.put_out(loaded, slots, at)
                met.append(slots.copy())
                joined.append(at.copy())
        if not met:
            return answers, _NOBODY
        if self.observer is not None:  # told once, of all: it must see every row of a key together
            self.observer(loaded, np.concatenate(joined))
        return answers, np.concatenate(met)

    def own_rows(self, loaded: Loaded, slots: I64, first: I64, last: I64) -> tuple[I64, I64]:
        """Pair each tuple with the rows first .. last that have its key, and with no others."""
        counts = last - first
        starts = np.cumsum(counts) - counts
        rows = np.repeat(first - starts, counts) + np.arange(int(counts.sum()))
        owner = np.repeat(np.arange(len(slots)), counts)
        keys = self.keys(slots)
        self.stats.probes += len(rows)
        hit = np.flatnonzero(loaded.probes.codes[rows] == self.window.codes[slots][owner])
        if self.shape.wide:
            hit = hit[pairwise_equal(keys.take(owner[hit]), loaded.keys.take(rows[hit]))]
        return slots[owner[hit]], rows[hit]

    def put_out(self, loaded: Loaded, slots: I64, rows: I64) -> Answers:
        """Join tuples with loaded rows, side by side."""
        self.stats.rows += len(slots)
        return self.shape.joined(
            lambda part: self.window.store.get(slots[part]), lambda part: loaded.rows(rows[part]), len(slots)
        )

    def answer(self, slots: I64) -> None:
        """Tuples that met all they can meet leave; slots may repeat, and of one key come oldest first."""
        before = self.window.waiting
        self.window.release(slots)
        self.stats.answered += before - self.window.waiting

    def leave(self, slots: I64, met: NDArray[np.bool_]) -> Answers:
        """Tuples that are done leave, of one key oldest first; those that met nothing are put out as misses."""
        missed = self.shape.missed(lambda: self.shape.tuples_of(self.window.store.get(slots[~met])))
        self.stats.misses += int(np.count_nonzero(~met))
        self.stats.rows += len(missed) if missed is not None else 0
        self.answer(slots)
        return [missed] if missed is not None else []

    def miss(self, slots: I64) -> Answers:
        """Tuples that met nothing leave."""
        return self.leave(slots, np.zeros(len(slots), dtype=np.bool_)) if len(slots) else []

    def keys(self, slots: I64) -> Keys:
        """The keys of waiting tuples."""
        if not self.shape.wide:
            return NarrowKeys(self.window.codes[slots])
        return self.window.store.get(slots).key()

    def snapshot(self) -> pa.RecordBatch:
        """The waiting tuples, oldest first."""
        return self.shape.tuples_of(self.window.store.get(self.window.oldest(self.window.capacity)))


def _some(probes: Probes, rows: I64, *, wide: bool) -> Probes:
    if not wide:
        return Probes(probes.codes[rows], probes.offsets, probes.data)
    keys = WideKeys(probes.offsets, probes.data).take(rows)
    return Probes(probes.codes[rows], keys.offsets, keys.data)
