"""The contract of a join.

    offer(tuples)   takes arrived tuples, at most `room` of them, and gives what can be answered at once
    advance()       does one disk access and gives what it answered
    pending         how many tuples wait
    snapshot()      the waiting tuples as they came, oldest first
    stats           counts of everything

Three laws, tested for every algorithm: every admitted tuple is answered exactly once, with all its matches or as one
miss; accounted bytes never exceed the budget; `pending` falls to zero within `bound` advances without new tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples

I64 = NDArray[np.int64]
Answers = list[pa.RecordBatch]
Observer = Callable[[Loaded, I64], None]  # told which loaded rows met waiting tuples, a row per pair


@dataclass
class JoinStats:
    """What a join has done so far. Tuples are the stream's, rows the output's."""

    tuples: int = 0  # arrived
    answered: int = 0  # of these
    misses: int = 0  # answered with nothing
    rows: int = 0  # put out
    front_hits: int = 0  # tuples answered by rows in memory, without waiting
    advances: int = 0  # disk accesses
    pages: int = 0  # read in them
    probes: int = 0  # of waiting tuples by master rows
    admitted: int = 0  # tuples that had to wait
    cached: int = 0  # keys taken into the front stage
    evicted: int = 0  # and out of it
    budget_bytes: int = 0
    used: dict[str, int] = field(default_factory=dict)  # bytes by structure
    plan: str = ""

    @property
    def used_bytes(self) -> int:
        """Bytes taken of the budget."""
        return sum(self.used.values())


class Join(Protocol):
    """What every algorithm is."""

    @property
    def stats(self) -> JoinStats:
        """Counts of everything."""

    @property
    def room(self) -> int:
        """How many tuples may be offered now; 0 asks for an advance first."""

    @property
    def pending(self) -> int:
        """How many tuples wait."""

    @property
    def bound(self) -> int:
        """Advances after which none of the tuples waiting now still waits."""

    def offer(self, tuples: Tuples) -> tuple[Answers, int]:
        """Take tuples from the front on; give what is answered at once, and how many were taken."""

    def advance(self) -> Answers:
        """Do one disk access, and answer what it allows."""

    def snapshot(self) -> pa.RecordBatch:
        """The waiting tuples, oldest first."""
