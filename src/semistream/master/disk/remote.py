"""Object stores and other file systems of pyarrow: ranged reads, many at once.

A range that crosses the network waits for tens of milliseconds before its first byte, so `threads` of them are in
flight. pyarrow hands each over as bytes of its own: besides the buffer a batch holds at most threads x 1 MiB (more only
for pages that are larger).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from semistream.master.disk import failures
from semistream.master.disk.calls import FILE, LENGTH, OFFSET, TARGET, Calls
from semistream.master.disk.checksum import first_of
from semistream.master.disk.descriptors import MAX_OPEN_FILES
from semistream.master.disk.disk import CountingDisk
from semistream.master.disk.extents import RemoteFile
from semistream.master.disk.threads import ReaderThreads

_IN_FLIGHT = 32


class ObjectDisk(CountingDisk):
    """Reads remote files in parallel ranges."""

    files: tuple[RemoteFile, ...]

    def __init__(self, files: Sequence[RemoteFile], *, threads: int | None = None) -> None:
        """Open nothing yet; `threads` is how many ranges are in flight."""
        super().__init__("remote", files)
        self._threads = ReaderThreads(threads or _IN_FLIGHT)
        self._open: OrderedDict[int, pa.NativeFile] = OrderedDict()
        self._lock = threading.Lock()

    def fetch(self, calls: Calls) -> int:
        """See `CountingDisk.fetch`."""
        return first_of(self._threads.run(self._fetch_one, [(calls, call) for call in range(calls.count)]))

    def release(self) -> None:
        """See `CountingDisk.release`."""
        self._threads.close()
        with self._lock:
            self._open.clear()

    def _fetch_one(self, calls: Calls, call: int) -> int:
        number, offset, length, target = calls.table[[FILE, OFFSET, LENGTH, TARGET], call].tolist()
        file = self.files[number]
        handle = self._handle(number)
        try:
            # Asked beforehand: stores differ in what they do with a range that begins behind the end.
            end = handle.size()
            data = handle.read_at(length, offset) if offset + length <= end else b""
        except OSError as error:
            raise failures.cannot_read(file, offset, length, error) from error
        if len(data) < length:
            raise failures.truncated(file, offset, length, end)
        calls.words[target // 8 : (target + length) // 8] = np.frombuffer(data, dtype=np.uint64)
        return calls.first_bad_page(call)

    def _handle(self, number: int) -> pa.NativeFile:
        with self._lock:
            handle = self._open.get(number)
            if handle is not None:
                self._open.move_to_end(number)
                return handle
        file = self.files[number]
        try:
            # Outside the lock: opening asks the store for the size, and 32 threads may ask at once.
            handle = file.filesystem.open_input_file(file.path)
        except OSError as error:
            raise failures.cannot_open(file, error) from error
        with self._lock:
            handle = self._open.setdefault(number, handle)
            while len(self._open) > MAX_OPEN_FILES:
                # Not closed: a thread may be reading from it, and the last reference closes it.
                self._open.popitem(last=False)
        return handle
