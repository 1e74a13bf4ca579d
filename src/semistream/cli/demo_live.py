"""The stream while it runs: a display that stays in place on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from semistream.cli.demo_spark import Flow
from semistream.config import format_bytes
from semistream.workload import Workload

_LINE_EVERY_S = 4.0
_SHOWN_RATES = 60  # micro-batches
_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Watched:
    """What can be said of a stream at a moment."""

    flow: Flow
    stream: Workload
    began: float  # seconds since 1970
    clock: Callable[[], float] = time.time
    told_at: float = field(default=0.0)

    @property
    def elapsed_s(self) -> float:
        """Since the first tuple could arrive."""
        return max(0.0, self.clock() - self.began)

    @property
    def done(self) -> int:
        """Tuples in the warehouse."""
        return sum(batch.counts.tuples for batch in self.flow.batches)

    @property
    def waiting(self) -> int:
        """Tuples that have arrived and are not in the warehouse."""
        return max(0, self.stream.arrived_by(self.elapsed_s) - self.done)

    def rates(self) -> list[float]:
        """Tuples a second, from the end of one micro-batch to the end of the next."""
        ends = [self.began, *(batch.written_at for batch in self.flow.batches)]
        return [
            batch.counts.tuples / max(end - begin, 1e-3)
            for batch, begin, end in zip(self.flow.batches, ends[:-1], ends[1:], strict=True)
        ]

    def line(self) -> str:
        """All in one line."""
        if not self.flow.batches:
            return f"{self.elapsed_s:5.1f} s  waiting for the first micro-batch"
        last, pages = self.flow.batches[-1], sum(batch.counts.pages for batch in self.flow.batches)
        return (
            f"{self.elapsed_s:5.1f} s  micro-batch {last.number:3}  {self.rates()[-1]:9,.0f} tuples/s  "
            f"front stage {last.counts.front_share:4.0%}  {pages:9,} pages read  "
            f"memory {format_bytes(last.counts.used_bytes)} of {format_bytes(last.counts.budget_bytes)}  "
            f"{self.waiting:9,} waiting"
        )

    def panel(self) -> RenderableType:
        """All of it, for a display that stays in place."""
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(width=14)
        table.add_column()
        total = self.stream.total_rows or 1
        table.add_row("stream", ProgressBar(total=total, completed=self.done, width=40))
        table.add_row(
            "", f"{self.done:,} of {total:,} tuples, {self.waiting:,} waiting, {self.elapsed_s:.0f} s"
        )
        if self.flow.batches:
            last, rates = self.flow.batches[-1], self.rates()
            counts = last.counts
            table.add_row("micro-batch", f"{last.number}: {counts.tuples:,} tuples")
            table.add_row("tuples/s", f"{rates[-1]:,.0f}  {_sparkline(rates[-_SHOWN_RATES:])}")
            table.add_row("front stage", f"{counts.front_share:.1%} of the tuples answered without the disk")
            pages = sum(batch.counts.pages for batch in self.flow.batches)
            table.add_row("pages read", f"{pages:,} ({counts.pages:,} for the last micro-batch)")
            table.add_row(
                "memory",
                f"{format_bytes(counts.used_bytes)} of {format_bytes(counts.budget_bytes)} a worker; "
                f"its process has had {format_bytes(counts.peak_rss_bytes)}",
            )
        return Group(table, Text())


def busy(console: Console, what: str) -> contextlib.AbstractContextManager[object]:
    """Say what takes a while: for as long as it does on a terminal, once elsewhere."""
    if console.is_terminal:
        return console.status(what)
    console.print(f"({what})", markup=False)
    return contextlib.nullcontext()


@contextlib.contextmanager
def watching(console: Console, watched: Watched) -> Iterator[Callable[[], None]]:
    """Give a function that shows the stream as it is; to be called now and then."""
    if console.is_terminal:
        with Live(watched.panel(), console=console, auto_refresh=False, transient=True) as live:
            yield lambda: live.update(watched.panel(), refresh=True)
        return

    def tell() -> None:
        if time.monotonic() - watched.told_at >= _LINE_EVERY_S:
            watched.told_at = time.monotonic()
            console.print(watched.line(), soft_wrap=True)

    yield tell


def _sparkline(values: list[float]) -> str:
    top = max(values) or 1.0
    return "".join(_BARS[min(int(value / top * len(_BARS)), len(_BARS) - 1)] for value in values)
