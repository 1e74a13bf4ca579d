"""What a worker needed to begin, and then no more: memory given back to the system, objects no longer looked through.

Loading kernels takes LLVM, whose code stays resident (50 MB) although nothing calls it any more, and small pieces that the
C library keeps when they are freed. Whoever limits containers by resident memory counts both, in every worker.

It also leaves some 170,000 Python objects. PySpark collects garbage after every task, which looks at each of them: 50 ms of
a processor a task, more than most of the join takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

_LIBRARY = "libllvmlite.so"
_MADV_DONTNEED = 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Arrays from here on go back when they are freed, instead of into a heap that they leave in holes. What goes back is cleared
# by the system when it is asked for again: a task's columns, which are smaller, stay.
_LARGE = 4 << 20


def give_back() -> None:
    """Let go of them; what is called again after all is read again from its file. Does nothing where it cannot."""
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError, ValueError):
        libc = ctypes.CDLL(None, use_errno=True)
        for begin, count in _code_of(_LIBRARY):
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(count), _MADV_DONTNEED)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE)
        libc.malloc_trim(0)


def settle() -> None:
    """Leave all objects there are now out of later collections.

    To be called again when something that was there is let go of: what lies in a cycle is collected only then.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _code_of(library: str) -> Iterator[tuple[int, int]]:
    """Where a library's code is mapped: never written to, so that the file has all of it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, *_, path = line.split(maxsplit=5)
        if rights == "r-xp" and Path(path).name == library:
            begin, end = (int(part, 16) for part in place.split("-"))
            yield begin, end - begin
