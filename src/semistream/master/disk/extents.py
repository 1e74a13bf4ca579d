"""What is read: which files, which bytes of them, and where they land."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow.fs as pafs
from numpy.typing import NDArray

from semistream.errors import InvalidInputError

ALIGNMENT = 4096  # what O_DIRECT asks of offsets, lengths and memory on every disk sold today

# Pinning memory for a direct read costs per page of memory, and a huge page is 512 of them.
_HUGE_FROM_BYTES = 4 << 20

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class LocalFile:
    """A page file that this machine can open."""

    path: str


@dataclass(frozen=True)
class RemoteFile:
    """A page file behind a pyarrow file system, such as an object store."""

    filesystem: pafs.FileSystem
    path: str


PageFile: TypeAlias = LocalFile | RemoteFile


@dataclass(frozen=True)
class Extents:
    """A batch of reads, column-wise: extent i is `length[i]` bytes of file `file[i]` from `offset[i]` on.

    Attributes:
        file: Index into the disk's files.
        offset: Bytes from the beginning of the file, a multiple of `ALIGNMENT`.
        length: Bytes, a positive multiple of `ALIGNMENT`.
        target: Where in the buffer the extent lands, a multiple of `ALIGNMENT`. Targets must not overlap.
    """

    file: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    target: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("file", "offset", "length", "target"):
            object.__setattr__(self, name, as_column(getattr(self, name), _INT64))
        if not len(self.file) == len(self.offset) == len(self.length) == len(self.target):
            raise InvalidInputError(
                "Extents(file, offset, length, target)",
                found=f"{len(self.file)}, {len(self.offset)}, {len(self.length)} and {len(self.target)} entries",
                hint="Give four arrays of equal length.",
            )

    def __len__(self) -> int:
        return len(self.file)


def as_column(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A plain one-dimensional array, copied only if it is not one.

    Kernels are compiled per type of array, and read-only or strided ones would be types of their own.
    """
    if type(values) is not np.ndarray or values.dtype != dtype or not values.flags.carray:
        values = np.require(values, dtype=dtype, requirements=["C", "W"])
    if values.ndim != 1:
        raise InvalidInputError(
            "a column of extents or seeds", found=f"shape {values.shape}", hint="Give one-dimensional arrays."
        )
    return values


def aligned_buffer(nbytes: int) -> NDArray[np.uint8]:
    """Memory that every disk can read into: aligned, zeroed, and rounded up to whole multiples of `ALIGNMENT`.

    >>> len(aligned_buffer(5000))
    8192
    """
    if nbytes <= 0:
        raise InvalidInputError(
            f"aligned_buffer({nbytes})",
            found="a size that is not positive",
            hint="Ask for at least one byte.",
        )
    size = -(-nbytes // ALIGNMENT) * ALIGNMENT
    # Private: a forked worker must not see, or overwrite, what its parent reads.
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
