"""The byte budget of a join: what each structure may take, and what it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from semistream.config import format_bytes
from semistream.errors import InvalidInputError


@dataclass
class Budget:
    """`total_bytes` for all structures of a join together. Structures are allocated through it, up front."""

    total_bytes: int
    taken: dict[str, int] = field(default_factory=dict)

    @property
    def used_bytes(self) -> int:
        """Bytes taken so far."""
        return sum(self.taken.values())

    @property
    def left_bytes(self) -> int:
        """Bytes still to be had."""
        return self.total_bytes - self.used_bytes

    def take(self, name: str, nbytes: int, *, who: str) -> None:
        """Account for bytes under a name; too many are an error that says so."""
        if nbytes > self.left_bytes:
            left = format_bytes(max(self.left_bytes, 0))
            raise InvalidInputError(
                f"{who} within {format_bytes(self.total_bytes)}",
                found=f"that {name} needs {format_bytes(nbytes, up=True)} of the {left} left",
                hint=f"Raise memory= to at least {format_bytes(self.used_bytes + nbytes, up=True)}.",
            )
        self.taken[name] = self.taken.get(name, 0) + nbytes

    def array(self, name: str, shape: int | tuple[int, ...], dtype: str, *, who: str) -> NDArray[np.generic]:
        """An array inside the budget."""
        kind = np.dtype(dtype)
        self.take(name, int(np.prod(shape)) * kind.itemsize, who=who)
        return np.zeros(shape, dtype=kind)


def capacity_within(nbytes: int, bytes_for: Callable[[int], int]) -> int:
    """The most rows for which `bytes_for` gives at most `nbytes`; it never falls."""
    low, high = 0, max(nbytes, 1)
    while low < high:
        middle = (low + high + 1) // 2
        if bytes_for(middle) <= nbytes:
            low = middle
        else:
            high = middle - 1
    return low
