"""How fast is each join within 5 % of the master's size, against the whole master in memory and a hand-written loop?

The loop is what people write: a dictionary of the hottest rows in as much memory as the joins have, and LMDB for the rest,
whose pages the operating system may keep in all the memory there is. The stream is Zipf 1, its tuples 20 bytes, the master
10 million rows of 120 bytes on the direct disk. Every case is warmed up and then measured in turns.
"""

from __future__ import annotations

import itertools
import pickle  # of our own rows, in the baseline alone
import struct
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from statistics import median

import pyarrow as pa

import semistream as ss
from by_hand import ROW_BYTES, Cache, enriched
from data import ROOT, ROWS, SEED, products_store
from measure import Case, Ratio, alternate, report
from semistream.config import parse_bytes
from semistream.master import Master
from semistream.workload import Keys, Workload, Zipf

BUDGET = "60MB"  # 5 % of 1.2 GB
BATCH = 1 << 14
WARM_TUPLES = 6_000_000
TUPLES = 2_000_000  # a turn: more than two windows
LOOP_WARM_TUPLES = 1_000_000
LOOP_TUPLES = 200_000
REPEATS = 5
DISTINCT_BATCHES = 600  # made before the clock runs, then gone through again and again


def stream(keys: Keys) -> list[pa.RecordBatch]:
    """Sales with such keys."""
    sales = Workload(keys, rows=DISTINCT_BATCHES * BATCH, seed=SEED)
    return [sales.slice(i * BATCH, (i + 1) * BATCH) for i in range(DISTINCT_BATCHES)]


class Service:
    """A join that is never finished: each turn answers some more tuples. The first turns only warm it up."""

    def __init__(self, master: Master, algorithm: str, memory: str, batches: list[pa.RecordBatch]) -> None:
        self.joined = ss.join(
            itertools.cycle(batches), master, on="product_id", algorithm=algorithm, memory=memory
        )

    def turn(self, tuples: int = TUPLES) -> float:
        """Tuples answered per second."""
        began, started = self.joined.stats.answered, time.perf_counter()
        for _ in self.joined:
            if self.joined.stats.answered - began >= tuples:
                break
        return (self.joined.stats.answered - began) / (time.perf_counter() - started)


class Loop:
    """The hand-written loop: a least-recently-used dictionary before LMDB."""

    def __init__(self, master: Master, batches: list[pa.RecordBatch]) -> None:
        import lmdb

        self.path = ROOT / f"lmdb-{master.rows}"
        made = self.path.exists()
        self.store = lmdb.open(str(self.path), map_size=8 << 30, readonly=made, lock=False)
        if not made:
            self._fill(master)
        self.payload = pa.schema(list(master.schema)[1:])
        self.cached: Cache = OrderedDict()
        self.capacity = parse_bytes(BUDGET) // ROW_BYTES
        self.batches = itertools.cycle(batches)
        self.turn(LOOP_WARM_TUPLES)

    def _fill(self, master: Master) -> None:
        print("filling LMDB (once)", file=sys.stderr)
        with master.open_disk("direct") as disk, self.store.begin(write=True) as writing:
            for batches in master.data.scan(disk):
                for batch in batches:
                    columns = [column.to_pylist() for column in batch.columns]
                    for row in zip(*columns, strict=True):
                        writing.put(struct.pack(">q", row[0]), pickle.dumps(row[1:], protocol=5), append=True)

    def turn(self, tuples: int = LOOP_TUPLES) -> float:
        """Tuples answered per second."""
        started, done = time.perf_counter(), 0
        with self.store.begin(buffers=True) as reading:
            while done < tuples:
                batch = next(self.batches)
                enriched(batch, reading, self.cached, self.capacity, self.payload)
                done += len(batch)
        return done / (time.perf_counter() - started)


def cases(master: Master) -> Iterator[tuple[str, Case]]:
    """Every join, and the loop."""
    batches = stream(Zipf(ROWS, 1.0, popularity="scattered"))  # as skewed as the papers'
    for algorithm in ("in-memory", "cmeshjoin", "chybridjoin", "meshjoin", "hybridjoin"):
        memory = "4GB" if algorithm == "in-memory" else BUDGET
        service = Service(master, algorithm, memory, batches)
        service.turn(WARM_TUPLES)
        yield algorithm, service.turn
    yield "dictionary and LMDB", Loop(master, batches).turn


def main() -> int:
    """Measure and report."""
    figures = alternate(dict(cases(products_store())), repeats=REPEATS)
    figures["faster of the two"] = max(figures["cmeshjoin"], figures["chybridjoin"], key=median)
    ratios = [
        Ratio("cmeshjoin or chybridjoin / in-memory", "faster of the two", "in-memory", at_least=0.35),
        Ratio(
            "cmeshjoin or chybridjoin / dictionary and LMDB",
            "faster of the two",
            "dictionary and LMDB",
            at_least=3,
        ),
        Ratio("cmeshjoin / meshjoin", "cmeshjoin", "meshjoin"),
        Ratio("chybridjoin / hybridjoin", "chybridjoin", "hybridjoin"),
    ]
    return 0 if report("joins at Zipf 1", figures, ratios, unit="tuples/s", seed=SEED) else 1


if __name__ == "__main__":
    sys.exit(main())
