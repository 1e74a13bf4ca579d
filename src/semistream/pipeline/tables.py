"""A table of a TOML file, taken apart key by key: what is wrong is told with the key's full name and the one it may be for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from semistream.config import parse_bytes, parse_duration
from semistream.errors import InvalidInputError, check_choice, did_you_mean

_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
}


@dataclass
class Table:
    """Keys that were asked for are known; `done()` refuses the others."""

    where: str  # the table's own name, as the file has it
    values: dict[str, Any]
    known: list[str] = field(default_factory=list)

    def text(self, key: str, default: str | None = None) -> str:
        """A string that must be there unless there is a default."""
        value = self._take(key, default)
        if value is None:
            raise InvalidInputError(
                f"{self.where} without {key!r}", found=self._found(), hint=f'Add {key} = "..." to it.'
            )
        if not isinstance(value, str):
            raise self._wrong(key, value, "text in quotes")
        return value

    def maybe_text(self, key: str) -> str | None:
        """A string, or nothing."""
        return self.text(key) if self._has(key) else None

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """One of some words."""
        value = self.text(key, default)
        check_choice(f"{self.where}.{key} = {value!r}", value, choices, hint="nearest")
        return value

    def whole(self, key: str, default: int, *, least: int = 0) -> int:
        """A whole number."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a whole number")
        if value < least:
            raise InvalidInputError(
                f"{self.where}.{key} = {value}", found=f"less than {least}", hint=f"Give at least {least}."
            )
        return value

    def duration(self, key: str, default: str) -> timedelta:
        """A time such as "10s"."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, 'a time in quotes, such as "10s"')
        try:
            return parse_duration(value)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{self.where}.{key} = {value!r}", found=error.found, hint=error.hint
            ) from error

    def size(self, key: str, default: str) -> int:
        """A number of bytes such as "64MB"."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self._wrong(key, value, 'a size such as "64MB"')
        return parse_bytes(value, name=f"{self.where}.{key}")

    def names(self, key: str) -> tuple[str, ...] | None:
        """Some names, or nothing."""
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self._wrong(key, value, 'a list of names, such as ["price"]')
        return tuple(value)

    def keys(self, key: str) -> str | tuple[str, ...] | dict[str, str]:
        """What is joined on: a name, several, or a table of names."""
        value = self._take(key, None)
        if value is None:
            raise InvalidInputError(
                f"{self.where} without {key!r}", found=self._found(), hint=f'Add {key} = "key column" to it.'
            )
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
            return tuple(value)
        if isinstance(value, dict) and value and all(isinstance(name, str) for name in value.values()):
            return value
        raise self._wrong(key, value, 'a name, several, or { stream_name = "master_name" }')

    def options(self, key: str) -> dict[str, str]:
        """Options for Spark: their names are Spark's, so any will do; values become text."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table of options")
        found = {}
        for name, option in value.items():
            if not isinstance(option, str | int | float):
                raise InvalidInputError(
                    f"{self.where}.{key}.{name}",
                    found=_name_of(option),
                    hint="Give text, a number, or true or false.",
                )
            found[name] = str(option).lower() if isinstance(option, bool) else str(option)
        return found

    def table(self, key: str) -> Table:
        """A table inside this one."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table")
        return Table(f"{self.where}.{key}".removeprefix("the file."), value)

    def tables(self, key: str) -> list[Table]:
        """Tables in a row: [[key]]."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._wrong(key, value, f"tables, each under [[{key}]]")
        return [Table(f"{key}[{number}]", one) for number, one in enumerate(value)]

    def done(self) -> None:
        """Refuse keys that nobody has asked for."""
        for key in self.values:
            if key not in self.known:
                raise InvalidInputError(
                    f"{key!r} in {self.where}",
                    found="no such key",
                    hint=f"{did_you_mean(key, self.known)}It has {', '.join(self.known)}.",
                )

    def _has(self, key: str) -> bool:
        self._know(key)
        return key in self.values

    def _take(self, key: str, default: Any) -> Any:
        self._know(key)
        return self.values.get(key, default)

    def _know(self, key: str) -> None:
        if key not in self.known:
            self.known.append(key)

    def _found(self) -> str:
        return f"the keys {', '.join(self.values)}" if self.values else "nothing in it"

    def _wrong(self, key: str, value: object, wanted: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self.where}.{key} = {value!r}".removeprefix("the file."),
            found=_name_of(value),
            hint=f"It must be {wanted}.",
        )


def _name_of(value: object) -> str:
    return next(
        (name for kind, name in _NAMES.items() if isinstance(value, kind)), f"a {type(value).__name__}"
    )
