"""MESHJOIN (MESH, section 3).

The master is scanned in a cycle through a disk buffer of b pages, and every page meets all waiting tuples at once: one
sequential read is shared by the whole window. A tuple leaves when it has met every page exactly once, whatever page
was current when it came. No index is needed, and keys may repeat on both sides.

Where we deviate: the paper takes b to divide the number of pages and lets w tuples in per iteration. Here each tuple
remembers how many pages had been read when it came, and a read is cut short where the oldest tuple has met them all; so
b need not divide anything, and w and b may change at any time without a match lost or doubled.

Cost of an iteration: c_IO(b) + w (c_E + c_S + c_A) + b (v_P / v_R) c_H + sigma b (v_P / v_R) c_O for w tuples (eq. 2).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.joins.base import Answers, JoinStats, Snapshot
from semistream.joins.sides import Tuples
from semistream.joins.waiting import AT_ONCE, Waiting

I64 = NDArray[np.int64]


@dataclass
class MeshJoin:
    """The cyclic scan. `per_step` is w: tuples let in per iteration; None lets in what there is room for.

    `step_pages` is b, at most what the disk buffer holds. Both may be changed at any time, and so may `most`, how many
    pages may still be read before somebody says so; only while nobody waits, `part` may be: the pages first .. end - 1 are then all
    the master there is. Positions count from its first page.
    """

    waiting: Waiting
    per_step: int | None = None
    step_pages: int | None = None
    most: int | None = None
    part: tuple[int, int] | None = None
    position: int = 0  # the next page to be read
    read: int = 0  # pages read since the beginning
    taken: int = 0  # tuples let in since the last iteration
    entered: deque[tuple[int, int]] = field(
        default_factory=deque
    )  # oldest first: `read` when they came, how many

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""
        return self.waiting.stats

    @property
    def pages(self) -> int:
        """N_R."""
        return self.part[1] - self.part[0] if self.part else self.waiting.reader.master.pages

    @property
    def room(self) -> int:
        """Free places, but no more than are let in per iteration."""
        free = self.waiting.room
        return free if self.per_step is None else max(0, min(free, self.per_step - self.taken))

    @property
    def pending(self) -> int:
        """How many tuples wait."""
        return self.waiting.window.waiting

    @property
    def bound(self) -> int:
        """A cycle; every tuple may cut one read into two."""
        return self.pages + 1 if self.pending else 0

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Lines 7 and 8: add tuples to the window; nothing is answered before a page is read."""
        places = self.waiting.window.capacity
        count = self.waiting.admit(tuples, self.room)
        if (
            self.per_step is not None and self.waiting.window.capacity != places
        ):  # divided anew: w goes with it
            self.per_step = -(-self.per_step * self.waiting.window.capacity // places)
        self._enter(self.read, count)
        self.taken += count
        return iter(()), count

    def advance(self) -> Answers:
        """One iteration: read up to b pages, join them with the window, let go who has met them all."""
        self.taken = 0
        if not self.pending:
            return
        waiting = self.waiting
        if not self.pages:
            self.entered.clear()
            yield from waiting.miss(waiting.window.oldest(self.pending))
            return
        # Line 2: read b pages, but none that the oldest tuple has met, and none over the master's end.
        pages = self._wanted(self.position, self.read)
        if not len(pages):
            return
        position = (self.position + len(pages)) % self.pages
        if self.most is not None:
            self.most -= len(pages)
        loaded = waiting.reader.load(pages, then=self._wanted(position, self.read + len(pages)))
        self.stats.advances += 1
        self.stats.pages += len(pages)
        # Lines 9 and 10: join the pages' rows with the window.
        yield from waiting.match(loaded)
        self.position = position
        self.read += len(pages)
        # Lines 3 to 6: the oldest have met every page; those that met nothing are misses.
        leaving = self._leaving()
        while leaving:
            done = waiting.window.oldest(min(leaving, AT_ONCE))
            yield from waiting.leave(done, waiting.window.matched(done))
            leaving -= len(done)

    def _enter(self, read: int, count: int) -> None:
        if count and self.entered and self.entered[-1][0] == read:
            count += self.entered.pop()[1]
        if count:
            self.entered.append((read, count))

    def _leaving(self) -> int:
        """How many have met every page."""
        count = 0
        while self.entered and self.entered[0][0] <= self.read - self.pages:
            count += self.entered.popleft()[1]
        return count

    def _wanted(self, position: int, read: int) -> I64:
        """The pages of an iteration that begins there, when so many have been read: only those that are left for the oldest."""
        left = next(
            (self.pages - (read - entry) for entry, _ in self.entered if read - entry < self.pages), 0
        )
        return self._next(position)[:left][: self.most]

    def _next(self, position: int) -> I64:
        """The b pages from a position on, as far as the master and the disk buffer go."""
        reader = self.waiting.reader
        count = min(self.step_pages or reader.pages_at_once, reader.pages_at_once)
        pages = np.arange(position, min(position + count, self.pages), dtype=np.int64)
        pages += self.part[0] if self.part else 0
        return pages[: max(1, reader.fitting(pages))]

    def shed(self, count: int) -> pa.RecordBatch:  # noqa: ARG002
        """None: the oldest have met most of the master, and every tuple costs the same."""
        return self.waiting.shape.no_tuples()

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first, with what each has met."""
        tuples = self.waiting.snapshot(limit).tuples
        counts = np.array([count for _, count in self.entered], dtype=np.int64)
        met = np.repeat([self.read - read for read, _ in self.entered], counts).astype(np.int64)
        matched = self.waiting.window.matched(self.waiting.window.oldest(len(tuples)))
        return Snapshot(
            tuples, met[: len(tuples)], matched, self.position, self.waiting.reader.master.version
        )

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:
        """Go on where the snapshot was taken: tuples that have met pages must all find room."""
        begun = snapshot.begun
        count = self.waiting.admit(tuples, len(tuples))
        if count < begun:
            raise InvalidInputError(
                f"resuming {begun:,} tuples that have met a part of the master",
                found=f"a window with room for {count:,}",
                hint="Give the join at least as much memory as it had.",
            )
        if begun and snapshot.version != self.waiting.reader.master.version:
            raise InvalidInputError(
                f"resuming on version {self.waiting.reader.master.version} of the master",
                found=f"tuples that have met a part of version {snapshot.version}",
                hint=f"Open that version: open_master(path, version={snapshot.version}).",
            )
        met, matched = snapshot.met[:count], snapshot.matched[:count]
        self.waiting.window.mark(self.waiting.window.oldest(count), matched)
        self.position, self.read = (snapshot.position if begun else 0), int(met.max(initial=0))
        values, counts = np.unique(met, return_counts=True)
        # The oldest have met most.
        for pages, here in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
            self._enter(self.read - pages, here)
        return count

    def restart(self, per_step: int | None) -> None:
        """Begin a new cycle, over another version of the master or a part of it; nobody waits."""
        self.per_step, self.position, self.read, self.taken = per_step, 0, 0, 0
        self.most = self.part = None
        self.entered.clear()
