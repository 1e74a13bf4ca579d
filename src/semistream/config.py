"""Sizes and times that enter from outside, validated once, here."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction

from semistream.errors import InvalidInputError

_UNITS = {"": 1, "b": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_UNITS |= {f"{u}b": n for u, n in _UNITS.items() if u in "kmgt" and u}
_UNITS |= {f"{u}i{b}": 1024**p for p, u in enumerate("kmgt", 1) for b in ("", "b")}

_TIME_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_bytes(size: int | str, *, name: str = "size") -> int:
    """Read a size such as ``64MB``, ``16KiB`` or ``1048576`` as a number of bytes.

    As in Spark's documentation of sizes the case does not matter; as in SI, MB is 10^6 and MiB is 2^20.

    >>> parse_bytes("64MB"), parse_bytes("16KiB"), parse_bytes(4096)
    (64000000, 16384, 4096)
    """
    asked = f"{name}={size!r}"
    hint = "Give a number of bytes or a size such as '64MB' or '16KiB'."
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise InvalidInputError(asked, found=f"a {type(size).__name__}", hint=hint)
    if isinstance(size, int):
        value = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if match is None or match[2].lower() not in _UNITS:
            raise InvalidInputError(asked, found="no size in it", hint=hint)
        value = round(Fraction(match[1]) * _UNITS[match[2].lower()])
    if value <= 0:
        raise InvalidInputError(asked, found="a size that is not positive", hint=hint)
    return value


def format_bytes(size: int, *, up: bool = False) -> str:
    """Write a number of bytes for people, in the binary units that pages come in; `up`: never less than it is.

    >>> format_bytes(16384), format_bytes(1_200_000_000), format_bytes(5)
    ('16.0 KiB', '1.1 GiB', '5 B')
    >>> format_bytes(60_021), format_bytes(60_021, up=True)
    ('58.6 KiB', '58.7 KiB')
    """
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            shown = math.ceil(value * 10) / 10 if up else value
            return f"{size} B" if unit == "B" else f"{shown:.1f} {unit}"
        value /= 1024
    raise AssertionError(unit)


def parse_duration(text: str) -> timedelta:
    """Read a time such as ``24h``, ``30m``, ``7d``, ``0s`` or ``500ms``.

    >>> parse_duration("1.5h").total_seconds()
    5400.0
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|[smhd])\s*", text)
    if match is None:
        raise InvalidInputError(
            f"a time of {text!r}", found="no time in it", hint="Write 500ms, 30s, 15m, 24h or 7d."
        )
    try:
        return timedelta(**{_TIME_UNITS[match[2]]: float(match[1])})
    except OverflowError as error:
        raise InvalidInputError(
            f"a time of {text!r}", found=str(error), hint="Write a shorter one."
        ) from error
