"""From extents to calls: what the device will see, in the order given.

Extents that are adjacent in a file and in the buffer become one call of up to `MAX_CALL_BYTES`; an extent is never
split. A call is a seek when the disk's previous call did not end, in the same file, where it begins: a disk has one
arm, so going back and forth between two files seeks every time. The first call is a seek.

A batch may be a single page, read between two waits when every cache is cold, so planning makes few objects: one
table with a column per call and a row per property.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.kernel import kernel
from semistream.master.disk.checksum import first_bad_page
from semistream.master.disk.extents import ALIGNMENT, Extents, as_column

# Larger calls gain nothing once several are in flight, and a call is verified as a whole: while its bytes are in cache.
MAX_CALL_BYTES = 1 << 20

# Rows of the table. Call j serves the extents FIRST[j] .. FIRST[j + 1] - 1. SEEK is 1 where the arm moves. DESCRIPTOR and
# LANDED belong to whoever reads: the open file, and 1 once all bytes of the call are in the buffer.
FILE, OFFSET, LENGTH, TARGET, FIRST, SEEK, DESCRIPTOR, LANDED = range(8)
_ROWS = 8

_BYTES = np.dtype(np.uint8)
_WORDS = np.dtype(np.uint64)
_NO_SEEDS = np.empty(0, dtype=np.uint64)
_NOWHERE = -1


@dataclass(frozen=True)
class Calls:
    """A batch of reads as the device sees them.

    Attributes:
        extents: What was asked for.
        seeds: One per extent, or none where pages are not to be verified.
        words: The buffer.
        table: See the names of the rows; one column more than there are calls.
        count: How many calls there are.
        seeks: How many of them move the arm.
        bytes: How many bytes they read.
        one_file: Whether all are on one file.
    """

    extents: Extents
    seeds: NDArray[np.uint64]
    words: NDArray[np.uint64]
    table: NDArray[np.int64]
    count: int
    seeks: int
    bytes: int
    one_file: bool

    def row(self, row: int) -> NDArray[np.int64]:
        """One property of every call."""
        return self.table[row, : self.count]

    def first_bad_page(self, call: int) -> int:
        """The first extent of a call that landed and does not match its checksum, or -1."""
        if not len(self.seeds):
            return -1
        begin, end = self.table[FIRST, call : call + 2].tolist()
        return first_bad_page(self.words, self.extents.target, self.extents.length, self.seeds, begin, end)


class Planner:
    """Turns batches into calls; remembers where the arm is between them."""

    def __init__(self, files: int) -> None:
        self._files = files
        self._arm = np.array([_NOWHERE, _NOWHERE], dtype=np.int64)
        self._lock = threading.Lock()

    def plan(
        self, extents: Extents, buffer: NDArray[np.uint8], seeds: NDArray[np.uint64] | None = None
    ) -> Calls:
        """Check a batch against the disk and the buffer, and put adjacent extents together."""
        if buffer.dtype != _BYTES or buffer.ndim != 1 or not buffer.flags.carray or len(buffer) % ALIGNMENT:
            raise _unusable(buffer)
        words = buffer.view(_WORDS)
        keys = _NO_SEEDS if seeds is None else as_column(seeds, _WORDS)
        if seeds is not None and len(keys) != len(extents):
            raise InvalidInputError(
                f"a read of {len(extents)} pages",
                found=f"{len(keys)} seeds",
                hint="Give one seed per extent, or none at all.",
            )
        table = np.zeros((_ROWS, len(extents) + 1), dtype=np.int64)
        with self._lock:
            wrong, count, seeks, nbytes, runs = _coalesce(
                extents.file,
                extents.offset,
                extents.length,
                extents.target,
                words,
                self._files,
                self._arm,
                table,
            )
        if wrong >= 0:
            raise (
                _unusable(buffer)
                if wrong == len(extents)
                else _misfit(extents, wrong, self._files, len(buffer))
            )
        return Calls(extents, keys, words, table, count, seeks, nbytes, runs == 1)


@kernel
def _first_misfit(
    file: NDArray[np.int64],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    target: NDArray[np.int64],
    words: NDArray[np.uint64],
    files: int,
) -> int:
    """The first extent that cannot be read, their number if it is the buffer that cannot, or -1."""
    if words.ctypes.data % ALIGNMENT != 0:
        return file.size
    for i in range(file.size):
        if (offset[i] | length[i] | target[i]) % ALIGNMENT != 0:
            return i
        if file[i] < 0 or file[i] >= files or offset[i] < 0 or length[i] <= 0:
            return i
        if target[i] < 0 or target[i] > 8 * words.size - length[i]:
            return i
    return -1


@kernel
def _coalesce(
    file: NDArray[np.int64],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    target: NDArray[np.int64],
    words: NDArray[np.uint64],
    files: int,
    arm: NDArray[np.int64],
    table: NDArray[np.int64],
) -> tuple[int, int, int, int, int]:
    """Fill the table; returns the first misfit or -1, and how many calls, seeks, bytes and runs of one file."""
    wrong = _first_misfit(file, offset, length, target, words, files)
    if wrong >= 0:
        return wrong, 0, 0, 0, 0
    calls = 0
    seeks = 0
    nbytes = 0
    runs = 0
    for i in range(file.size):
        nbytes += length[i]
        last = calls - 1
        same_file = last >= 0 and table[FILE, last] == file[i]
        if (
            same_file
            and table[OFFSET, last] + table[LENGTH, last] == offset[i]
            and table[TARGET, last] + table[LENGTH, last] == target[i]
            and table[LENGTH, last] + length[i] <= MAX_CALL_BYTES
        ):
            table[LENGTH, last] += length[i]
        else:
            runs += 0 if same_file else 1
            seek = 0 if arm[0] == file[i] and arm[1] == offset[i] else 1
            seeks += seek
            table[FILE, calls] = file[i]
            table[OFFSET, calls] = offset[i]
            table[LENGTH, calls] = length[i]
            table[TARGET, calls] = target[i]
            table[FIRST, calls] = i
            table[SEEK, calls] = seek
            calls += 1
        arm[0] = file[i]
        arm[1] = offset[i] + length[i]
    table[FIRST, calls] = file.size
    return -1, calls, seeks, nbytes, runs


def _unusable(buffer: NDArray[np.uint8]) -> InvalidInputError:
    return InvalidInputError(
        "a disk buffer",
        found=f"{buffer.dtype} memory of shape {buffer.shape} that is not bytes, contiguous, writable and aligned to "
        f"{ALIGNMENT}",
        hint="Make it with aligned_buffer(nbytes).",
    )


def _misfit(extents: Extents, i: int, files: int, buffer_bytes: int) -> InvalidInputError:
    file, offset, length, target = (
        int(c[i]) for c in (extents.file, extents.offset, extents.length, extents.target)
    )
    return InvalidInputError(
        f"extent {i}: {length} bytes of file {file} from {offset} on, into the buffer at {target}",
        found=f"a disk of {files} files, a buffer of {buffer_bytes} bytes and an alignment of {ALIGNMENT}",
        hint="Keep the extent inside both, with offset, length and target multiples of the alignment.",
    )
