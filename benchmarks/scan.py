"""How fast is a sequential scan of a store through `direct`, against raw 1 MiB O_DIRECT reads of the same file?"""

from __future__ import annotations

import mmap
import os
import sys
import time
from pathlib import Path

import numpy as np

from data import SEED, products_store
from measure import Case, Ratio, alternate, report
from semistream.master import Master
from semistream.master.disk import aligned_buffer
from semistream.master.pageset import SCAN_BYTES

MIB = 1 << 20


def raw(path: str, size: int) -> float:
    """Bytes per second of a plain loop."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, MIB)
    started = time.perf_counter()
    done = sum(os.preadv(descriptor, [buffer], offset) for offset in range(0, size, MIB))
    seconds = time.perf_counter() - started
    os.close(descriptor)
    return done / seconds / 1e9


def pages(master: Master, kind: str) -> float:
    """Every page read into the disk buffer and verified."""
    step = SCAN_BYTES // master.page_bytes
    buffer = aligned_buffer(SCAN_BYTES)
    with master.open_disk(kind) as disk:
        started = time.perf_counter()
        for start in range(0, master.pages, step):
            master.data.load(np.arange(start, min(start + step, master.pages)), disk, buffer)
        return disk.stats.bytes / (time.perf_counter() - started) / 1e9


def rows(master: Master, kind: str) -> float:
    """The same, and every page opened as an Arrow record batch."""
    with master.open_disk(kind) as disk:
        started = time.perf_counter()
        count = sum(len(batch) for batches in master.data.scan(disk) for batch in batches)
        seconds = time.perf_counter() - started
        if count != master.rows:
            sys.exit(f"the scan gave {count:,} rows instead of {master.rows:,}")
        return disk.stats.bytes / seconds / 1e9


def main() -> int:
    """Measure and report."""
    master = products_store()
    print(f"a store of {master.nbytes / 1e9:.2f} GB, {master.pages:,} pages", file=sys.stderr)
    file = master.data.storage.file(master.manifest.data.files[0])
    path = file.path
    cases: dict[str, Case] = {
        "raw 1 MiB O_DIRECT reads": lambda: raw(path, Path(path).stat().st_size // MIB * MIB),
        "scan through direct, verified": lambda: pages(master, "direct"),
        "scan through direct, verified, as Arrow": lambda: rows(master, "direct"),
    }
    ratios = [
        Ratio("scan / raw", "scan through direct, verified", "raw 1 MiB O_DIRECT reads", at_least=0.8),
        Ratio("scan as Arrow / raw", "scan through direct, verified, as Arrow", "raw 1 MiB O_DIRECT reads"),
    ]
    for case in cases.values():
        case()
    return 0 if report("sequential scan", alternate(cases, repeats=5), ratios, unit="GB/s", seed=SEED) else 1


if __name__ == "__main__":
    sys.exit(main())
