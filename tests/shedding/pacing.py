"""Streams that arrive faster than they can be joined, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

import semistream as ss
from semistream.joins import JoinedStream, Settings
from semistream.shedding import Shedding, Timed
from semistream.workload.arrivals import Arrivals


@dataclass
class Script:
    """So many have arrived at the first look, the second, ...; in the end, all."""

    looks: list[int]
    seen: list[int] = field(default_factory=list)

    def arrived(self) -> int:
        self.seen.append(self.looks[min(len(self.seen), len(self.looks) - 1)])
        return self.seen[-1]

    def wait_for(self, count: int) -> None:
        assert count <= self.looks[-1]


def paced(
    stream: pa.Table,
    master: ss.Master,
    arrivals: Arrivals,
    *,
    shedding: Shedding,
    rows: int = 500,
    disk: str = "hdd-2007",
    settings: Settings | None = None,
    **options: object,
) -> JoinedStream:
    """A join on a simulated disk, whose seconds are those that tuples arrive by."""
    joined: JoinedStream

    clock = Timed(arrivals, now=lambda: joined.stats.disk_seconds, rows=len(stream))
    batches = stream.to_batches(max_chunksize=rows)
    joined = ss.join(
        pa.RecordBatchReader.from_batches(stream.schema, batches),
        master,
        shedding=shedding,
        arrivals=clock,
        disk=disk,
        settings=settings or Settings(disk_buffer=4096, parallel=1),
        **options,
    )
    return joined
