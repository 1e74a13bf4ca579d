"""The papers' data: masters built once per run and kept, streams drawn as they are needed.

A master row has 120 bytes, its key and a payload that nobody looks at; a stream tuple 20. Popularity belongs to the
stream: "in-order" makes the first rows of the master the most popular (X-HYBRID and OPT-X sort it so), "scattered" puts them
anywhere (CACHING's unsorted master).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
from numpy.typing import NDArray

from semistream.experiments.keyonly import KeyOnlyStorage
from semistream.joins.sides import On
from semistream.master import Master, open_master
from semistream.master.build import build_in
from semistream.master.storage import LocalStorage
from semistream.workload import (
    EveryKey,
    Key,
    Keys,
    Number,
    TemporalLocality,
    Uniform,
    Workload,
    Zipf,
    cloud,
    tpch,
)
from semistream.workload.keys import Popularity

BATCH = 1 << 13
_BUILT_AT_ONCE, _APPENDED_AT_ONCE = 1 << 16, 1 << 22
_KEY_BYTES = 8
_DRAWN = 1 << 20  # sides of the die that says which tuples miss
TUPLE = (Key("k"), Number("quantity", "int32", 1, 9), Number("event", "int64", 0, 999_999_999))
CLOUD_SEEDS = 1, 2  # a month each


@dataclass(frozen=True)
class MasterSpec:
    """A master by what it is made of; equal specs are the same store."""

    rows: int
    row_bytes: int = 120
    page_bytes: int = 4096
    layout: Literal["key", "heap"] = "key"
    kind: Literal["keys", "cloud", "tpch"] = "keys"
    key_skew: float = 0.0  # Zipf exponent of how many rows a key has; 0 is `rows_per_key` each
    rows_per_key: int = 1
    key_gap: int = 1  # from a key to the next; where it is 2, every odd one is missing
    payload: Literal["stored", "holes"] = "stored"  # "holes": a key-only master, see keyonly.py

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, as the papers count them."""
        return self.rows * self.row_bytes

    @property
    def n_keys(self) -> int:
        """How many keys the stream may ask for."""
        return self.rows // self.rows_per_key


@dataclass(frozen=True)
class StreamSpec:
    """A stream by what it asks for."""

    exponent: float = 1.0
    popularity: Popularity = "scattered"
    kind: Literal["zipf", "temporal", "cloud", "tpch"] = "zipf"
    interval_rows: int = 0  # of "temporal"
    misses: float = 0.0  # share of the tuples that ask for a key next to one there is, of a master with gaps


@dataclass(frozen=True)
class Gapped:
    """Keys of a master with gaps; a share of the tuples asks for what is missing, which no index can tell from its page's other keys."""

    keys: Keys
    gap: int
    misses: float

    @property
    def n_keys(self) -> int:
        """How many may be asked for."""
        return self.gap * self.keys.n_keys

    def draw(self, start: int, stop: int, *, seed: int) -> NDArray[np.int64]:
        """A key, or the one after it, which is as popular as it would be."""
        missing = Uniform(_DRAWN).draw(start, stop, seed=seed + 1) < self.misses * _DRAWN
        return self.gap * self.keys.draw(start, stop, seed=seed) + missing


def open_or_build(spec: MasterSpec, folder: Path, *, seed: int) -> Master:
    """The master of a spec, built where it is not there yet."""
    name = sha256(json.dumps([asdict(spec), seed], sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"master-{name}"
    if (path.with_suffix(".done")).exists():
        return open_master(path)
    place = KeyOnlyStorage if spec.payload == "holes" else LocalStorage
    master = build_in(
        place(str(path.absolute()), location=str(path)),
        _rows(spec, folder, seed=seed),
        key="c_custkey" if spec.kind == "tpch" else "lon" if spec.kind == "cloud" else "k",
        layout=spec.layout,
        page_bytes=spec.page_bytes,
        if_exists="replace",
    )
    path.with_suffix(".done").touch()
    return master


def appended_rows(spec: MasterSpec) -> Iterator[pa.RecordBatchReader]:
    """As many rows again, with the keys that follow, in pieces: all rows of an append are in memory at once."""
    whole = replace(spec, rows=2 * spec.rows)
    for start in range(spec.rows, whole.rows, _APPENDED_AT_ONCE):
        stop = min(start + _APPENDED_AT_ONCE, whole.rows)
        yield pa.RecordBatchReader.from_batches(_schema(spec), _synthetic(whole, start, stop, seed=0))


def changed_rows(spec: MasterSpec, count: int, *, seed: int) -> pa.Table:
    """Some of the rows there are, anywhere, with another payload."""
    chosen = np.unique(Uniform(spec.n_keys).draw(0, count, seed=seed))
    payload = bytes([1 + seed % 255]) * (spec.row_bytes - _KEY_BYTES)
    columns = [
        pa.array(spec.key_gap * chosen),
        pa.array([payload] * len(chosen), _schema(spec).field(1).type),
    ]
    return pa.Table.from_arrays(columns, schema=_schema(spec))


def stream_batches(
    spec: StreamSpec, master: MasterSpec, folder: Path, *, seed: int, batch_rows: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """The stream, without end."""
    if spec.kind == "tpch":
        files = [str(path) for path in _tpch(master, folder).orders]
        for number, batch in enumerate(
            itertools.chain.from_iterable(
                pads.dataset(files).to_batches(batch_size=BATCH) for _ in itertools.count()
            )
        ):
            yield _asking(_plain(batch), spec, master, number, seed=seed)
    if spec.kind == "cloud":
        workload = cloud.stream(None, CLOUD_SEEDS[1] + seed, report_bytes=master.row_bytes)
    else:
        workload = Workload(_keys(spec, master), columns=TUPLE, seed=seed)
    for start in itertools.count(0, batch_rows):
        yield workload.slice(start, start + batch_rows)


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With strings as a join keeps them; TPC-H's files have views."""
    fields = [each.with_type(pa.string()) if each.type == pa.string_view() else each for each in batch.schema]
    return batch.cast(pa.schema(fields))


def _asking(
    batch: pa.RecordBatch, spec: StreamSpec, master: MasterSpec, number: int, *, seed: int
) -> pa.RecordBatch:
    """Orders as dbgen draws them, all customers alike; or of customers drawn by a Zipf law, where it has an exponent."""
    if not spec.exponent:
        return batch
    drawn = Zipf(master.n_keys, spec.exponent, popularity=spec.popularity)
    customers = 1 + drawn.draw(number * BATCH, number * BATCH + len(batch), seed=seed)  # dbgen counts from 1
    at = batch.schema.get_field_index("o_custkey")
    column = pa.array(customers).cast(batch.schema.field(at).type)
    return batch.set_column(at, batch.schema.field(at), column)


def joined_on(master: MasterSpec) -> On:
    """What stream and master have in common."""
    return {"keys": "k", "cloud": "lon", "tpch": {"o_custkey": "c_custkey"}}[master.kind]  # type: ignore[return-value]


def _keys(spec: StreamSpec, master: MasterSpec) -> Keys:
    if spec.kind == "temporal":
        return TemporalLocality(
            master.n_keys,
            interval_rows=spec.interval_rows,
            exponent=spec.exponent,
            popularity=spec.popularity,
        )
    keys = Zipf(master.n_keys, spec.exponent, popularity=spec.popularity)
    return keys if master.key_gap == 1 else Gapped(keys, master.key_gap, spec.misses)


def _rows(spec: MasterSpec, folder: Path, *, seed: int) -> pa.RecordBatchReader | list[str]:
    if spec.kind == "cloud":
        return cloud.reports(spec.rows, CLOUD_SEEDS[0] + seed, report_bytes=spec.row_bytes)
    if spec.kind == "tpch":
        return [str(path) for path in _tpch(spec, folder).customer]
    return pa.RecordBatchReader.from_batches(_schema(spec), _synthetic(spec, 0, spec.rows, seed=seed))


def _schema(spec: MasterSpec) -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("payload", pa.binary(spec.row_bytes - _KEY_BYTES))])


def _synthetic(spec: MasterSpec, first: int, last: int, *, seed: int) -> Iterator[pa.RecordBatch]:
    """Rows first .. last, in the order of their keys unless how many a key has is drawn."""
    schema = _schema(spec)
    payload = schema.field("payload").type
    drawn: Keys = EveryKey(spec.n_keys, times=spec.rows_per_key, popularity="in-order")
    if spec.key_skew:
        drawn = Zipf(spec.rows, spec.key_skew, popularity="in-order")
    for start in range(first, last, _BUILT_AT_ONCE):
        stop = min(start + _BUILT_AT_ONCE, last)
        zeros = pa.py_buffer(bytes(payload.byte_width * (stop - start)))
        columns = [
            pa.array(spec.key_gap * drawn.draw(start, stop, seed=seed)),
            pa.Array.from_buffers(payload, stop - start, [None, zeros]),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _tpch(spec: MasterSpec, folder: Path) -> tpch.Tpch:
    return tpch.generate(folder / "tpch", spec.rows / 150_000)
