"""The one way numba is used: compiled once, cached on disk, free of the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numba

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile `function` to machine code at its first call and keep the result beside the source.

    Kernels hold no lock, so threads that read and threads that check run side by side.
    """
    compiled: F = numba.njit(cache=True, nogil=True)(function)
    return compiled
