"""How many tuples does a join finish when twice as many arrive as it can take, by how it sheds the others?

    python benchmarks/shedding.py [--disks hdd-2007 direct] [--popularity in-order scattered] [--overload 2]

CHYBRIDJOIN within 5 % of a master of 2 million rows of 120 bytes, a Zipf 1 stream whose popular keys are neighbours ("in-order", the
paper's "locality of master data rank") or anywhere ("scattered"). First its capacity is measured, without shedding and with more
tuples always there than it can take; then the stream arrives at `overload` times that. Shed tuples are written to files and do not come
back while this lasts. The position that chooses what is read is tuned by a sweep; what it is compared with is measured after that.

On the simulated disk (`hdd-2007`, one block at a time as in the paper) time is virtual: the disk's, the processor's work at the prices
of the time (cost/prices.py), and the writing of shed tuples at the disk's price. On the real disk (`direct`, many blocks at a time) it is
the clock's.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pyarrow as pa

import semistream as ss
from data import ROOT, SEED, products_store
from measure import Case, Ratio, alternate, report
from semistream.cost.prices import PRICES, counted_seconds
from semistream.joins import JoinedStream, Settings
from semistream.master import Master
from semistream.master.disk.profiles import PROFILES
from semistream.shedding import Shedding, Timed
from semistream.workload import Workload, Zipf
from semistream.workload.arrivals import Constant
from semistream.workload.keys import Popularity

ALGORITHM = "chybridjoin"
ROWS = 2_000_000
MEMORY = "12MB"  # 5 % of 240 MB
BATCH = 1 << 14
DISTINCT_BATCHES = 250  # made before the clock runs, then gone through again and again
UNTUNED = 1.0
POSITIONS = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, UNTUNED)
WARM_TUPLES = 1_500_000  # ten windows
TUPLES = 500_000
REPEATS = 5
SWEEP_REPEATS = 2
ALWAYS_THERE = 1e12  # tuples a second
SIMULATED = Settings(parallel=1, block_pages=16, disk_buffer=256 << 10)


@dataclass
class Service:
    """A join that is never finished: each turn some more tuples arrive."""

    master: Master
    batches: Sequence[pa.RecordBatch]
    disk: str
    rate: float
    shedding: Shedding
    folder: Path | None = None
    passed_s: float = 0.0  # in earlier turns
    resumed_at: float | None = None  # in a turn
    clock: Timed = field(init=False)
    joined: JoinedStream = field(init=False)

    def __post_init__(self) -> None:
        if self.shedding.strategy != "none":
            self.folder = Path(tempfile.mkdtemp(prefix="shed-", dir=ROOT)) / "store"
        simulated = self.disk in PROFILES
        self.clock = Timed(
            Constant(self.rate),
            now=self.virtual_seconds if simulated else self.real_seconds,
            wait=None if simulated else time.sleep,
        )
        self.joined = ss.join(
            itertools.cycle(self.batches),
            self.master,
            on="product_id",
            algorithm=ALGORITHM,
            memory=MEMORY,
            disk=self.disk,
            settings=SIMULATED if simulated else None,
            shedding=self.shedding,
            shed_to=self.folder,
            arrivals=self.clock,
        )

    def real_seconds(self) -> float:
        """What passed in this service's turns: nothing arrives while others have theirs."""
        running = time.perf_counter() - self.resumed_at if self.resumed_at is not None else 0.0
        return self.passed_s + running

    def virtual_seconds(self) -> float:
        """What the disk took for reading and for shed tuples, and what the processor took."""
        stats, profile = self.joined.stats, PROFILES[self.disk]
        shed = stats.shedding
        if shed is None:
            raise AssertionError("a paced join has them")
        writing = shed.files * (profile.seek_s + profile.rotation_s + profile.call_s)
        writing += (shed.written_bytes + shed.read_bytes) / profile.bytes_per_s
        return counted_seconds(stats, stats.disk_seconds, PRICES[self.disk], ALGORITHM) + writing

    def turn(self, tuples: int = TUPLES) -> float:
        """Tuples answered per second, while so many arrive."""
        stats = self.joined.stats
        arrived, answered, began = stats.tuples, stats.answered, self.clock.seconds
        self.resumed_at = time.perf_counter()
        for _ in self.joined:
            if stats.tuples - arrived >= tuples:
                break
        self.passed_s, self.resumed_at = self.real_seconds(), None
        return (stats.answered - answered) / (self.clock.seconds - began)

    def close(self) -> None:
        """Let it be."""
        if self.folder is not None:
            shutil.rmtree(self.folder.parent)


def measured(disk: str, popularity: Popularity, overload: float) -> bool:
    """Measure on one disk, and report."""
    master = products_store(ROWS)
    sales = Workload(Zipf(ROWS, 1.0, popularity=popularity), rows=DISTINCT_BATCHES * BATCH, seed=SEED)
    batches = [sales.slice(i * BATCH, (i + 1) * BATCH) for i in range(DISTINCT_BATCHES)]
    unhurried = Service(master, batches, disk, ALWAYS_THERE, Shedding("none"))
    unhurried.turn(WARM_TUPLES)
    capacity = unhurried.turn(2 * TUPLES)
    where = f"shedding at {overload:g} times the load on {disk}, {popularity}"
    print(f"{where}: {capacity:,.0f} tuples/s without; {overload * capacity:,.0f} arrive", file=sys.stderr)

    def service(how: Shedding) -> Service:
        made = Service(master, batches, disk, overload * capacity, how)
        made.turn(WARM_TUPLES)
        return made

    swept = {p: service(Shedding("considering", position=p)) for p in POSITIONS}
    sweep = alternate({f"position {p}": one.turn for p, one in swept.items()}, repeats=SWEEP_REPEATS)
    report(f"{where}, positions", sweep, [], unit="tuples/s", seed=SEED)
    best = max(POSITIONS, key=lambda p: median(sweep[f"position {p}"]))
    services = {
        "upfront": service(Shedding("upfront")),
        "random": service(Shedding("random")),
        "considering, untuned": swept[UNTUNED],
        f"considering, position {best}": swept[best],
    }
    tuned = list(services)[-1]
    cases: dict[str, Case] = {"without shedding": unhurried.turn}
    cases |= {name: one.turn for name, one in services.items()}
    figures = alternate(cases, repeats=REPEATS)
    for one in {id(one): one for one in [*services.values(), *swept.values()]}.values():
        one.close()
    must = 1.0 if (disk, popularity) == ("hdd-2007", "in-order") else None  # the paper has 1.33 and 3.1
    ratios = [
        Ratio("tuned / untuned", tuned, "considering, untuned", at_least=must),
        Ratio("tuned / upfront", tuned, "upfront", at_least=must),
        Ratio("untuned / upfront", "considering, untuned", "upfront"),
        Ratio("tuned / without shedding", tuned, "without shedding"),
        Ratio("random / upfront", "random", "upfront"),
    ]
    return report(where, figures, ratios, unit="tuples/s", seed=SEED)


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--disks", nargs="+", default=["hdd-2007", "direct"])
    parser.add_argument("--popularity", nargs="+", default=["in-order", "scattered"])
    parser.add_argument("--overload", type=float, default=2.0)
    asked = parser.parse_args()
    reached = [measured(disk, how, asked.overload) for disk in asked.disks for how in asked.popularity]
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
