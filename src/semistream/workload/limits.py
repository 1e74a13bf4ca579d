"""What a workload may be asked for, checked once, where it enters."""

from __future__ import annotations

import math
from collections.abc import Iterable

from semistream.errors import InvalidInputError, check_choice

MAX_KEYS = 10**9
"""Distinct keys of a distribution. The samplers' arithmetic is exact up to 2^30."""

MAX_ROWS = 2**44
"""Tuples of a stream: 200 days at a million a second. The tree of arrival times has this many leaves."""


def require_between(name: str, value: float, low: float, high: float, *, hint: str = "") -> None:
    """Refuse a number outside `low`..`high`, both allowed.

    >>> require_between("exponent", 3.0, 0, 2)
    Traceback (most recent call last):
    semistream.errors.InvalidInputError: exponent=3.0: found a value outside 0..2. Give one from 0 to 2.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidInputError(
            f"{name}={value!r}", found="not a number", hint=f"Give one from {low:,} to {high:,}."
        )
    if not low <= value <= high:
        raise InvalidInputError(
            f"{name}={value!r}",
            found=f"a value outside {low:,}..{high:,}",
            hint=hint or f"Give one from {low:,} to {high:,}.",
        )


def require_whole(name: str, value: int, low: int, high: int, *, hint: str = "") -> None:
    """Refuse anything but an integer in `low`..`high`, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(
            f"{name}={value!r}",
            found=f"a {type(value).__name__}",
            hint=f"Give an integer from {low:,} to {high:,}.",
        )
    require_between(name, value, low, high, hint=hint)


def require_above(name: str, value: float, low: float) -> None:
    """Refuse a number that is not finite or not above `low`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value <= low
    ):
        raise InvalidInputError(
            f"{name}={value!r}", found="no finite number above that", hint=f"Give a number above {low:g}."
        )


def require_one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse a mode that does not exist, and name those that do."""
    check_choice(f"{name}={value!r}", value, allowed, hint="names")


def require_range(start: int, stop: int, rows: int | None) -> None:
    """Refuse a slice that is backwards or reaches past the end of the stream."""
    end = MAX_ROWS if rows is None else rows
    if not 0 <= start <= stop <= end:
        raise InvalidInputError(
            f"slice({start}, {stop})",
            found=f"a stream of {end:,} rows" if rows is not None else "positions a stream cannot have",
            hint=f"Give 0 <= start <= stop <= {end:,}.",
        )
