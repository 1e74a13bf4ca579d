"""What a disk has done so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class DiskStats:
    """Counters of a disk; take a `snapshot` before and after, and subtract.

    >>> stats = DiskStats()
    >>> before = stats.snapshot()
    >>> stats.record(calls=2, nbytes=8192, seeks=1, seconds=0.5)
    >>> stats - before
    DiskStats(calls=2, bytes=8192, seeks=1, seconds=0.5)

    Attributes:
        calls: Reads that the device saw, after adjacent extents were put together.
        bytes: Bytes read.
        seeks: Calls that did not begin where the disk's previous call ended.
        seconds: Time inside `read`, summed over batches; virtual seconds on a simulated disk.
    """

    calls: int = 0
    bytes: int = 0
    seeks: int = 0
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def record(self, *, calls: int, nbytes: int, seeks: int, seconds: float) -> None:
        """Add one batch; all four counters change together."""
        with self._lock:
            self.calls += calls
            self.bytes += nbytes
            self.seeks += seeks
            self.seconds += seconds

    def snapshot(self) -> DiskStats:
        """A copy that no later read changes."""
        with self._lock:
            return DiskStats(self.calls, self.bytes, self.seeks, self.seconds)

    def __sub__(self, earlier: DiskStats) -> DiskStats:
        now = self.snapshot()
        return DiskStats(
            now.calls - earlier.calls,
            now.bytes - earlier.bytes,
            now.seeks - earlier.seeks,
            now.seconds - earlier.seconds,
        )
