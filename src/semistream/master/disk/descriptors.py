"""Open files: opened when first read, kept, and bounded in number.

Here also is what happens where O_DIRECT is refused: the file is opened for buffered reading instead, with one warning
per directory.
"""

from __future__ import annotations

import errno
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from semistream.master.disk import failures
from semistream.master.disk.extents import LocalFile

MAX_OPEN_FILES = 256  # a quarter of the usual limit of 1024 descriptors per process

Mode = Literal["direct", "buffered"]

_warned: set[str] = set()
_warned_lock = threading.Lock()


class DirectIOUnavailableWarning(UserWarning):
    """A file system that refuses O_DIRECT; its files are read through the page cache."""


@dataclass(eq=False)
class Descriptor:
    """One open file; `readers` counts the batches that use it, `kept` says whether it outlives them."""

    fd: int
    mode: Mode
    readers: int = 0
    kept: bool = True


class Descriptors:
    """The open files of one disk, least recently used first."""

    def __init__(self, files: Sequence[LocalFile], mode: Mode, *, limit: int = MAX_OPEN_FILES) -> None:
        self._files = files
        self._mode: Mode = mode
        self.limit = limit
        self._open: OrderedDict[int, Descriptor] = OrderedDict()
        self._refused: set[int] = set()
        self._lock = threading.Lock()

    def take(self, files: Iterable[int]) -> list[Descriptor]:
        """Open these files, or find them open; they stay so until given back."""
        taken: list[Descriptor] = []
        try:
            with self._lock:
                for file in files:
                    descriptor = self._open.get(file)
                    if descriptor is None:
                        descriptor = self._open[file] = self._opened(file)
                    self._open.move_to_end(file)
                    descriptor.readers += 1
                    taken.append(descriptor)
        except BaseException:
            self.give_back(taken)
            raise
        return taken

    def give_back(self, taken: list[Descriptor]) -> None:
        """End the use of files, and close those that are too many."""
        with self._lock:
            for descriptor in taken:
                descriptor.readers -= 1
                if not descriptor.kept:
                    self._drop(descriptor)
            if len(self._open) > self.limit:
                idle = [file for file, d in self._open.items() if not d.readers]
                for file in idle[: len(self._open) - self.limit]:
                    self._drop(self._open.pop(file))

    def demote(self, file: int, error: OSError) -> None:
        """From now on read a file through the page cache: it took O_DIRECT when opened, and refuses to read."""
        with self._lock:
            self._refused.add(file)
            old = self._open.pop(file, None)
            if old is not None:
                self._drop(old)
        _warn_once(self._files[file].path, error)

    def close(self) -> None:
        """Close what nobody reads; the rest is closed when its batch gives it back."""
        with self._lock:
            while self._open:
                self._drop(self._open.popitem()[1])

    @staticmethod
    def _drop(descriptor: Descriptor) -> None:
        descriptor.kept = False
        if not descriptor.readers:
            os.close(descriptor.fd)

    def _opened(self, file: int) -> Descriptor:
        path = self._files[file].path
        try:
            if self._mode == "direct" and file not in self._refused:
                try:
                    return Descriptor(_open_direct(path), "direct")
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    self._refused.add(file)
                    _warn_once(path, error)
            return Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC), "buffered")
        except OSError as error:
            raise failures.cannot_open(self._files[file], error) from error

    def __del__(self) -> None:
        self.close()


def _open_direct(path: str) -> int:
    flag = getattr(os, "O_DIRECT", 0)
    if not flag:
        raise OSError(errno.EINVAL, "this operating system does not have it")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flag)


def _warn_once(path: str, error: OSError) -> None:
    directory = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - the file may be gone by now
    with _warned_lock:
        if directory in _warned:
            return
        _warned.add(directory)
    warnings.warn(
        f"{directory}: the file system refuses O_DIRECT ({error.strerror}). Its page files are read through the page "
        "cache: results are the same, memory beyond the budget may hold their pages. Open the disk as 'buffered' to say "
        "that this is meant.",
        DirectIOUnavailableWarning,
        stacklevel=2,
    )
