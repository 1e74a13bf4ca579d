"""From the keys of waiting tuples to the pages that hold their rows.

Layout "key": the sparse index in memory says it. Layout "frequency": a page of the non-clustered index is read, found
through its own sparse index. Layout "heap" has no index and nothing to find with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.arrow import to_numpy
from semistream.errors import InvalidInputError
from semistream.joins.base import JoinStats
from semistream.joins.reader import Loaded, MasterReader
from semistream.master import Master
from semistream.master.disk import Disk, aligned_buffer
from semistream.master.keys import Keys, is_in, positions_of
from semistream.master.part import key_codes
from semistream.memory.budget import Budget
from semistream.ranges import spread

I64 = NDArray[np.int64]
_INDEX_PAGES_AT_ONCE = 16


@dataclass(frozen=True)
class Found:
    """The pages of each key, in order: those of key i are pages[starts[i]:starts[i + 1]]; none if it is nowhere."""

    starts: I64
    pages: I64

    @staticmethod
    def of_ranges(first: I64, last: I64) -> Found:
        """Keys whose pages follow each other."""
        counts = np.maximum(last - first + 1, 0)
        starts = np.zeros(len(first) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        return Found(starts, spread(first, counts))

    def nowhere(self) -> NDArray[np.bool_]:
        """The keys that no page can hold."""
        return np.equal(self.starts[1:], self.starts[:-1])

    def pages_of(self, key: int) -> I64:
        """The pages of one key."""
        return self.pages[self.starts[key] : self.starts[key + 1]]

    def select(self, which: NDArray[np.bool_]) -> Found:
        """Some of the keys."""
        return self.at(np.flatnonzero(which))

    def at(self, keys: I64) -> Found:
        """The keys at these positions."""
        counts = np.diff(self.starts)[keys]
        starts = np.zeros(len(keys) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        return Found(starts, self.pages[spread(self.starts[keys], counts)])

    def within(self, pages: I64) -> NDArray[np.bool_]:
        """The keys that these pages may hold, and no other; the pages are in order."""
        inside = ~self.nowhere()
        at = np.minimum(np.searchsorted(pages, self.pages), len(pages) - 1)
        inside[np.repeat(np.arange(len(inside)), np.diff(self.starts))[pages[at] != self.pages]] = False
        return inside

    def blocks(self, block_pages: int, total: int, reader: MasterReader) -> tuple[NDArray[np.bool_], I64]:
        """Blocks of pages for the keys, first come first, as many as the disk buffer holds.

        Gives the keys that have all their pages among them, and the pages in order.
        """
        if block_pages == 1:
            pages = np.unique(self.pages)
            if reader.fitting(pages) == len(pages):
                return np.ones(len(self.starts) - 1, dtype=np.bool_), pages
        block = self.pages // block_pages
        blocks, at, inverse = np.unique(block, return_index=True, return_inverse=True)
        rank = np.empty(len(blocks), dtype=np.int64)
        order = np.argsort(at, kind="stable")
        rank[order] = np.arange(len(blocks))
        wanted = (blocks[order][:, None] * block_pages + np.arange(block_pages)).reshape(-1)
        inside = wanted < total
        lengths = np.zeros(len(wanted), dtype=np.int64)
        lengths[inside] = reader.master.index.extents(wanted[inside]).length
        per_block = np.cumsum(lengths.reshape(-1, block_pages).sum(axis=1))
        kept = int(np.searchsorted(per_block, reader.half_bytes, side="right"))
        complete = np.ones(len(self.starts) - 1, dtype=np.bool_)
        late = rank[inverse] >= kept
        complete[np.repeat(np.arange(len(complete)), np.diff(self.starts))[late]] = False
        pages = wanted[: kept * block_pages]
        return complete, np.sort(pages[pages < total])


@dataclass
class PageFinder:
    """The index of a master, and which loaded rows have keys that are loaded with all their rows."""

    master: Master
    stats: JoinStats
    index_disk: Disk | None
    index_buffer: NDArray[np.uint8] | None

    @staticmethod
    def open(master: Master, stats: JoinStats, budget: Budget, disk_kind: str, *, who: str) -> PageFinder:
        """Take the buffer for index pages, if there are any, out of the budget."""
        check_indexed(master, who=who)
        if master.key_index is None:
            return PageFinder(master, stats, None, None)
        size = index_buffer_bytes(master)
        budget.take("index buffer", size, who=who)
        return PageFinder(master, stats, master.key_index.open_disk(disk_kind), aligned_buffer(size)[:size])

    @property
    def pages(self) -> int:
        """N_R."""
        return self.master.pages

    def find(self, keys: Keys) -> Found:
        """The pages of each key."""
        if not self.pages:
            return Found(np.zeros(len(keys) + 1, dtype=np.int64), np.empty(0, dtype=np.int64))
        if self.master.key_index is None:
            found = self.master.index.find(keys)
            return Found.of_ranges(found.first, found.last)
        return self._look_up(keys)

    def _look_up(self, keys: Keys) -> Found:
        """Through the non-clustered index: read its pages, and take the entries of the keys."""
        index = self.master.key_index
        if index is None or self.index_disk is None or self.index_buffer is None:
            raise AssertionError("only layout 'frequency' is looked up")
        ranges = index.index.find(keys)
        wanted = np.unique(Found.of_ranges(ranges.first, ranges.last).pages)
        order = keys.argsort()
        ordered = keys.take(order)
        owners: list[I64] = []
        pages: list[I64] = []
        for start in range(0, len(wanted), _INDEX_PAGES_AT_ONCE):
            batches = index.read(
                wanted[start : start + _INDEX_PAGES_AT_ONCE], self.index_disk, self.index_buffer
            )
            entries = pa.concat_batches(batches)
            found = key_codes(entries, self.master.key, self.master.codec)
            hit = np.flatnonzero(is_in(found, ordered))
            owners.append(order[positions_of(found.take(hit), ordered, side="left")])
            pages.append(to_numpy(entries.column(entries.num_columns - 1))[hit])
        owner = np.concatenate(owners) if owners else np.empty(0, dtype=np.int64)
        page = np.concatenate(pages) if pages else np.empty(0, dtype=np.int64)
        pairs = np.unique(np.stack([owner, page]), axis=1) if len(owner) else np.empty((2, 0), dtype=np.int64)
        starts = np.zeros(len(keys) + 1, dtype=np.int64)
        np.cumsum(np.bincount(pairs[0], minlength=len(keys)), out=starts[1:])
        return Found(starts, pairs[1])

    def complete_rows(self, loaded: Loaded, chosen: Keys) -> I64 | None:
        """Loaded rows whose keys have no row elsewhere; None for all of them. `chosen` keys are known to be complete."""
        if is_unique(self.master):
            return None
        if self.master.layout != "key":
            return np.flatnonzero(is_in(loaded.keys, chosen.take(chosen.argsort())))
        keep = np.ones(loaded.found.rows, dtype=np.bool_)
        begins = np.flatnonzero(np.diff(loaded.pages, prepend=-2) != 1)
        starts = np.append(np.flatnonzero(loaded.keys.starts()), loaded.found.rows)
        for i, begin in enumerate(begins.tolist()):
            end = int(begins[i + 1]) if i + 1 < len(begins) else len(loaded.pages)
            first, last = int(loaded.found.first_row[begin]), int(loaded.found.first_row[end])
            if first == last:
                continue
            if self.master.index.goes_on(int(loaded.pages[begin])):
                keep[first : starts[np.searchsorted(starts, first, side="right")]] = False
            if self.master.index.goes_on(int(loaded.pages[end - 1]) + 1):
                keep[starts[np.searchsorted(starts, last - 1, side="right") - 1] : last] = False
        return np.flatnonzero(keep)

    def has_room_for(self, master: Master) -> bool:
        """Whether the index of another version can be read through this buffer."""
        index = master.key_index
        if index is None or self.index_buffer is None:
            return index is None
        return _INDEX_PAGES_AT_ONCE * index.index.max_page_bytes <= len(self.index_buffer)

    def move_to(self, master: Master, disk_kind: str) -> None:
        """Look into another version from now on; the finder must be closed."""
        self.master = master
        self.index_disk = master.key_index.open_disk(disk_kind) if master.key_index is not None else None

    def close(self) -> None:
        """Close the index's disk."""
        if self.index_disk is not None:
            self.index_disk.close()


def check_indexed(master: Master, *, who: str) -> None:
    """That there is something to find keys with."""
    if master.layout == "heap":
        raise InvalidInputError(
            f"{who} on {master.path}",
            found='layout "heap", which has no index',
            hint="Use meshjoin, or build the master with layout='key'.",
        )


def index_buffer_bytes(master: Master) -> int:
    """Of the buffer for index pages, where the index is not in memory."""
    if master.key_index is None:
        return 0
    return _INDEX_PAGES_AT_ONCE * max(master.page_bytes, master.key_index.index.max_page_bytes)


def is_unique(master: Master) -> bool:
    """Whether no key repeats, as far as is known."""
    return master.statistics.distinct_keys == master.rows


def same_pages(old: Master, new: Master, keys: Keys) -> NDArray[np.bool_]:
    """Keys whose rows are on the same pages in both versions, and so are the same: a changed page is a new one."""
    if old.layout != "key" or new.layout != "key" or not old.pages or not new.pages:
        return np.zeros(len(keys), dtype=np.bool_)
    before, after = old.index.find(keys), new.index.find(keys)
    first, counts = Found.of_ranges(before.first, before.last), before.last - before.first + 1
    same: NDArray[np.bool_] = (counts == after.last - after.first + 1) & (counts > 0)
    owner = np.repeat(np.arange(len(keys)), np.maximum(counts, 0))
    here = np.flatnonzero(same[owner])
    shift = (after.first - before.first)[owner[here]]
    pages = first.pages[here]
    changed = _elsewhere(old, pages, new, pages + shift)
    same[owner[here][changed]] = False
    return same


def _elsewhere(old: Master, old_pages: I64, new: Master, new_pages: I64) -> NDArray[np.bool_]:
    """Which pages of two versions are not the same file at the same place."""
    before, after = old.index.extents(old_pages), new.index.extents(new_pages)
    number = {name: i for i, name in enumerate((*old.manifest.data.files, *new.manifest.data.files))}
    old_file = np.array([number[name] for name in old.manifest.data.files], dtype=np.int64)
    new_file = np.array([number[name] for name in new.manifest.data.files], dtype=np.int64)
    moved: NDArray[np.bool_] = before.offset != after.offset
    moved |= old_file[before.file] != new_file[after.file]
    return moved
