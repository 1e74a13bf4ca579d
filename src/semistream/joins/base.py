"""The contract of a join.

    offer(tuples)   takes arrived tuples, at most `room` of them, and gives what can be answered at once
    advance()       does one disk access and gives what it answered

Answers are put together as they are taken, so that no more than a batch of them is in memory: take them all before the
next call, or nothing has happened.

    pending         how many tuples wait
    shed(count)     lets waiting tuples go that have met nothing, the oldest first, to be offered again another time
    snapshot()      the waiting tuples as they came, oldest first, and what they have met
    restore(...)    let tuples of a snapshot wait again
    stats           counts of everything

Three laws, tested for every algorithm: every admitted tuple is answered exactly once, with all its matches or as one
miss; accounted bytes never exceed the budget; `pending` falls to zero within `bound` advances without new tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.arrow import from_numpy, to_numpy
from semistream.errors import InvalidInputError
from semistream.joins.reader import Loaded
from semistream.joins.sides import Tuples
from semistream.shedding import SheddingStats

I64 = NDArray[np.int64]
Answers = Iterator[pa.RecordBatch]
_MET, _MATCHED = "semistream_pages_met", "semistream_matched"
_POSITION, _VERSION = "semistream.position", "semistream.version"
_SHED, _PLAN = "semistream.shed", "semistream.plan"
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
    probes: int = 0  # of waiting tuples by master rows, or of a page's rows by a tuple
    front_probes: int = 0  # of rows in memory by tuples
    admitted: int = 0  # tuples that had to wait
    cached: int = 0  # keys taken into the front stage
    evicted: int = 0  # and out of it
    versions: int = 0  # of the master that were moved on to
    retuned: int = 0  # times that the join was, while running
    waiting: int = 0  # arrived, and neither answered nor shed nor dropped
    shed: int = 0  # put away, to be answered later
    dropped: int = 0  # never to be answered
    disk_seconds: float = 0.0  # spent reading; of a simulated disk, virtual
    budget_bytes: int = 0
    used: dict[str, int] = field(default_factory=dict)  # bytes by structure
    plan: str = ""
    shedding: SheddingStats | None = None

    def since(self, earlier: JoinStats) -> JoinStats:
        """What was counted since these counts were copied."""
        counts = [each.name for each in fields(self) if isinstance(getattr(self, each.name), int)]
        return replace(self, **{name: getattr(self, name) - getattr(earlier, name) for name in counts})

    @property
    def used_bytes(self) -> int:
        """Bytes taken of the budget."""
        return sum(self.used.values())


@dataclass(frozen=True)
class Snapshot:
    """Waiting tuples, oldest first: what is needed to go on with them, later or elsewhere.

    A tuple of MESHJOIN that has met some pages has some of its rows out already, so it comes with how many it has met and
    whether one matched. `position` is the page that would have been read next, of this version of the master. `shed` says
    which files hold the tuples that were put away (shedding/store.py), `plan` how the join was divided (resuming.py).
    """

    tuples: pa.RecordBatch
    met: I64
    matched: NDArray[np.bool_]
    position: int
    version: int
    shed: str = ""
    plan: str = ""

    @property
    def begun(self) -> int:
        """How many, the oldest, have met a part of the master."""
        return int(np.count_nonzero(self.met))

    def check_untouched(self) -> None:
        """Refuse tuples that have met a part of the master: only a scan can go on with them, to others they are new."""
        if self.begun:
            raise InvalidInputError(
                "resuming a join that looks rows up",
                found=f"{self.begun:,} tuples that have met a part of the master in a scan",
                hint="Go on with meshjoin, r-meshjoin or cmeshjoin until they are answered.",
            )

    @staticmethod
    def untouched(tuples: pa.RecordBatch, version: int) -> Snapshot:
        """Of tuples that have met nothing."""
        return Snapshot(
            tuples, np.zeros(len(tuples), dtype=np.int64), np.zeros(len(tuples), dtype=np.bool_), 0, version
        )

    def followed_by(self, tuples: pa.RecordBatch) -> Snapshot:
        """With younger tuples that have met nothing."""
        more = Snapshot.untouched(tuples, self.version)
        return replace(
            self,
            tuples=pa.concat_batches([self.tuples, tuples]),
            met=np.concatenate([self.met, more.met]),
            matched=np.concatenate([self.matched, more.matched]),
        )

    def to_arrow(self) -> pa.RecordBatch:
        """As one batch, which any Arrow file can hold."""
        fields = [*self.tuples.schema, pa.field(_MET, pa.int64()), pa.field(_MATCHED, pa.bool_())]
        metadata = {
            _POSITION: str(self.position),
            _VERSION: str(self.version),
            _SHED: self.shed,
            _PLAN: self.plan,
        }
        columns = [*self.tuples.columns, from_numpy(self.met), from_numpy(self.matched)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))

    @staticmethod
    def from_arrow(batch: pa.RecordBatch) -> Snapshot:
        """What `to_arrow` gave."""
        metadata = batch.schema.metadata or {}
        if batch.schema.names[-2:] != [_MET, _MATCHED] or _POSITION.encode() not in metadata:
            raise InvalidInputError(
                "resuming a join",
                found=f"a batch with the columns {', '.join(batch.schema.names)}",
                hint="Pass what snapshot() gave, with its schema's metadata.",
            )
        return Snapshot(
            batch.select(batch.schema.names[:-2]).replace_schema_metadata(None),
            to_numpy(batch.column(_MET)),
            to_numpy(batch.column(_MATCHED)),
            int(metadata[_POSITION.encode()]),
            int(metadata[_VERSION.encode()]),
            metadata.get(_SHED.encode(), b"").decode(),
            metadata.get(_PLAN.encode(), b"").decode(),
        )


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

    def shed(self, count: int) -> pa.RecordBatch:
        """Let up to `count` waiting tuples go, the oldest first; none where the oldest have met a part of the master."""

    def snapshot(self, limit: int | None = None) -> Snapshot:
        """The waiting tuples, oldest first; no more than `limit`."""

    def restore(self, tuples: Tuples, snapshot: Snapshot) -> int:
        """Let the tuples of a snapshot wait again, in a join that is new; gives how many, from the first on."""
