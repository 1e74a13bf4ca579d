"""Sorting rows that do not fit in memory, for builds that run without Spark.

Rows are gathered into runs of bounded size, each sorted and spilled; then splitters that fall evenly over all runs cut
the key space into ranges, and each range is gathered from every run, merged and handed on. Both passes touch every row
once, in large pieces. Equal keys keep the order in which they came; a key with very many rows is handed on piece by
piece, unmerged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.master.keys import KeyCodec, Keys, positions_of
from semistream.master.storage import explained

CodesOf = Callable[[pa.RecordBatch], Keys]
DEFAULT_SORT_BYTES = 512 << 20
_BLOCK_ROWS = 1 << 15
_WORKERS = 2
_COPIES = 3  # rows are in memory as they came, as one piece, and in order


@dataclass
class ExternalSort:
    """Sorts batches by the codes that `codes_of` gives; used as ``for range_ in ExternalSort(...).ranges(batches)``."""

    codec: KeyCodec
    codes_of: CodesOf
    scratch: Path
    memory_bytes: int = DEFAULT_SORT_BYTES
    _runs: list[_Run] = field(default_factory=list)

    def ranges(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sorted batches, one per range of keys, in key order."""
        try:
            held: list[pa.RecordBatch] = []
            held_bytes = 0
            for batch in batches:
                held.append(batch)
                held_bytes += batch.nbytes
                if held_bytes >= self.memory_bytes // _COPIES:
                    self._runs.append(self._spill(held))
                    held, held_bytes = [], 0
            if not self._runs:
                yield from [self._sorted(held)] if held else []
                return
            if held:
                self._runs.append(self._spill(held))
            del held
            yield from self._merge()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _sorted(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        batch = pa.concat_batches(batches)
        codes = self.codes_of(batch)
        return batch if codes.is_sorted() else take(batch, codes.argsort())

    def _spill(self, batches: list[pa.RecordBatch]) -> _Run:
        batch = self._sorted(batches)
        self.scratch.mkdir(parents=True, exist_ok=True)
        path = self.scratch / f"run-{len(self._runs)}.arrow"
        with (
            explained(f"spilling rows to {path}"),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema) as file,
        ):
            for start in range(0, len(batch), _BLOCK_ROWS):
                file.write_batch(batch.slice(start, _BLOCK_ROWS))
        heads = batch.take(pa.array(np.arange(0, len(batch), _BLOCK_ROWS)))
        return _Run(path, len(batch), batch.nbytes, self.codes_of(heads))

    def _merge(self) -> Iterator[pa.RecordBatch]:
        heads = self.codec.concat([run.heads for run in self._runs])
        heads = heads.take(heads.argsort())
        # Two ranges are in memory at once: one being merged, one being written.
        blocks = max(
            1, self.memory_bytes // (2 * _COPIES) * len(heads) // max(sum(run.bytes for run in self._runs), 1)
        )
        # A key that fills whole blocks gets a range of its own, which needs no merging and so no memory.
        starts = heads.starts()
        repeated = starts & ~np.append(starts[1:], True)
        even = np.zeros(len(heads), dtype=np.bool_)
        even[blocks::blocks] = True
        chosen = np.maximum.accumulate(np.where(starts, np.arange(len(heads)), 0))[even]
        at = np.union1d(chosen, np.flatnonzero(repeated)).astype(np.int64)
        splitters, alone = heads.take(at), repeated[at]
        files = [pa.ipc.open_file(pa.memory_map(str(run.path))) for run in self._runs]
        bounds = [
            self._bounds(run, file, splitters, alone) for run, file in zip(self._runs, files, strict=True)
        ]
        single = np.insert(
            alone, np.flatnonzero(alone) + 1, values=False
        )  # of the ranges that begin at a bound

        def pieces(i: int) -> list[pa.RecordBatch]:
            parts = zip(files, bounds, strict=True)
            return [piece for file, at in parts for piece in _rows(file, at[i], at[i + 1])]

        def merged(i: int) -> list[pa.RecordBatch]:
            if i and single[i - 1]:
                return []
            found = pieces(i)
            return [self._sorted(found)] if found else []

        # One range is merged while the one before it is written.
        with ThreadPoolExecutor(max_workers=1) as ahead:
            following = ahead.submit(merged, 0)
            for i in range(len(single) + 1):
                current = following.result()
                if i < len(single):
                    following = ahead.submit(merged, i + 1)
                yield from current
                if i and single[i - 1]:
                    # Runs are in the order the rows came, and so are the rows of one key inside them.
                    yield from pieces(i)

    def _bounds(
        self, run: _Run, file: pa.ipc.RecordBatchFileReader, splitters: Keys, alone: NDArray[np.bool_]
    ) -> list[int]:
        """The rows of a run at which each range begins, and its end; keys that stand alone end where the next begins."""
        left = self._positions(run, file, splitters, "left")
        right = self._positions(run, file, splitters.take(np.flatnonzero(alone)), "right")
        at = np.insert(np.array(left, dtype=np.int64), np.flatnonzero(alone) + 1, right)
        return [0, *at.tolist(), run.rows]

    def _positions(
        self, run: _Run, file: pa.ipc.RecordBatchFileReader, keys: Keys, side: Literal["left", "right"]
    ) -> list[int]:
        """Where keys would be inserted into a run, through its blocks' first keys."""
        at = []
        for i, block in enumerate((positions_of(keys, run.heads, side=side) - 1).tolist()):
            if block < 0:
                at.append(0)
                continue
            inside = positions_of(keys.take(np.array([i])), self.codes_of(file.get_batch(block)), side=side)
            at.append(block * _BLOCK_ROWS + int(inside[0]))
        return at


@dataclass(frozen=True)
class _Run:
    path: Path
    rows: int
    bytes: int
    heads: Keys  # the first key of each block


def _rows(file: pa.ipc.RecordBatchFileReader, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    while start < stop:
        block, inside = divmod(start, _BLOCK_ROWS)
        rows = min(stop - start, _BLOCK_ROWS - inside)
        yield file.get_batch(block).slice(inside, rows)
        start += rows


def take(batch: pa.RecordBatch, order: NDArray[np.int64]) -> pa.RecordBatch:
    """The rows in this order; columns side by side, since Arrow takes one after the other."""
    indices = pa.array(order)
    with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
        columns = list(pool.map(lambda column: column.take(indices), batch.columns))
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
