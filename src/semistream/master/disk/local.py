"""Files of this machine: direct (O_DIRECT, past the page cache) and buffered.

A batch is read in up to three passes, each for what the one before left:

    cached    one thread, what is in the page cache     buffered files only
    queue     one thread, up to 128 reads in flight     direct files only
    threads   pread, each thread its slice              buffered files; direct ones where there is no queue
    in turn   os.preadv in Python                       tells what is wrong, or finishes what was interrupted

A batch of one call takes none of these detours: it is read by the calling thread.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from semistream.master.disk import failures, kernels
from semistream.master.disk.calls import DESCRIPTOR, FILE, LANDED, LENGTH, OFFSET, TARGET, Calls
from semistream.master.disk.checksum import first_of
from semistream.master.disk.descriptors import Descriptor, Descriptors, Mode
from semistream.master.disk.disk import CountingDisk
from semistream.master.disk.extents import LocalFile
from semistream.master.disk.queue import ReadQueue, open_queue
from semistream.master.disk.threads import ReaderThreads

Engine = Literal["queue", "threads"]

# Measured here: big calls saturate the device with four threads, small random ones gain up to 16 to 32.
_THREADS_FOR_BIG_CALLS = 4
_THREADS_FOR_SMALL_CALLS = 16
_BIG_CALL_BYTES = 256 * 1024
_CALLS_PER_THREAD = 4  # fewer are not worth waking a thread for


class LocalDisk(CountingDisk):
    """Reads local files with pread or the kernel's queue; never maps them into memory."""

    files: tuple[LocalFile, ...]

    def __init__(
        self,
        files: Sequence[LocalFile],
        *,
        mode: Mode = "direct",
        threads: int | None = None,
        engine: Engine = "queue",
    ) -> None:
        """Open nothing yet.

        Args:
            files: What extents refer to by index.
            mode: Past the page cache or through it.
            threads: Most threads of pread at a time; chosen per batch if not given.
            engine: "threads" does without the kernel's queue.
        """
        super().__init__(mode, files)
        self._most_threads = threads
        self._threads = ReaderThreads(threads or _THREADS_FOR_SMALL_CALLS)
        self._descriptors = Descriptors(self.files, mode)
        self._queued = mode == "direct" and engine == "queue"
        self._lock = threading.Lock()
        self._queues: list[ReadQueue] = []

    def fetch(self, calls: Calls) -> int:
        """See `CountingDisk.fetch`."""
        if calls.one_file:
            return self._fetch_part(calls, np.arange(calls.count), [int(calls.table[FILE, 0])])
        files, which = np.unique(calls.row(FILE), return_inverse=True)
        limit = self._descriptors.limit
        bad: list[int] = []
        for begin in range(0, len(files), limit):
            # More files than may be open: as many parts as it takes.
            todo = np.flatnonzero((which >= begin) & (which < begin + limit))
            bad.append(self._fetch_part(calls, todo, files[begin : begin + limit].tolist()))
        return first_of(bad)

    def release(self) -> None:
        """See `CountingDisk.release`."""
        self._descriptors.close()
        self._threads.close()
        with self._lock:
            while self._queues:
                self._queues.pop().close()

    def _fetch_part(self, calls: Calls, todo: NDArray[np.int64], files: list[int]) -> int:
        """Open `files` (sorted), and read the calls of `todo`, which are on them."""
        batch = (calls.table, calls.words, calls.extents.target, calls.extents.length, calls.seeds)
        opened = self._descriptors.take(files)
        try:
            if len(files) == 1:
                calls.table[DESCRIPTOR] = opened[0].fd
            else:
                fd = np.array([descriptor.fd for descriptor in opened])
                calls.table[DESCRIPTOR, todo] = fd[np.searchsorted(files, calls.table[FILE, todo])]
            landed, bad = self._read(todo, batch, direct=all(d.mode == "direct" for d in opened))
            if landed == len(todo):
                return bad
            by_file = dict(zip(files, opened, strict=True))
            rest = todo[calls.table[LANDED, todo] == 0].tolist()
            return first_of([bad, *(self._rescue(calls, call, by_file) for call in rest)])
        finally:
            self._descriptors.give_back(opened)

    def _read(self, todo: NDArray[np.int64], batch: kernels.Batch, *, direct: bool) -> tuple[int, int]:
        """Read calls whose files are open; returns how many landed, and the first bad page or -1."""
        if len(todo) == 1:
            return kernels.read_in_turn(todo, 0, 1, *batch)
        landed, bad = 0, -1
        if direct and self._queued:
            landed, bad = self._read_queued(todo, batch)
        elif not direct and kernels.HAS_PREADV2:
            landed, bad = kernels.read_cached(todo, *batch)
        if landed:
            if landed == len(todo):
                return landed, bad
            todo = todo[batch[0][LANDED, todo] == 0]
        more, bad_too = self._read_threaded(todo, batch)
        return landed + more, first_of([bad, bad_too])

    def _read_queued(self, todo: NDArray[np.int64], batch: kernels.Batch) -> tuple[int, int]:
        queue = self._take_queue()
        if queue is None:
            return 0, -1
        result = queue.read(todo, batch)
        with self._lock:
            self._queues.append(queue)
        return result

    def _take_queue(self) -> ReadQueue | None:
        with self._lock:
            while self._queues:
                queue = self._queues.pop()
                if queue.usable_here:
                    return queue
        return open_queue()

    def _read_threaded(self, todo: NDArray[np.int64], batch: kernels.Batch) -> tuple[int, int]:
        big = int(batch[0][LENGTH, todo].mean()) >= _BIG_CALL_BYTES
        most = self._most_threads or (_THREADS_FOR_BIG_CALLS if big else _THREADS_FOR_SMALL_CALLS)
        workers = min(most, len(todo) if big else -(-len(todo) // _CALLS_PER_THREAD))
        bounds = [len(todo) * w // workers for w in range(workers + 1)]
        parts = [(todo, begin, end, *batch) for begin, end in pairwise(bounds)]
        results = self._threads.run(kernels.read_in_turn, parts)
        return sum(landed for landed, _ in results), first_of(bad for _, bad in results)

    def _rescue(self, calls: Calls, call: int, opened: dict[int, Descriptor]) -> int:
        """Read one call in Python, which raises what the kernels cannot say; returns its first bad page or -1."""
        file, offset, length, target = calls.table[[FILE, OFFSET, LENGTH, TARGET], call].tolist()
        descriptor = opened[file]
        end = os.fstat(descriptor.fd).st_size
        if end < offset + length:
            raise failures.truncated(self.files[file], offset, length, end)
        memory = calls.words.view(np.uint8)[target : target + length]
        got = 0
        while got < length:
            try:
                more = os.preadv(descriptor.fd, [memory[got:].data], offset + got)
            except OSError as error:
                if error.errno == errno.EINVAL and descriptor.mode == "direct":
                    return self._rescue_buffered(calls, call, file, error)
                raise failures.cannot_read(self.files[file], offset + got, length - got, error) from error
            if not more:
                raise failures.truncated(self.files[file], offset, length, offset + got)
            got += more
        return calls.first_bad_page(call)

    def _rescue_buffered(self, calls: Calls, call: int, file: int, error: OSError) -> int:
        self._descriptors.demote(file, error)
        buffered = self._descriptors.take([file])
        try:
            return self._rescue(calls, call, {file: buffered[0]})
        finally:
            self._descriptors.give_back(buffered)
