"""The tuner: all free parameters of an algorithm at once, for either objective.

    tune("cmeshjoin", master, memory="64MB", skew=1.0)    the best rate for a memory
    tune("cmeshjoin", master, rate=50_000, skew=1.0)      the least memory for a rate

The models are smooth but for rounding, with one optimum in each parameter (MESH figure 5, X-HYBRID figure 4): a coarse grid
over all parameters finds its neighbourhood, and ever finer ones around the best point so far find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import pyarrow as pa

from semistream.config import format_bytes, parse_bytes
from semistream.cost.hybrids import blocks_at_once
from semistream.cost.memory import memory_by_part
from semistream.cost.question import Point, Question, ask
from semistream.errors import InvalidInputError, UnreachableRateError
from semistream.front.steady import PLACES
from semistream.joins.division import reads_ahead
from semistream.joins.registry import Settings
from semistream.joins.sides import On
from semistream.master import Master

_FRONT = ("x-hybridjoin", "optimised-x-hybridjoin", "cinlj", "cmeshjoin", "chybridjoin")
_BLOCKS = ("hybridjoin", "x-hybridjoin", "optimised-x-hybridjoin", "chybridjoin")
# Places of the first grid and times it is refined, by how many parameters there are.
_EFFORT = {("usual", 1): (17, 4), ("usual", 2): (5, 3), ("little", 1): (9, 2), ("little", 2): (4, 1)}
# Of the instance that stands for a front stage: to compare settings all over the axes with, and then neighbours.
_ROUGH_PLACES, _FINER_PLACES = 1 << 8, 1 << 10
_KEPT = 4  # of all over the axes: the best of them is found with the finer instance
# Of those looked at finely, ever fewer and ever closer: an instance that is twice as large tells twice as small differences.
_FINALISTS = ((8, PLACES // 2), (3, PLACES))
_MOST_BUFFER = 1 << 30  # longer reads gain nothing on any disk
_MOST_MEMORY = 1 << 44
_MOST_BLOCK = (
    16  # pages, where a real disk reads many blocks together: there is no seek that larger ones would spread
)
_NEAR_ENOUGH = 1.01  # to the least memory, or to the rate
_LEAST_PART = 0.1  # of what is between the bounds of the least memory, cut off with every look
_KNOWN = 4.0  # between the bounds of the least memory: settings change little from there on
# The curve around the least memory: no settings need less than a little below it, or more than so many times as much.
_HARDLY_LESS, _MOST_TIMES, _CURVE_NEAR_ENOUGH = 0.9, 64, 1.03
_ROUNDS, _NEARBY = 3, 0.1  # in which memory and settings settle, and how far settings move in one
_STEPS, _FEW_STEPS, _MARGIN, _MOST_STEP, _LEAST_POWER = 8, 2, 1.002, 1.5, 0.2


_Place = tuple[float, ...]  # on every axis, from 0 to 1
_Found = tuple[Point, _Place]


@dataclass(frozen=True)
class Tuning:
    """What `tune` found."""

    algorithm: str
    settings: Settings
    memory_bytes: int
    rate_per_s: float
    skew: float
    front_share: float
    window_tuples: int
    memory: dict[str, int]  # bytes by part
    block_pages: int  # of a block that tuples choose; 0 where none is chosen
    parallel: int  # blocks that are chosen together, as far as the disk buffer goes
    origin: str  # of the factors
    # One parameter changed at a time, around the optimum: the rate with this memory, or the memory for this rate.
    curve: tuple[Point, ...]

    def __str__(self) -> str:
        beside = {"window": f" ({self.window_tuples:,} tuples)"}
        if self.block_pages:
            beside["disk buffer"] = f" ({self.blocks})"
        parts = [
            f"{name} {format_bytes(nbytes)}{beside.get(name, '')}" for name, nbytes in self.memory.items()
        ]
        return (
            f"{self.algorithm} within {format_bytes(self.memory_bytes)} ({', '.join(parts)}): "
            f"about {self.rate_per_s:,.0f} tuples/s at skew {self.skew:.2f}"
        )

    @property
    def blocks(self) -> str:
        """What is read at once, where tuples choose it; nothing elsewhere."""
        return f"{self.parallel:,} x {self.block_pages:,} pages" if self.block_pages else ""


def tune(
    algorithm: str,
    master: Master,
    *,
    memory: int | str | None = None,
    rate: float | None = None,
    skew: float | None = None,
    misses: float | None = None,
    sample: pa.Table | pa.RecordBatch | None = None,
    on: On | None = None,
    columns: Sequence[str] | None = None,
    disk: str = "direct",
    parallel: int | None = None,
) -> Tuning:
    """Find the best parameters of an algorithm.

    Args:
        algorithm: One of ALGORITHMS, but "auto".
        master: What the stream will be joined with.
        memory: The budget; the best rate is looked for.
        rate: Tuples a second; the least memory is looked for.
        skew: The exponent of Zipf's law that the stream's keys follow; estimated from `sample` where it is None.
        misses: The share of tuples that have no row; estimated from `sample` where it is None, or 0 without one.
        sample: Some tuples of the stream; they also tell how much memory one takes.
        on: As in `join`; the master's key by default.
        columns: As in `join`.
        disk: "direct", "buffered" or a simulated disk's profile.
        parallel: Blocks that are chosen together: 1 is the papers', and the default where a disk does one thing at a time.

    Returns:
        The parameters, the predicted rate and the curve around the optimum. Of the front stage the share of the memory is tuned, not the
        threshold for admission, which moves by itself; and meshjoin's w follows from b, so that a cycle fills the window.
    """
    question = ask(
        algorithm,
        master,
        skew=skew,
        misses=misses,
        sample=sample,
        on=on,
        columns=columns,
        disk=disk,
        parallel=parallel,
    )
    if (memory is None) == (rate is None):
        raise InvalidInputError(
            f"tune(memory={memory!r}, rate={rate!r})",
            found="both or neither",
            hint="Give memory= for the best rate, or rate= for the least memory.",
        )
    if memory is not None:
        best = best_rate(question, parse_bytes(memory, name="memory"))
    else:
        best = least_memory(question, float(rate or 0.0))
    best = question.point(best.memory_bytes, best.settings) or best  # exactly
    case = question.case(best.memory_bytes, best.settings)
    division, chosen = case.division, question.algorithm in _BLOCKS
    return Tuning(
        algorithm=question.algorithm,
        settings=best.settings,
        memory_bytes=best.memory_bytes,
        rate_per_s=best.rate_per_s,
        skew=question.skew,
        front_share=best.front_share,
        window_tuples=division.window_tuples,
        memory=memory_by_part(division),
        block_pages=division.block_pages if chosen else 0,
        parallel=blocks_at_once(case) if chosen else 1,
        origin=question.costs.origin,
        curve=tuple(_curve(question, best) if rate is None else _memory_curve(question, best, rate)),
    )


def best_rate(
    question: Question, memory_bytes: int, *, effort: Literal["usual", "little"] = "usual"
) -> Point:
    """The point of the highest rate within a memory."""
    return _search(_together_or_alone(question, memory_bytes), memory_bytes, effort)[0]


def _together_or_alone(question: Question, memory_bytes: int) -> Question:
    """With as many blocks together as are usual, or with one large block: on a disk with a queue either may be faster."""
    if not question.may_be_alone or question.algorithm not in _BLOCKS:
        return question
    alone = replace(question, parallel=1)
    try:
        rates = [_search(asked, memory_bytes, "little")[0].rate_per_s for asked in (question, alone)]
    except InvalidInputError:  # which is said by the search that follows
        return question
    return alone if rates[1] > rates[0] else question


def least_memory(question: Question, rate: float) -> Point:
    """The point of the least memory that reaches a rate."""
    if not rate > 0.0:
        raise InvalidInputError(f"rate={rate}", found="no rate", hint="Give tuples a second, more than 0.")
    found = _least_memory(question, rate)
    asked = _together_or_alone(question, found.memory_bytes)
    if asked is question:
        return found
    return min(found, _least_memory(asked, rate), key=lambda point: point.memory_bytes)


def _least_memory(question: Question, rate: float) -> Point:
    low, high = float(question.master.page_bytes), float(max(question.master.nbytes, 1 << 20)) * 2
    best = _search(question, int(high), "little")
    # Waiting tuples may take more than the master does.
    while best[0].rate_per_s < rate and high < _MOST_MEMORY:
        more = _search(question, int(2 * high), "little")
        if more[0].rate_per_s <= _NEAR_ENOUGH * best[0].rate_per_s:
            break
        best, high = more, 2 * high
    if best[0].rate_per_s < rate:
        best = min(best, _search(question, int(high), "usual"), key=_by_rate)
    if best[0].rate_per_s < rate:
        error = UnreachableRateError(
            f"{question.algorithm} at {rate:,.0f} tuples/s",
            found=f"at most {best[0].rate_per_s:,.0f}, with {format_bytes(best[0].memory_bytes)}",
            hint="Ask for less, or for another algorithm.",
        )
        error.best_per_s = best[0].rate_per_s
        raise error
    between = _Between(low, 0.0, high, best[0].rate_per_s)
    while between.ratio > _KNOWN and best[0].rate_per_s > _NEAR_ENOUGH * rate:
        memory = between.guess(rate)
        try:
            found = _search(question, memory, "little")
        except InvalidInputError:
            between.tried(memory, 0.0, rate)
            continue
        between.tried(memory, found[0].rate_per_s, rate)
        best = found if found[0].rate_per_s >= rate else best
    for _ in range(_ROUNDS):  # the memory for the settings, the settings for the memory
        best = _shrunk(question, best, replace(between), rate)
        better = _nearby(question, best)
        if better[0].rate_per_s <= _NEAR_ENOUGH * best[0].rate_per_s:
            break
        best = better
    return _reaching(question, best[0], rate)


def _shrunk(question: Question, best: _Found, between: _Between, rate: float) -> _Found:
    """The least memory that reaches the rate with the settings at a place."""
    point, place = best
    between.tried(point.memory_bytes, point.rate_per_s, rate)
    while between.ratio > _NEAR_ENOUGH and point.rate_per_s > _NEAR_ENOUGH * rate:
        memory = between.guess(rate)
        settings = _settings(question, _axes(question, memory), place)
        found = question.point(memory, settings, small_places=_FINER_PLACES)
        between.tried(memory, found.rate_per_s if found is not None else 0.0, rate)
        point = found if found is not None and found.rate_per_s >= rate else point
    return point, place


@dataclass
class _Between:
    """The bounds of the least memory: the rate grows with it, between near bounds about as a power of it."""

    low: float
    low_rate: float
    high: float
    high_rate: float
    halves: bool = False  # the next guess: where bounds are far apart the power misleads, so every other guess is their middle

    @property
    def ratio(self) -> float:
        return self.high / self.low

    def guess(self, rate: float) -> int:
        part = 0.5
        if self.low_rate and not self.halves:
            part = np.log(rate / self.low_rate) / np.log(self.high_rate / self.low_rate)
            part = float(np.clip(part, _LEAST_PART, 1 - _LEAST_PART))
        self.halves = not self.halves
        return int(self.low * self.ratio**part)

    def tried(self, memory: float, found: float, rate: float) -> None:
        if found >= rate:
            self.high, self.high_rate = memory, found
        else:
            self.low, self.low_rate = memory, found


def _reaching(question: Question, found: Point, rate: float) -> Point:
    """A little more or less memory, as the exact model says; the rate grows with a power of the memory."""
    best: Point | None = None
    last, power, memory = found, 1.0, found.memory_bytes
    for step in range(_STEPS):
        now = question.point(memory, found.settings) or last
        if now.rate_per_s >= rate and (best is None or now.memory_bytes < best.memory_bytes):
            best = now
        if best is not None and (best.rate_per_s <= _NEAR_ENOUGH * rate or step >= _FEW_STEPS):
            break
        if step and now.memory_bytes != last.memory_bytes:
            grown = np.log(now.rate_per_s / last.rate_per_s) / np.log(now.memory_bytes / last.memory_bytes)
            power = float(np.clip(grown, _LEAST_POWER, 1.0))
        more = (rate / now.rate_per_s) ** (1 / power) * _MARGIN
        last, memory = now, int(now.memory_bytes * float(np.clip(more, 1 / _MOST_STEP, _MOST_STEP))) + 1
    return best or last


def _search(question: Question, memory_bytes: int, effort: Literal["usual", "little"]) -> _Found:
    """The best point and its place on the axes."""
    axes = _axes(question, memory_bytes)
    grid, refinements = _EFFORT[effort, len(axes)] if axes else (1, 0)
    width = 1.0 / max(grid - 1, 1)
    places = product(np.linspace(0.0, 1.0, grid), repeat=len(axes))
    found = _ranked(question, memory_bytes, axes, places, _ROUGH_PLACES)
    if not found:
        question.case(memory_bytes, _least(question))  # says what the least memory is
        raise InvalidInputError(
            f"{question.algorithm} within {format_bytes(memory_bytes)}",
            found="no setting that fits",
            hint="Raise memory=.",
        )
    finer = _FINER_PLACES if effort == "usual" else _ROUGH_PLACES
    if effort == "usual":
        found = _again(question, memory_bytes, axes, found[:_KEPT], finer)
    for _ in range(refinements):
        width = width / 2
        near = set(_around(found[0][1], width)) - {place for _, place in found}
        found += _ranked(question, memory_bytes, axes, sorted(near), finer)
        found.sort(key=_by_rate)
    if effort == "usual":
        for count, fine in _FINALISTS:
            found = _again(question, memory_bytes, axes, found[:count], fine)
    return found[0]


def _nearby(question: Question, best: _Found) -> _Found:
    """The best of a point and its neighbours, with the memory of the point."""
    memory_bytes = best[0].memory_bytes
    near = set(_around(best[1], _NEARBY)) - {best[1]}
    found = _ranked(question, memory_bytes, _axes(question, memory_bytes), sorted(near), _FINER_PLACES)
    return min([best, *found], key=_by_rate)


def _around(place: _Place, width: float) -> Iterator[_Place]:
    steps = np.array([-width, 0.0, width])
    return product(*(np.clip(centre + steps, 0.0, 1.0) for centre in place))


@dataclass(frozen=True)
class _Axis:
    """A parameter, from 0 to 1."""

    apply: Callable[[Settings, float], Settings]


def _axes(question: Question, memory_bytes: int) -> list[_Axis]:
    page, name = question.master.page_bytes, question.algorithm
    most_pages = max(1, min(int(0.6 * memory_bytes), _MOST_BUFFER) // page)
    axes = []
    if name in _BLOCKS:
        together = question.parallel

        ahead = reads_ahead(name, question.disk_kind, Settings(parallel=together))

        def blocks(settings: Settings, x: float) -> Settings:
            pages = max(1, round(min(most_pages, question.master.pages) ** x))
            if together == 1:
                return replace(settings, block_pages=pages, disk_buffer=pages * page)
            halves = 2 if ahead else 1
            pages = min(pages, _MOST_BLOCK) if ahead else pages
            room = min(halves * together * pages * page, memory_bytes // 4)
            return replace(settings, block_pages=pages, disk_buffer=max(room, halves * pages * page))

        axes.append(_Axis(blocks))
    elif name != "in-memory":
        axes.append(
            _Axis(
                lambda s, x: replace(
                    s, disk_buffer=max(1, round(min(most_pages, 2 * question.master.pages) ** x)) * page
                )
            )
        )
    if name in _FRONT:
        # Closer together where little is a lot: X-HYBRIDJOIN pins some hundredths.
        axes.append(_Axis(lambda s, x: replace(s, front_share=0.01 + 0.94 * x * x)))
    return axes


def _least(question: Question) -> Settings:
    return Settings(disk_buffer=question.master.page_bytes, front_share=0.0, parallel=question.parallel)


def _ranked(
    question: Question, memory_bytes: int, axes: list[_Axis], places: Iterable[_Place], small_places: int
) -> list[_Found]:
    """Those that fit, the best first."""
    found = []
    for place in places:
        point = question.point(memory_bytes, _settings(question, axes, place), small_places=small_places)
        if point is not None:
            found.append((point, place))
    return sorted(found, key=_by_rate)


def _again(
    question: Question, memory_bytes: int, axes: list[_Axis], found: list[_Found], small_places: int
) -> list[_Found]:
    """The same places, looked at more closely."""
    return _ranked(question, memory_bytes, axes, [place for _, place in found], small_places)


def _by_rate(found: _Found) -> float:
    return -found[0].rate_per_s


def _settings(question: Question, axes: list[_Axis], place: _Place) -> Settings:
    settings = Settings(parallel=question.parallel)
    for axis, x in zip(axes, place, strict=True):
        settings = axis.apply(settings, x)
    return settings


def _curve(question: Question, best: Point) -> Iterator[Point]:
    """The rate with this memory, and other settings."""
    for settings in _varied(question, best.settings):
        found = question.point(best.memory_bytes, settings, small_places=_FINER_PLACES)
        if found is not None:
            yield found


def _memory_curve(question: Question, best: Point, rate: float) -> Iterator[Point]:
    """The least memory for this rate with other settings (MESH, figure 5a); none where no memory is enough."""
    for settings in _varied(question, best.settings):
        found = _memory_for(question, best, settings, rate)
        if found is not None:
            yield found


def _memory_for(question: Question, best: Point, settings: Settings, rate: float) -> Point | None:
    """From the bounds on: below it does not fit or is too slow; above it is fast enough, if ever."""
    between = _Between(_HARDLY_LESS * best.memory_bytes, 0.0, float(best.memory_bytes), 0.0)
    found: Point | None = None
    while found is None and between.high < _MOST_TIMES * best.memory_bytes:
        point = question.point(int(between.high), settings, small_places=_FINER_PLACES)
        if point is not None and point.rate_per_s >= rate:
            found = point
            between.high_rate = point.rate_per_s
        else:
            between.low, between.low_rate = between.high, point.rate_per_s if point is not None else 0.0
            between.high *= 2
    while found is not None and between.ratio > _CURVE_NEAR_ENOUGH:
        memory = between.guess(rate)
        point = question.point(memory, settings, small_places=_FINER_PLACES)
        between.tried(memory, point.rate_per_s if point is not None else 0.0, rate)
        found = point if point is not None and point.rate_per_s >= rate else found
    return found


def _varied(question: Question, settings: Settings) -> Iterator[Settings]:
    """The disk buffer from far too small to far too large, then the share of the hot rows; the rest as it is."""
    page = question.master.page_bytes
    if settings.disk_buffer:
        for factor in 2.0 ** np.arange(-3, 4):
            pages = max(1, round(settings.disk_buffer * factor / page))
            changed = replace(settings, disk_buffer=pages * page)
            if question.algorithm in _BLOCKS and settings.parallel == 1:
                changed = replace(changed, block_pages=pages)
            yield changed
    if settings.front_share is not None:
        for share in np.linspace(0.1, 0.9, 5):
            yield replace(settings, front_share=float(share))
