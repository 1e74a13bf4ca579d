"""The backlog: tuples that have arrived and that the join has no room for yet (CACHING's stream buffer).

What is in memory is bounded; what has arrived beyond that stays where it came from until it is asked for, or is shed as it
is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from semistream.config import format_bytes
from semistream.errors import InvalidInputError
from semistream.shedding.arrivals import ArrivalClock

_AT_ONCE = 1 << 13  # tuples taken from the source together
_LEAST = 1 << 10  # tuples given to the join together
Arrived = Callable[
    [pa.RecordBatch], pa.RecordBatch
]  # what is done to tuples as they arrive: those to be kept


@dataclass
class Backlog:
    """Arrived tuples, at most `limit_bytes` of them in memory, oldest first."""

    source: Iterator[pa.RecordBatch]
    clock: ArrivalClock
    limit_bytes: int
    added_bytes: int = 0  # to each tuple, as it arrives
    coming: pa.RecordBatch | None = None  # handed over by the source, from the first tuple that was not taken
    arrived: int = 0  # by the last look at the clock
    taken: int = 0  # from the source
    ended: bool = False  # the source has no more
    held: deque[pa.RecordBatch] = field(default_factory=deque)
    held_rows: int = 0
    held_bytes: int = 0
    given_bytes: int = 0  # of the batch that was given last: the join has it until it asks for another

    @property
    def due(self) -> int:
        """How many have arrived and are not taken from the source."""
        return 0 if self.ended else self.arrived - self.taken

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.held_bytes + self.given_bytes

    def look(self) -> None:
        """Look at the clock."""
        self.arrived = max(self.arrived, self.clock.arrived())

    def wait(self) -> None:
        """Wait for the next tuple; where there is none the stream has ended."""
        if self._peek() is not None:
            self.clock.wait_for(self.taken + 1)
            self.look()
            self.arrived = max(self.arrived, self.taken + 1)  # however its moment was rounded

    def fill(self, arrive: Arrived) -> None:
        """Take what has arrived into memory, as much as there is room for."""
        while self.due > 0 and self.nbytes < self.limit_bytes:
            batch = self.arrive(min(self.due, _AT_ONCE), most_bytes=self.limit_bytes - self.nbytes)
            if batch is None:
                return
            kept = arrive(batch)
            if len(kept):
                self.held.append(kept)
                self.held_rows += len(kept)
                self.held_bytes += kept.nbytes

    def arrive(self, most: int, *, most_bytes: int | None = None) -> pa.RecordBatch | None:
        """Take some tuples from the source, no more than these bytes; None where nothing is left, or it does not fit."""
        coming = self._peek()
        if coming is None:
            return None
        count = min(most, len(coming))
        while (
            most_bytes is not None and coming.slice(0, count).nbytes + count * self.added_bytes > most_bytes
        ):
            if count == 1:
                if not self.nbytes:
                    raise InvalidInputError(
                        "a stream tuple in the stream buffer",
                        found=f"one of {format_bytes(coming.slice(0, 1).nbytes)}, room for {format_bytes(most_bytes)}",
                        hint="Raise memory=.",
                    )
                return None
            count //= 2
        self.taken += count
        self.coming = coming.slice(count) if count < len(coming) else None
        return coming.slice(0, count)

    def give(self, room: int) -> pa.RecordBatch | None:
        """The oldest tuples, about as many as there is room for; None where there are none."""
        self.given_bytes = 0
        if not self.held:
            return None
        batch = self.held.popleft()
        most = max(_LEAST, 2 * room)
        if len(batch) > most:
            rest, batch = batch.slice(most), batch.slice(0, most)
            self.held.appendleft(rest)
        self.held_rows -= len(batch)
        self.given_bytes = batch.nbytes
        self.held_bytes = sum(held.nbytes for held in self.held)
        return batch

    def cut(self, count: int) -> Iterator[pa.RecordBatch]:
        """Let the newest tuples go, in memory or not, in the order they came."""
        after = min(count, self.due)
        cut: deque[pa.RecordBatch] = deque()
        left = count - after
        while left > 0 and self.held:
            batch = self.held.pop()
            kept = max(0, len(batch) - left)
            if kept:
                self.held.append(batch.slice(0, kept))
            cut.appendleft(batch.slice(kept))
            left -= len(cut[0])
        self.held_rows -= sum(map(len, cut))
        self.held_bytes = sum(held.nbytes for held in self.held)
        yield from cut
        while after > 0:
            arrived = self.arrive(min(after, _AT_ONCE))
            if arrived is None:
                return
            after -= len(arrived)
            yield arrived

    def _peek(self) -> pa.RecordBatch | None:
        while self.coming is None and not self.ended:
            batch = next(self.source, None)
            if batch is None:
                self.ended = True
            elif len(batch):
                self.coming = batch
        return self.coming
