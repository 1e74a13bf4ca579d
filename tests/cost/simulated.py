"""Masters and streams for the simulator, and a join run in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.cost import PRICES, Counted, case_of, costs_of, count
from semistream.cost.case import Case
from semistream.joins.opening import Opening
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join
from semistream.master import Master
from semistream.workload import Workload, Zipf

DISK = "hdd-2007"
SEED = 5
ON = {"product_id": "id"}


def master_of(folder: Path, rows: int, layout: str, skew: float, page_bytes: int = 4096) -> Master:
    """Rows of 120 B; with layout "frequency" in the order of popularity in a stream of this skew."""
    ids = np.arange(rows, dtype=np.int64)
    columns = {"id": ids, **{f"v{i}": ids * i for i in range(1, 15)}}
    if layout == "frequency":
        columns["hits"] = np.empty(rows, dtype=np.int64)
        columns["hits"][Zipf(rows, skew).popular(rows, seed=SEED)] = np.arange(rows, 0, -1)
        del columns["v14"]
        return ss.build_master(
            pa.table(columns), folder, key="id", layout=layout, frequency="hits", page_bytes=page_bytes
        )
    return ss.build_master(pa.table(columns), folder, key="id", layout=layout, page_bytes=page_bytes)


class Described:
    """A master as it would be with many more rows: enough for the models, which read none of them."""

    def __init__(self, master: Master, rows: int) -> None:
        self.master, self.rows = master, rows
        self.pages = -(-rows * master.pages // master.rows)
        self.nbytes = master.nbytes * self.pages // master.pages

    def __getattr__(self, name: str) -> object:
        return getattr(self.master, name)


def stream_of(
    rows: int, skew: float, batch_rows: int = 2048, seed: int = SEED, start: int = 0
) -> Iterator[pa.RecordBatch]:
    """Without end. Another seed makes other keys popular; another start draws the same ones anew."""
    sales = Workload(Zipf(rows, skew), seed=seed)
    while True:
        yield sales.slice(start, start + batch_rows)
        start += batch_rows


def case(algorithm: str, master: Master, skew: float, memory_bytes: int, settings: Settings) -> Case:
    """For the models."""
    shape = shape_join(next(stream_of(10, 0.0)).schema, master, on=ON)
    costs = costs_of(master, DISK)
    return case_of(
        algorithm,
        master,
        shape,
        memory_bytes=memory_bytes,
        settings=settings,
        skew=skew,
        disk_kind=DISK,
        disk=costs.disk,
        prices=costs.prices,
    )


def counted(
    algorithm: str,
    master: Master,
    skew: float,
    memory_bytes: int,
    settings: Settings,
    *,
    warm: int,
    tuples: int,
    seed: int = SEED,
    start: int = 0,
) -> Counted:
    """Run it and count."""
    batches = stream_of(master.rows, skew, seed=seed, start=start)
    shape = shape_join(next(stream_of(10, 0.0)).schema, master, on=ON)
    opening = Opening(algorithm, master, shape, memory_bytes, DISK, 0.0, settings)
    return count(opening, batches, warm=warm, tuples=tuples, prices=PRICES[DISK])
