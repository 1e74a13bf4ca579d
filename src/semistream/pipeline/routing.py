"""Which slot of an enrichment a tuple waits in.

Slots work side by side, a task each. Where the master is ordered by narrow keys a slot owns a range of pages, so that a page is
read by one of them and a scan is cut into shards; a cut is never made between two pages that share a key. Elsewhere tuples go by the hash of
their key if the join looks rows up, and all into one slot if it scans.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.joins.keycast import cast_key
from semistream.joins.sides import JoinShape, codes_of
from semistream.master import Master
from semistream.master.keys import NarrowKeys
from semistream.spark.task import Step

_LEAST_PAGES = 8  # a slot with fewer is not worth a task
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Route:
    """The slots of an enrichment on one version of its master."""

    step: Step
    stream: pa.Schema
    slots: int
    splits: tuple[int, ...] | None = None  # codes at which slots 1, 2, ... begin; None: by hash
    parts: tuple[tuple[int, int], ...] | None = None  # the pages of each slot

    @staticmethod
    def to(step: Step, stream: pa.Schema, master: Master, *, most: int, scan_share: float | None) -> Route:
        """As many slots as may be, up to `most`. `scan_share` is what a scan reads of the master in a micro-batch."""
        scans = scan_share is not None
        # Every slot rounds its share up to a whole page: together by no more than a twentieth.
        least = max(_LEAST_PAGES, 20 / scan_share) if scan_share else _LEAST_PAGES
        most = max(1, min(most, int(master.pages / least)))
        separators = master.index.separators if master.layout == "key" and most > 1 else None
        if not isinstance(separators, NarrowKeys):
            return Route(step, stream, 1 if scans else most)
        cuts: list[int] = []
        for slot in range(1, most):
            page = master.pages * slot // most
            while master.index.goes_on(page):
                page += 1
            if page < master.pages and page > (cuts[-1] if cuts else 0):
                cuts.append(page)
        edges = [0, *cuts, master.pages]
        return Route(
            step,
            stream,
            len(cuts) + 1,
            tuple(int(separators.codes[page]) for page in cuts),
            tuple(pairwise(edges)),
        )

    def part(self, slot: int) -> tuple[int, int] | None:
        """The pages that a slot owns; None for all."""
        return self.parts[slot] if self.parts is not None and self.slots > 1 else None

    @cached_property
    def shape(self) -> JoinShape:
        """What joins what."""
        return self.step.shape(self.stream)

    def slot_of(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """The slot of each tuple; those without a key are in the first."""
        found = np.zeros(len(batch), dtype=np.int64)
        if self.slots == 1 or not len(batch):
            return found
        names = batch.schema.names
        columns = [
            cast_key(batch.column(names.index(name)), kind, name)
            for name, kind in zip(self.shape.stream_key, self.shape.codec.types, strict=True)
        ]
        valid = reduce(pc.and_, [column.is_valid() for column in columns])
        codes = codes_of(self.shape.codec.encode([column.filter(valid) for column in columns]))
        if self.splits is not None:
            slots = np.searchsorted(np.array(self.splits, dtype=np.uint64), codes, side="right")
        else:
            slots = (((codes * _MIX) >> np.uint64(33)) % np.uint64(self.slots)).astype(np.int64)
        found[valid.to_numpy(zero_copy_only=False)] = slots
        return found

    def split(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """The tuples of each slot."""
        if self.slots == 1:
            return [(0, batch)]
        slots = self.slot_of(batch)
        return [(slot, batch.filter(pa.array(slots == slot))) for slot in np.unique(slots).tolist()]

    def of_slot(self, batch: pa.RecordBatch, slot: int) -> pa.RecordBatch:
        """The tuples of one slot."""
        return batch if self.slots == 1 else batch.filter(pa.array(self.slot_of(batch) == slot))
