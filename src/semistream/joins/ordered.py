"""Output in stream order: answers are held until every earlier tuple is answered.

Tuples are numbered as they come, in a column of their own that never leaves the join. What is held is bounded: when
it takes more than its part of the budget, no more tuples are let in until the oldest one is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from semistream.arrow import from_numpy, to_numpy

SHARE = 0.25  # of the budget
_OUT_BYTES = 4 << 20  # put out at a time
_LATEST = 4  # a mark that frees less than one in so many held rows is not worth a look at all of them


def number_column(stream: pa.Schema) -> str:
    """A name for the numbers that the stream has no column of."""
    name = "semistream_number"
    while name in stream.names:
        name += "_"
    return name


def numbered(batch: pa.RecordBatch, name: str, first: int) -> pa.RecordBatch:
    """A batch with its tuples' numbers as a last column."""
    return batch.append_column(name, from_numpy(np.arange(first, first + len(batch), dtype=np.int64)))


@dataclass
class Ordered:
    """Answers that wait for their turn."""

    column: str
    limit_bytes: int
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0
    mark: int = 0  # every tuple before it is out

    @property
    def is_full(self) -> bool:
        """Whether no more may be answered ahead of their turn."""
        return self.held_bytes > self.limit_bytes

    def hold(self, batch: pa.RecordBatch) -> None:
        """Hold answers back."""
        self.held.append(batch)
        self.held_bytes += batch.nbytes

    def due(self, mark: int, *, last: bool = False) -> Iterator[pa.RecordBatch]:
        """Those whose turn it is: every tuple before `mark` is answered."""
        rows = sum(map(len, self.held))
        worth_it = last or self.is_full or (mark - self.mark) * _LATEST >= rows
        if not rows or mark == self.mark or not worth_it:
            return
        self.mark = mark
        whole, self.held, self.held_bytes = pa.concat_batches(self.held), [], 0
        numbers = to_numpy(whole.column(self.column))
        due = numbers < mark
        if not due.all():
            later = whole.filter(from_numpy(~due))
            self.held, self.held_bytes = [later], later.nbytes
        ready = np.flatnonzero(due)
        ready = ready[np.argsort(numbers[ready], kind="stable")]  # a tuple's rows stay as they came
        whole = whole.drop_columns([self.column])
        at_once = max(1, _OUT_BYTES * len(whole) // max(whole.nbytes, 1))
        for begin in range(0, len(ready), at_once):
            yield whole.take(from_numpy(ready[begin : begin + at_once]))
