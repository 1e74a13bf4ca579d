"""How a waiting tuple is written down: its columns under their own names, why it waits, and since when.

| kind | it waits because |
|---|---|
| begun | it has met some pages of a scan, and goes on where that stopped |
| untouched | it may be answered later (max_delay), or there was no room yet |
| missing | its master row has not arrived; it is tried again when the master has changed |
| shed | the stream was faster than the join |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from semistream.errors import StoreError
from semistream.joins.base import Snapshot
from semistream.pipeline.spool import read_parquet

KINDS = ("begun", "untouched", "missing", "shed")
REASONS = {"begun": "delay", "untouched": "delay", "missing": "missing", "shed": "shed"}
SINCE, ENTERED = "semistream_since", "semistream_entered"  # microseconds, behind a tuple's own columns
REASON, TRIED = "semistream_reason", "semistream_tried_version"
MET, MATCHED = "semistream_pages_met", "semistream_matched"
OURS = (SINCE, ENTERED, REASON, TRIED, MET, MATCHED)
_TIME = pa.timestamp("us", tz="UTC")
_META = "semistream."


@dataclass(frozen=True)
class Scan:
    """Where a scan stopped, for tuples that have begun with it."""

    position: int
    version: int
    part: tuple[int, int] | None
    heap_bytes: float

    def to_metadata(self) -> dict[str, str]:
        """As a schema's metadata."""
        part = "" if self.part is None else f"{self.part[0]}:{self.part[1]}"
        values = {
            "position": self.position,
            "version": self.version,
            "part": part,
            "heap_bytes": self.heap_bytes,
        }
        return {_META + name: str(value) for name, value in values.items()}

    @staticmethod
    def of_file(path: str) -> Scan:
        """What `to_metadata` gave, from a file."""
        found = pq.read_schema(path).metadata or {}
        values = {
            name: found[(_META + name).encode()].decode()
            for name in ("position", "version", "part", "heap_bytes")
        }
        first, _, end = values["part"].partition(":")
        return Scan(
            int(values["position"]),
            int(values["version"]),
            (int(first), int(end)) if end else None,
            float(values["heap_bytes"]),
        )


@dataclass(frozen=True)
class Form:
    """The tuples of one enrichment: as the join has them, and under the names that people know."""

    stream: pa.Schema  # c0, c1, ...
    names: tuple[str, ...]

    @property
    def aged(self) -> pa.Schema:
        """The stream with each tuple's two times: what the join is given."""
        return pa.schema([*self.stream, pa.field(SINCE, pa.int64()), pa.field(ENTERED, pa.int64())])

    def arriving(self, batch: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
        """Tuples that have just come."""
        now = pa.array(np.full(len(batch), now_us, dtype=np.int64))
        return pa.RecordBatch.from_arrays([*batch.columns, now, now], schema=self.aged)

    def again(self, batch: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
        """Tuples that begin to wait anew; when they arrived stays known."""
        now = pa.array(np.full(len(batch), now_us, dtype=np.int64))
        return pa.RecordBatch.from_arrays([*batch.columns[:-1], now], schema=self.aged)

    def written(
        self,
        tuples: pa.RecordBatch,
        kind: str,
        *,
        tried: int,
        snapshot: Snapshot | None = None,
        scan: Scan | None = None,
    ) -> pa.RecordBatch:
        """Aged tuples as they are written."""
        count = len(tuples)
        columns = [
            *tuples.columns[:-2],
            tuples.column(SINCE).view(pa.timestamp("us")).cast(_TIME),
            tuples.column(ENTERED).view(pa.timestamp("us")).cast(_TIME),
            pa.array([REASONS[kind]]).take(pa.array(np.zeros(count, dtype=np.int64))),
            pa.array(np.full(count, tried, dtype=np.int64)),
            pa.array(np.zeros(count, dtype=np.int64) if snapshot is None else snapshot.met),
            pa.array(np.zeros(count, dtype=np.bool_) if snapshot is None else snapshot.matched),
        ]
        fields = [
            *[pa.field(name, field.type) for name, field in zip(self.names, self.stream, strict=True)],
            pa.field(SINCE, _TIME),
            pa.field(ENTERED, _TIME),
            pa.field(REASON, pa.string()),
            pa.field(TRIED, pa.int64()),
            pa.field(MET, pa.int64()),
            pa.field(MATCHED, pa.bool_()),
        ]
        return pa.RecordBatch.from_arrays(
            columns, schema=pa.schema(fields, metadata=None if scan is None else scan.to_metadata())
        )

    def read(
        self, path: str, first: int = 0, count: int | None = None
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """What was written, `count` from `first` on: aged tuples, and the rest of what is known of each."""
        for batch in read_parquet(path, first, count):
            width = len(self.stream)
            if tuple(batch.schema.names) != (*self.names, *OURS):
                raise StoreError(
                    f"the tuples that wait in {path}",
                    found=f"columns {', '.join(batch.schema.names[: -len(OURS)])}",
                    hint=f"The stream has {', '.join(self.names)} now: run the pipeline as it was and drain it first.",
                )
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, self.stream, strict=False)
            ]
            ages = [batch.column(width + i).cast(_TIME).view(pa.int64()) for i in range(2)]
            yield (
                pa.RecordBatch.from_arrays([*columns, *ages], schema=self.aged),
                batch.select(list(range(width + 2, batch.num_columns))),
            )

    def read_begun(self, path: str) -> tuple[Snapshot, Scan]:
        """Tuples that go on with a scan."""
        scan = Scan.of_file(path)
        parts = list(self.read(path))
        tuples = pa.concat_batches([tuples for tuples, _ in parts])
        known = pa.concat_batches([rest for _, rest in parts])
        return (
            Snapshot(
                tuples,
                known.column(MET).to_numpy(),
                known.column(MATCHED).to_numpy(zero_copy_only=False),
                scan.position,
                scan.version,
            ),
            scan,
        )


def ages_of(tuples: pa.RecordBatch) -> tuple[int, int]:
    """The oldest arrival and the oldest entry."""
    oldest: Any = [pc.min(tuples.column(name)).as_py() for name in (SINCE, ENTERED)]
    return oldest[0], oldest[1]
