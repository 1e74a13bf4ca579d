"""c_IO: what reading costs, on a simulated disk or on one that was measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from semistream.master.disk.calls import MAX_CALL_BYTES
from semistream.master.disk.profiles import DiskProfile
from semistream.master.disk.simulated import makespan


class DiskCosts(Protocol):
    """What a model asks of a disk."""

    def random_s(self, blocks: int, block_bytes: int, page_bytes: int) -> float:
        """Seconds to read blocks from places all over the disk, given together."""

    def scan_s(self, nbytes: int, page_bytes: int, seeks: int) -> float:
        """Seconds of one read in a scan; `seeks` times it does not begin where the last one ended."""

    def beside(self, nbytes: int) -> float:
        """How many times as long such a read of a scan takes while another thread joins."""


@dataclass(frozen=True)
class ProfileCosts:
    """Of a simulated disk: exactly what it will charge."""

    profile: DiskProfile

    def random_s(self, blocks: int, block_bytes: int, page_bytes: int) -> float:
        """See `DiskCosts`."""
        return _seconds(self.profile, blocks, block_bytes, page_bytes, blocks)

    def scan_s(self, nbytes: int, page_bytes: int, seeks: int) -> float:
        """See `DiskCosts`."""
        return _seconds(self.profile, 1, nbytes, page_bytes, seeks)

    def beside(self, nbytes: int) -> float:  # noqa: ARG002 - whatever its size
        """Its time passes in turn with all other."""
        return 1.0


@lru_cache(maxsize=4096)
def _seconds(profile: DiskProfile, blocks: int, block_bytes: int, page_bytes: int, seeks: int) -> float:
    """Pages of a block become calls of up to MAX_CALL_BYTES; the first of a block moves the arm."""
    longest = max(1, MAX_CALL_BYTES // page_bytes) * page_bytes
    calls = np.full(-(-block_bytes // longest), longest, dtype=np.int64)
    calls[-1] = block_bytes - (len(calls) - 1) * longest
    moves = np.zeros(len(calls) * blocks, dtype=np.int64)
    moves[:: len(calls)][:seeks] = 1
    return makespan(profile, np.tile(calls, blocks), moves)


@dataclass(frozen=True)
class MeasuredCosts:
    """Of a disk that was measured: seconds of a read by the bytes of a block and the number of blocks, in between by powers.

    A scan's read is one block; where the arm was before makes no difference to a disk without one.
    """

    curve: tuple[tuple[int, int, float], ...]  # block bytes, blocks together, seconds
    slowed: tuple[tuple[int, float], ...] = ()  # bytes of a scan's read, how many times as long beside a join

    def random_s(self, blocks: int, block_bytes: int, page_bytes: int) -> float:  # noqa: ARG002 - was measured with pages
        """See `DiskCosts`."""
        counts = sorted({count for _, count, _ in self.curve})
        low = max((c for c in counts if c <= blocks), default=counts[0])
        high = min((c for c in counts if c >= blocks), default=counts[-1])
        at_low = self._at(low, block_bytes)
        if high == low:
            return at_low * blocks / low  # beyond what was measured: no faster a block
        share = np.log(blocks / low) / np.log(high / low)
        return float(at_low ** (1 - share) * self._at(high, block_bytes) ** share)

    def scan_s(self, nbytes: int, page_bytes: int, seeks: int) -> float:
        """See `DiskCosts`."""
        return self.random_s(1, nbytes, page_bytes) if not seeks or nbytes else 0.0

    def beside(self, nbytes: int) -> float:
        """See `DiskCosts`."""
        if not self.slowed:
            return 1.0
        sizes, factors = zip(*self.slowed, strict=True)
        return float(np.interp(np.log(nbytes), np.log(sizes), factors))

    def _at(self, together: int, block_bytes: int) -> float:
        """With so many blocks together, of any size."""
        points = sorted((size, seconds) for size, count, seconds in self.curve if count == together)
        sizes = np.log([size for size, _ in points])
        seconds = np.log([seconds for _, seconds in points])
        at = np.log(block_bytes)
        if len(points) == 1 or at > sizes[-1]:
            return float(np.exp(seconds[-1] + at - sizes[-1]))  # as many bytes a second as at the largest
        return float(np.exp(np.interp(at, sizes, seconds)))
