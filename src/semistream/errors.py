"""Every error semistream raises on purpose.

Each inherits `SemistreamError` and the builtin a caller would expect, and its message says three things: what was
asked, what was found, what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Literal


class SemistreamError(Exception):
    """The base of all errors of this package."""

    def __init__(self, asked: str, *, found: str, hint: str) -> None:
        """Join the three parts into one readable message.

        >>> print(InvalidInputError("key='product'", found="columns id, name", hint="Pass key='id'."))
        key='product': found columns id, name. Pass key='id'.
        """
        self.asked = asked
        self.found = found
        self.hint = hint
        super().__init__(f"{asked}: found {found}. {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip between processes; the default would call the constructor with one argument."""
        return (_rebuild, (type(self), self.asked, self.found, self.hint))


class InvalidInputError(SemistreamError, ValueError):
    """An argument, a schema or a configuration that cannot be used."""


class TooLittleMemoryError(InvalidInputError):
    """A budget that an algorithm cannot work in; `least_bytes` is what it needs, where that is known."""

    least_bytes: int = 0


class UnreachableRateError(InvalidInputError):
    """A rate that no setting reaches; `best_per_s` is the highest that one does, where that is known."""

    best_per_s: float = 0.0


class UnsupportedTypeError(SemistreamError, TypeError):
    """A column type that a master cannot hold or be keyed by."""


class StoreError(SemistreamError, OSError):
    """A store that cannot be opened, read or written."""


class NotAStoreError(StoreError, FileNotFoundError):
    """A path that holds no master store."""


class StoreExistsError(StoreError, FileExistsError):
    """A path that is taken."""


class NewerFormatError(StoreError):
    """A store written by a newer semistream."""


class CorruptPageError(StoreError):
    """A page whose bytes are not those that were written."""


class ConcurrentChangeError(StoreError):
    """Another writer made the version that this one was about to make."""


class NoSpaceError(StoreError):
    """The disk is full."""


class MissingDependencyError(SemistreamError, ImportError):
    """An optional package that the called function needs."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The beginning of a hint where one of the known words is near; nothing where none is.

    >>> did_you_mean("meshjion", ["meshjoin", "inlj"])
    "Did you mean 'meshjoin'? "
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""


def check_choice(
    asked: str,
    value: str,
    choices: Iterable[str],
    *,
    what: str = "choice",
    hint: Literal["names", "nearest", "quoted", "either"],
) -> None:
    """Refuse a word that is not among some, and name those.

    Args:
        asked: The word and what it was given for.
        value: The word.
        choices: Those it must be among.
        what: What it is not.
        hint: How they are named: as "names", with the one that may be meant first ("nearest"), "quoted" as in Python,
            or as "either" of few.

    >>> check_choice("how='outer'", "outer", ("inner", "left"), what="join", hint="either")
    Traceback (most recent call last):
    semistream.errors.InvalidInputError: how='outer': found no such join. Choose 'inner' or 'left'.
    """
    names = tuple(choices)
    if value in names:
        return
    if hint == "either":
        text = f"Choose {' or '.join(map(repr, names))}."
    elif hint == "quoted":
        text = f"Choose one of {', '.join(map(repr, names))}."
    else:
        text = f"{did_you_mean(value, names) if hint == 'nearest' else ''}Choose one of {', '.join(names)}."
    raise InvalidInputError(asked, found=f"no such {what}", hint=text)


def _rebuild(kind: type[SemistreamError], asked: str, found: str, hint: str) -> SemistreamError:
    return kind(asked, found=found, hint=hint)
