"""The contract of a disk, and the one `read` that all disks share."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.master.disk import failures
from semistream.master.disk.calls import Calls, Planner
from semistream.master.disk.extents import Extents, PageFile
from semistream.master.disk.stats import DiskStats


@runtime_checkable
class Disk(Protocol):
    """Reads extents of page files into a buffer, and counts them.

    Any number of threads may read at once; the counters stay exact. Close it once, or use it in a `with` block.
    """

    name: str
    stats: DiskStats

    def read(
        self, extents: Extents, buffer: NDArray[np.uint8], seeds: NDArray[np.uint64] | None = None
    ) -> None:
        """Read a batch; returns when every byte has landed.

        Args:
            extents: What to read, and where it lands.
            buffer: Memory from `aligned_buffer`.
            seeds: One per extent: every extent is then one page, verified against the checksum in its last 8 bytes.

        Raises:
            CorruptPageError: For the first page, in the order given, that does not match; or a file that is too short.
            StoreError: A file that is missing, or a device that fails.
            InvalidInputError: Extents outside the disk's files or the buffer, or not aligned; a closed disk.
        """
        ...

    def close(self) -> None:
        """Give back descriptors and threads, once the reads under way in other threads are done."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class CountingDisk:
    """What every disk has in common; a kind of disk adds `fetch` and `release`."""

    def __init__(self, name: str, files: Sequence[PageFile]) -> None:
        self.name = name
        self.stats = DiskStats()
        self.files = tuple(files)
        self._planner = Planner(len(self.files))
        self._gate = threading.Lock()
        self._idle = threading.Condition(self._gate)
        self._reading = 0
        self._closed = False

    def read(
        self, extents: Extents, buffer: NDArray[np.uint8], seeds: NDArray[np.uint64] | None = None
    ) -> None:
        """See `Disk.read`."""
        self._enter()
        try:
            started = time.perf_counter()
            calls = self._planner.plan(extents, buffer, seeds)
            bad = self.fetch(calls) if calls.count else -1
            seconds = self._seconds(calls, started)
            self.stats.record(calls=calls.count, nbytes=calls.bytes, seeks=calls.seeks, seconds=seconds)
        finally:
            self._leave()
        if bad >= 0:
            raise failures.corrupt(self.files[extents.file[bad]], calls, bad)

    def fetch(self, calls: Calls) -> int:
        """Land every byte and verify the pages; returns the first bad extent, or -1."""
        raise NotImplementedError

    def close(self) -> None:
        """See `Disk.close`."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._reading)
        self.release()

    def release(self) -> None:
        """Give back what the disk holds; nobody reads any more."""

    def _enter(self) -> None:
        with self._gate:
            if self._closed:
                raise InvalidInputError(
                    f"a read from the {self.name} disk", found="that it was closed", hint="Open it again."
                )
            self._reading += 1

    def _leave(self) -> None:
        with self._gate:
            self._reading -= 1
            if self._closed:
                self._idle.notify_all()

    def _seconds(self, calls: Calls, started: float) -> float:  # noqa: ARG002 - a simulated disk prices the calls
        return time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
