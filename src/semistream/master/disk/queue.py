"""Linux's queue for direct reads, where the platform has one."""

from __future__ import annotations

import ctypes
import os
import platform
import weakref
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semistream.errors import StoreError
from semistream.master.disk import kernels

# Random reads gain up to about 128 in flight here; 64 reach 0.8 of that, 32 reach 0.6.
DEPTH = 128

# Devices tend to finish what they were given together; a second half that waits keeps them busy during verification.
WINDOW_BYTES = 2 << 20


@dataclass(frozen=True)
class _Numbers:
    """Numbers of the system calls; libc has no names for them."""

    setup: int
    destroy: int
    submit: int
    collect: int


_NUMBERS = {"x86_64": _Numbers(206, 207, 209, 208), "aarch64": _Numbers(0, 1, 2, 4)}


class ReadQueue:
    """One queue with the memory to talk to it; for one thread at a time."""

    def __init__(self, context: int, numbers: _Numbers) -> None:
        self._context = context
        self._process = os.getpid()
        self._numbers = numbers
        self._blocks = np.zeros((DEPTH, 8), dtype=np.int64)
        self._pointers = self._blocks.ctypes.data + np.arange(DEPTH, dtype=np.int64) * self._blocks.strides[0]
        self._events = np.zeros((DEPTH, 4), dtype=np.int64)
        # The system has a limited number of them, and a forgotten disk must not keep one.
        self._finalizer = weakref.finalize(self, _destroy, numbers, context, self._process)

    @property
    def usable_here(self) -> bool:
        """Whether this process made the queue; in a forked one its number may come to mean another queue."""
        return self._process == os.getpid()

    def read(self, todo: NDArray[np.int64], batch: kernels.Batch) -> tuple[int, int]:
        """Read the calls of `todo`; returns how many landed and the first bad page, or -1."""
        count, bad = kernels.read_queued(
            todo,
            self._context,
            self._numbers.submit,
            self._numbers.collect,
            WINDOW_BYTES,
            self._blocks,
            self._pointers,
            self._events,
            *batch,
        )
        if bad == kernels.LOST_QUEUE:
            raise StoreError(
                f"reading {len(todo)} extents through the kernel's queue",
                found="that the queue went away while reads were in flight",
                hint="Do not use a disk in a forked process while its parent reads; open one per process.",
            )
        return count, bad

    def close(self) -> None:
        """Give the queue back."""
        self._finalizer()


def open_queue() -> ReadQueue | None:
    """A queue, or None where the kernel has none to give (another platform, a sandbox, the system's limit)."""
    numbers = _NUMBERS.get(platform.machine()) if platform.system() == "Linux" else None
    if numbers is None:
        return None
    context = ctypes.c_ulong(0)
    if _libc_syscall(numbers.setup, ctypes.c_uint(DEPTH), ctypes.byref(context)) != 0:
        return None
    return ReadQueue(context.value, numbers)


def _destroy(numbers: _Numbers, context: int, process: int) -> None:
    if process == os.getpid():
        _libc_syscall(numbers.destroy, ctypes.c_ulong(context))


def _libc_syscall(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *arguments))
