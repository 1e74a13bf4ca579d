"""How fast are 100,000 random reads of single 16 KiB pages, against a bare loop of 16 threads and preadv?"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time

import numpy as np
from numpy.typing import NDArray

from data import SEED, products_store
from measure import Case, Ratio, alternate, report
from semistream.master import Master
from semistream.master.disk import aligned_buffer

READS = 100_000
BATCH = 4096
THREADS = 16


def bare(path: str, offsets: NDArray[np.int64], page_bytes: int) -> float:
    """Reads per second of threads that do nothing else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def loop(mine: list[int]) -> None:
        buffer = mmap.mmap(-1, page_bytes)
        for offset in mine:
            os.preadv(descriptor, [buffer], offset)

    threads = [threading.Thread(target=loop, args=(offsets[i::THREADS].tolist(),)) for i in range(THREADS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    os.close(descriptor)
    return len(offsets) / seconds


def ours(master: Master, pages: NDArray[np.int64]) -> float:
    """Reads per second through `direct`, in batches, every page verified."""
    buffer = aligned_buffer(BATCH * master.page_bytes)
    with master.open_disk("direct") as disk:
        started = time.perf_counter()
        for start in range(0, len(pages), BATCH):
            master.data.load(pages[start : start + BATCH], disk, buffer)
        return len(pages) / (time.perf_counter() - started)


def main() -> int:
    """Measure and report."""
    master = products_store()
    pages = np.random.default_rng(SEED).integers(0, master.pages, READS)
    file = master.data.storage.file(master.manifest.data.files[0])
    offsets = master.index.extents(pages).offset
    cases: dict[str, Case] = {
        f"bare loop, {THREADS} threads of preadv": lambda: bare(file.path, offsets, master.page_bytes),
        f"direct, batches of {BATCH}, verified": lambda: ours(master, pages),
    }
    base, mine = cases
    for case in cases.values():
        case()
    ratios = [Ratio("direct / bare loop", mine, base, at_least=0.7)]
    return (
        0
        if report("random page reads", alternate(cases, repeats=5), ratios, unit="reads/s", seed=SEED)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
