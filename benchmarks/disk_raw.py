"""Does reading through a Disk, pages verified, keep up with bare O_DIRECT reads that verify nothing?

    python benchmarks/disk_raw.py DIRECTORY

makes a scratch file of 1.2 GB of sealed 16 KiB pages in DIRECTORY, reads it in turns with ours and with the baseline,
prints the medians, their spread and the ratios, and deletes the file. Baselines: 1 MiB preads by one thread for the scan,
os.preadv in 16 threads for random pages.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from semistream.master.disk import Disk, Extents, LocalFile, aligned_buffer, open_disk, seal_pages

PAGE = 16 * 1024
MIB = 1 << 20
FILE_BYTES = 1200 * MIB
RANDOM_READS = 100_000
RANDOM_BATCH = 4096
BASELINE_THREADS = 16
REPEATS = 5
SEED = 20070401

Batches: TypeAlias = list[tuple[Extents, NDArray[np.uint64]]]


def write_pages(path: Path) -> None:
    """A file of random pages, each sealed with its number."""
    rng = np.random.default_rng(SEED)
    chunk = 16 * MIB
    with path.open("wb") as out:
        for begin in range(0, FILE_BYTES, chunk):
            data = rng.integers(0, 1 << 63, chunk // 8, dtype=np.uint64).view(np.uint8)
            pages = np.arange(0, chunk, PAGE)
            seal_pages(data, pages, PAGE, ((begin + pages) // PAGE).astype(np.uint64))
            out.write(data.data)
        out.flush()
        os.fsync(out.fileno())


def batches_of(numbers: NDArray[np.int64], batch_pages: int) -> Batches:
    """Pages to read, so many at a time, with the seeds to verify them by."""
    return [pages_of(numbers[at : at + batch_pages]) for at in range(0, len(numbers), batch_pages)]


def pages_of(numbers: NDArray[np.int64]) -> tuple[Extents, NDArray[np.uint64]]:
    """Extents of single pages that land one after the other, and their seeds."""
    n = len(numbers)
    zeros = np.zeros(n, dtype=np.int64)
    extents = Extents(zeros, numbers * PAGE, np.full(n, PAGE), np.arange(n, dtype=np.int64) * PAGE)
    return extents, numbers.astype(np.uint64)


def scan_raw(fd: int, buffer: NDArray[np.uint8], memory_bytes: int) -> None:
    """1 MiB at a time, one thread, nothing verified, round and round in a piece of memory."""
    views = [[buffer[at : at + MIB].data] for at in range(0, memory_bytes, MIB)]
    for number, offset in enumerate(range(0, FILE_BYTES, MIB)):
        os.preadv(fd, views[number % len(views)], offset)


def read_ours(disk: Disk, buffer: NDArray[np.uint8], batches: Batches) -> None:
    """Batch after batch, every page verified."""
    for extents, seeds in batches:
        disk.read(extents, buffer, seeds)


def random_raw(fd: int, buffer: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
    """The same pages by 16 threads of os.preadv, nothing verified."""

    def work(thread: int) -> None:
        view = [buffer[thread * PAGE : (thread + 1) * PAGE].data]
        for number in numbers[thread::BASELINE_THREADS].tolist():
            os.preadv(fd, view, number * PAGE)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(BASELINE_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def seconds(run: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def compare(title: str, unit: str, amount: float, runs: dict[str, Callable[[], None]]) -> None:
    """Run all in turns, and print each with its ratio to the first."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run()  # compile, open, fault the buffer in
    for _ in range(REPEATS):
        for name, run in runs.items():
            times[name].append(seconds(run))
    print(f"{title}: median of {REPEATS} (least - most)")
    baseline = times[next(iter(runs))]
    for name, pairs in times.items():
        rates = sorted(amount / wall for wall, _ in pairs)
        ratio = statistics.median(b[0] / o[0] for b, o in zip(baseline, pairs, strict=True))
        cores = statistics.median(cpu / wall for wall, cpu in pairs)
        print(
            f"  {name:<28} {statistics.median(rates):8.2f} {unit} ({rates[0]:.2f} - {rates[-1]:.2f})"
            f"  {cores:.2f} cores  ratio {ratio:.2f}"
        )


def main() -> None:
    """Measure in the directory that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        path = Path(scratch) / "pages"
        write_pages(path)
        buffer = aligned_buffer(RANDOM_BATCH * PAGE)
        numbers = np.random.default_rng(SEED).integers(0, FILE_BYTES // PAGE, RANDOM_READS)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with open_disk("direct", [LocalFile(str(path))]) as disk:
                scan = np.arange(FILE_BYTES // PAGE)
                small, large = (batches_of(scan, mib * MIB // PAGE) for mib in (1, 8))
                random = batches_of(numbers, RANDOM_BATCH)
                compare(
                    "scan",
                    "GB/s",
                    FILE_BYTES / 1e9,
                    {
                        "raw, into 1 MiB": lambda: scan_raw(fd, buffer, MIB),
                        "raw, into 8 MiB": lambda: scan_raw(fd, buffer, 8 * MIB),
                        "ours, 1 MiB per read": lambda: read_ours(disk, buffer, small),
                        "ours, 8 MiB per read": lambda: read_ours(disk, buffer, large),
                    },
                )
                compare(
                    "random 16 KiB pages",
                    "k/s",
                    RANDOM_READS / 1e3,
                    {
                        "raw, 16 threads": lambda: random_raw(fd, buffer, numbers),
                        "ours, 4096 per read": lambda: read_ours(disk, buffer, random),
                    },
                )
        finally:
            os.close(fd)


if __name__ == "__main__":
    main()
