"""Key-only masters: whole in every respect but what their files take on the disk.

At the papers' sizes a master of 120-byte rows is 12 GB, of which the keys are 0.8. The rest is payload that nobody looks at,
all zeros. Here it is not stored: a block of the file that would have zeros alone is left out, and the file system gives zeros
back where one is read (a hole). So pages, rows a page, bytes read, checksums, the disk buffer and the rows kept in memory are those
of the full-width master, byte for byte, and the operators cannot tell; the file takes about an eighth.

What a page has beside zeros is its keys, at its beginning, and its checksum, at its end: pages must be several blocks long.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from semistream.master.storage import LocalStorage, Upload

KEY_ONLY_PAGE = 128 << 10  # 1,092 rows of 120 bytes: four blocks of 32 are stored
_BLOCK = 4096


@dataclass(frozen=True)
class KeyOnlyStorage(LocalStorage):
    """A directory whose files have holes in the place of zeros."""

    def upload(self, name: str) -> Upload:
        """Begin a file that does not exist yet."""
        return _Sparse(super().upload(name), Path(self.root) / name)


@dataclass
class _Sparse:
    """Whole blocks of zeros are passed over."""

    inner: Upload
    path: Path

    def __post_init__(self) -> None:
        self.descriptor = os.open(self.path, os.O_WRONLY)
        self.position = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write the runs of blocks that have something in them."""
        rest = memoryview(data).cast("B")
        whole = len(rest) // _BLOCK * _BLOCK if self.position % _BLOCK == 0 else 0
        filled = np.frombuffer(rest[:whole], dtype=np.uint64).reshape(-1, _BLOCK // 8).any(axis=1)
        known = np.concatenate([[False], filled, [whole < len(rest)], [False]])  # what is no block is written
        for start, stop in np.flatnonzero(np.diff(known.astype(np.int8))).reshape(-1, 2).tolist():
            self._put(rest[start * _BLOCK : stop * _BLOCK], self.position + start * _BLOCK)
        self.position += len(rest)

    def _put(self, data: memoryview, at: int) -> None:
        while data:
            written = os.pwrite(self.descriptor, data, at)
            data, at = data[written:], at + written

    def close(self) -> None:
        """Make what was written durable, holes included."""
        os.ftruncate(self.descriptor, self.position)
        self._release()
        self.inner.close()

    def abort(self) -> None:
        """Remove what was written."""
        self._release()
        self.inner.abort()

    def _release(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
