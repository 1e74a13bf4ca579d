"""Master rows in memory, and how they answer tuples: shared by the front stage, Optimised X-HYBRIDJOIN's H_R and in-memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.base import Answers, JoinStats
from semistream.joins.reader import Loaded
from semistream.joins.sides import KEY_LEAF, JoinShape, Tuples
from semistream.master.keys import Keys, NarrowKeys, WideKeys
from semistream.memory.assembly import Assembled
from semistream.memory.budget import Budget
from semistream.memory.leaves import Leaf, Rows
from semistream.memory.rowstore import string_bytes
from semistream.memory.rowtable import RowTable

I64 = NDArray[np.int64]


@dataclass
class HotRows:
    """A table of master rows that the stream probes."""

    shape: JoinShape
    table: RowTable
    stats: JoinStats

    @staticmethod
    def leaves(shape: JoinShape) -> tuple[Leaf, ...]:
        """What is kept of a master row: for wide keys the key's bytes, then the output columns."""
        return (KEY_LEAF, *shape.master_leaves) if shape.wide else shape.master_leaves

    @staticmethod
    def allocate(
        shape: JoinShape,
        budget: Budget,
        stats: JoinStats,
        rows: int,
        heap_bytes: float,
        *,
        name: str,
        who: str,
    ) -> HotRows:
        """Room for so many rows inside the budget."""
        layout = RowTable.layout(HotRows.leaves(shape))
        table = RowTable.allocate(budget, name, layout, max(rows, 1), heap_bytes, wide=shape.wide, who=who)
        return HotRows(shape, table, stats)

    @staticmethod
    def rows_of(loaded: Loaded, at: I64) -> Rows:
        """Loaded rows as they are kept."""
        rows = loaded.rows(at).rows()
        if loaded.reader.master.codec.is_narrow or not isinstance(keys := loaded.keys.take(at), WideKeys):
            return rows
        return rows.after_key(keys.offsets, keys.data)

    @staticmethod
    def string_bytes(loaded: Loaded) -> int:
        """What the strings of all loaded rows take when they are kept."""
        everything = np.arange(loaded.found.rows, dtype=np.int64)
        return int(string_bytes(HotRows.rows_of(loaded, everything), everything).sum())

    def keep(self, loaded: Loaded, rows: Rows, at: I64) -> I64:
        """Keep the first of `rows`, which are loaded rows `at`; there must be room. Gives their slots."""
        return self.table.add(rows, np.arange(len(at), dtype=np.int64), loaded.codes(at))

    def keys(self, slots: I64) -> Keys:
        """The keys of kept rows."""
        return self.table.store.get(slots).key() if self.shape.wide else NarrowKeys(self.table.codes(slots))

    def find(self, tuples: Tuples) -> I64:
        """For each tuple the slot that its key is known by, or -1."""
        return self.table.find(self.shape.probes(tuples))

    def answer(self, tuples: Tuples, known: I64) -> Answers:
        """Put out the tuples that `find` found, with all their rows."""
        hits = int(np.count_nonzero(known >= 0))
        self.stats.front_hits += hits
        self.stats.answered += hits
        nothing = known >= 0  # in the end: whose key is here, but with no row that passes the condition
        for at, slots in self.table.pairs(known):
            for batch, passed in self._joined(tuples, at, slots):
                if passed is not None:
                    nothing[at[passed]] = False
                self.stats.rows += len(batch)
                yield batch
        if self.shape.condition is None:
            return
        self.stats.misses += int(np.count_nonzero(nothing))
        missed = self.shape.missed(
            lambda: self.shape.tuples_of(self.shape.some(tuples, np.flatnonzero(nothing)))
        )
        if missed is not None:
            self.stats.rows += len(missed)
            yield missed

    def _joined(self, tuples: Tuples, at: I64, slots: I64) -> Iterator[tuple[pa.RecordBatch, I64 | None]]:
        return self.shape.joined(
            lambda part, most: self.shape.some(tuples, at[part], most),
            lambda part, most: self._rows(slots[part], most),
            len(at),
        )

    def _rows(self, slots: I64, most_text: int) -> Assembled:
        kept = self.table.store.get(slots, most_text)
        return kept.without_key() if self.shape.wide else kept
