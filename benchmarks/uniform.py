"""How near does meshjoin come to its disk when every key is as likely as any other?

Nothing is hot in a uniform stream, so all that helps is to share a scan: the best rate there is, is a whole window answered
in the time that reading the master once takes. The baseline is that: the window's tuples over the seconds of a raw scan, 1
MiB O_DIRECT reads by four threads that do nothing else, in the same run. The master has 10 million rows of 120 bytes, the
join 5 % of its size.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pyarrow as pa

from data import ROWS, SEED, products_store
from joins import BUDGET, Service, stream
from measure import Case, Ratio, alternate, report
from semistream.joins.sides import shape_join
from semistream.master import Master
from semistream.master.disk import LocalFile
from semistream.memory.window import Window
from semistream.workload import Uniform

MIB = 1 << 20
THREADS = 4
WARM_WINDOWS = 1.5
WINDOWS = 2  # a turn
REPEATS = 5


def scan_seconds(paths: list[str]) -> float:
    """How long reading all these files takes, and nothing else."""
    files = [(os.open(path, os.O_RDONLY | os.O_DIRECT), Path(path).stat().st_size) for path in paths]
    reads = [(descriptor, offset) for descriptor, size in files for offset in range(0, size, MIB)]
    done = [0] * THREADS

    def loop(mine: int) -> None:
        buffer = mmap.mmap(-1, MIB)
        for descriptor, offset in reads[mine::THREADS]:
            done[mine] += os.preadv(descriptor, [buffer], offset)

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(THREADS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    for descriptor, _ in files:
        os.close(descriptor)
    if sum(done) != sum(size for _, size in files):
        sys.exit(f"the raw scan read {sum(done):,} bytes instead of {sum(size for _, size in files):,}")
    return seconds


def page_files(master: Master) -> list[str]:
    """Where the master's pages are."""
    files = [master.data.storage.file(name) for name in master.manifest.data.files]
    return [file.path for file in files if isinstance(file, LocalFile)]


def window_tuples(service: Service, master: Master, sales: pa.Schema) -> int:
    """How many tuples the running join's window has room for: as many as take the bytes it took of the budget."""
    layout = Window.layout(shape_join(sales, master, on="product_id").window_leaves)
    if layout.has_heap:
        sys.exit("the size of a window whose tuples have strings does not say how many they are")
    taken = service.joined.stats.used["window"]
    capacity = Window.capacity_for(layout, taken, 0)
    if Window.bytes_for(layout, capacity, 0) != taken:
        sys.exit(f"no number of tuples makes a window of {taken:,} bytes")
    return capacity


def main() -> int:
    """Measure and report."""
    master = products_store()
    batches = stream(Uniform(ROWS))
    service = Service(master, "meshjoin", BUDGET, batches)
    window = window_tuples(service, master, batches[0].schema)
    service.turn(int(WARM_WINDOWS * window))
    stats = service.joined.stats
    print(f"a window of {window:,} tuples, {stats.admitted - stats.answered:,} waiting", file=sys.stderr)
    paths = page_files(master)
    scan_seconds(paths)
    cases: dict[str, Case] = {
        "a window per raw scan": lambda: window / scan_seconds(paths),
        "meshjoin": partial(service.turn, WINDOWS * window),
    }
    ratios = [Ratio("meshjoin / a window per raw scan", "meshjoin", "a window per raw scan", at_least=0.5)]
    figures = alternate(cases, repeats=REPEATS)
    return 0 if report("meshjoin on a uniform stream", figures, ratios, unit="tuples/s", seed=SEED) else 1


if __name__ == "__main__":
    sys.exit(main())
