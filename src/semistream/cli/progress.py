"""Progress of long work: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_LINE_EVERY_S = 10.0


@contextlib.contextmanager
def counting(what: str, total: int | None, *, unit: str) -> Iterator[Callable[[int], None]]:
    """Give a function to be told of every piece of work done; `total` is what is to be done, if that is known."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console, what, total, unit)
        return
    columns = (
        TextColumn(f"{what} {unit}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)


def _lines(console: Console, what: str, total: int | None, unit: str) -> Callable[[int], None]:
    done, told = 0, time.monotonic()

    def advance(amount: int) -> None:
        nonlocal done, told
        done += amount
        if time.monotonic() - told >= _LINE_EVERY_S:
            told = time.monotonic()
            console.print(f"{what}: {done:,}{'' if total is None else f' of {total:,}'} {unit}")

    return advance
