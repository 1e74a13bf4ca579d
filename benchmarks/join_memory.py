"""How much memory does a join take over an idle process, against its budget?

    python benchmarks/join_memory.py [--algorithms meshjoin chybridjoin] [--budgets 16 64 256]

Every algorithm runs at every budget in a process of its own, which is idle once it has imported semistream and opened the
master, and then joins until its window and its front stage are full. inlj and cinlj look every tuple up, so they stop
earlier: only their window is full. The stream is Zipf 1, made batch by batch, the output let go batch by batch; what of
either is alive at a time counts. The bound is 1.15 times the budget and 64 MB, for kernels, batches and the allocators.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from numba.core import event

import semistream as ss
from data import ROWS, SEED, products_store
from measure import report
from semistream.workload import Workload, Zipf

MB = 1_000_000
BUDGETS_MB = (16, 64, 256)
OTHERS = (
    "auto",
    "in-memory",
)  # the one is one of the others, the other keeps to no budget smaller than the master
BATCH = 1 << 14
ANSWERED_PER_MB = 26_000  # of budget: until the front stage of chybridjoin, the last to be full, is
LOOKED_UP_PER_MB = 1_000
LOOKING_UP = ("inlj", "cinlj")
ATTEMPTS = 3


@dataclass(frozen=True)
class Measured:
    """One process; memory in MB."""

    imported: float
    idle: float  # the master is open as well
    peak: float
    accounted: float  # what the join says it took of its budget
    waiting: int  # tuples, at most
    hot: int  # keys in the front stage
    compiled: int  # kernels: their compiler takes memory that no later process will

    @property
    def over_idle(self) -> float:
        """What the join added."""
        return self.peak - self.idle


def bound_mb(budget_mb: int) -> float:
    """What a join may take over an idle process."""
    return 1.15 * budget_mb + 64


def resident_mb(what: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most that ever was."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) * 1024 / MB


def join_once(algorithm: str, budget_mb: int) -> Measured:
    """Join in this process, which has done nothing else."""
    imported = resident_mb("VmRSS")
    with event.install_recorder("numba:compile") as compiling:
        master = products_store()
        idle = resident_mb("VmRSS")
        sales = Workload(Zipf(ROWS, 1.0, popularity="scattered"), seed=SEED)
        batches = (sales.slice(i * BATCH, (i + 1) * BATCH) for i in itertools.count())
        joined = ss.join(batches, master, on="product_id", algorithm=algorithm, memory=budget_mb * MB)
        stats, waiting = joined.stats, 0
        enough = budget_mb * (LOOKED_UP_PER_MB if algorithm in LOOKING_UP else ANSWERED_PER_MB)
        for _ in joined:
            waiting = max(waiting, stats.tuples - stats.answered)
            if stats.answered >= enough:
                break
        peak = resident_mb("VmHWM")
    return Measured(
        imported=imported,
        idle=idle,
        peak=peak,
        accounted=stats.used_bytes / MB,
        waiting=waiting,
        hot=stats.cached - stats.evicted,
        compiled=len(compiling.buffer) // 2,  # the recorder keeps a start and an end of each
    )


def measured(algorithm: str, budget_mb: int) -> Measured:
    """Join in a fresh process; again where it had to compile kernels, which the next one finds in the cache."""
    command = [sys.executable, __file__, "--alone", algorithm, str(budget_mb)]
    for attempt in range(ATTEMPTS):
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if run.returncode:
            sys.exit(f"{algorithm} within {budget_mb} MB ended with status {run.returncode}")
        found = Measured(**json.loads(run.stdout))
        print(
            f"  {algorithm} within {budget_mb} MB: {found.over_idle:.1f} MB over idle, "
            f"{found.compiled} kernels compiled (attempt {attempt + 1})",
            file=sys.stderr,
            flush=True,
        )
        if not found.compiled:
            break
    return found


def print_table(table: dict[tuple[str, int], Measured]) -> bool:
    """A line for every process; says whether all of them kept to their bound."""
    print(
        f"\n{'algorithm':<24}{'budget':>8}{'idle':>8}{'over idle':>11}{'bound':>8}{'accounted':>11}"
        f"{'waiting':>11}{'hot keys':>10}   MB and tuples"
    )
    met = True
    for (algorithm, budget_mb), found in table.items():
        good = found.over_idle <= bound_mb(budget_mb)
        note = "reached" if good else "NOT REACHED"
        print(
            f"{algorithm:<24}{budget_mb:>8}{found.idle:>8.1f}{found.over_idle:>11.1f}{bound_mb(budget_mb):>8.1f}"
            f"{found.accounted:>11.1f}{found.waiting:>11,}{found.hot:>10,}   {note}"
            f"{' (with the compiler)' if found.compiled else ''}"
        )
        met &= good
    return met


def main() -> int:
    """Measure and report."""
    algorithms = [name for name in ss.ALGORITHMS if name not in OTHERS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", nargs="+", choices=algorithms, default=algorithms)
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS_MB, metavar="MB")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(asdict(join_once(asked.alone[0], int(asked.alone[1])))))
        return 0
    products_store()  # made here if need be: a process that makes it is not idle
    table = {(name, mb): measured(name, mb) for mb in asked.budgets for name in asked.algorithms}
    figures = {f"{name}, {mb} MB": [found.over_idle] for (name, mb), found in table.items()}
    figures |= {f"bound, {mb} MB": [bound_mb(mb)] for mb in asked.budgets}
    report("memory of joins", figures, [], unit="MB over idle", seed=SEED)
    return 0 if print_table(table) else 1


if __name__ == "__main__":
    sys.exit(main())
