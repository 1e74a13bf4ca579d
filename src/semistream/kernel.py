"""The one way numba is used: compiled once, cached on disk, free of the interpreter lock."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

_WITHOUT_KERNELS = ("cost", "spark", "pipeline", "experiments", "cli")
F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile `function` to machine code at its first call and keep the result beside the source.

    Kernels hold no lock, so threads that read and threads that check run side by side.
    """
    compiled: Any = numba.njit(nogil=True)(function)
    # Where nothing is writable (a read-only installation without a home), kernels are compiled in every process.
    with contextlib.suppress(RuntimeError):
        compiled._cache = _PackageCache(function)
    kept: F = compiled
    return kept


def inlined(function: F) -> F:
    """A piece of a kernel, put into every kernel that calls it: no call, no counting of references."""
    kept: F = numba.njit(nogil=True, inline="always")(function)
    return kept


class _PackageCache(FunctionCache):
    """Numba's cache, in files of its own for every state of this package.

    Numba compiles a kernel's callees into it but keys its cache by the kernel's own file alone, so after an upgrade it
    would run a callee's old code; and its index names our types, so it could not even be read where one is gone.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{_fingerprint()}",
            source_stamp=self._impl.locator.get_source_stamp(),
        )


@cache
def _fingerprint() -> str:
    """Of everything that a kernel may be compiled from; the folders above joins/ have none, and none can see them."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in _WITHOUT_KERNELS:
            digest.update(path.read_bytes())
    return digest.hexdigest()
