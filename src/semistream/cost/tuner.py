"""The tuner: all free parameters of an algorithm at once, for either objective.

    tune("cmeshjoin", master, memory="64MB", skew=1.0)    the best rate for a memory
    tune("cmeshjoin", master, rate=50_000, skew=1.0)      the least memory for a rate

The models are smooth but for rounding, with one optimum in each parameter (MESH figure 5, X-HYBRID figure 4): a coarse grid
over all parameters finds its neighbourhood, and ever finer ones around the best point so far find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import pyarrow as pa

from semistream.config import format_bytes, parse_bytes
from semistream.cost.calibration import Calibration, costs_of
from semistream.cost.case import Case, Loop
from semistream.cost.models import MODELS, case_of, predict
from semistream.cost.skew import check_skew, estimated_skew
from semistream.errors import InvalidInputError
from semistream.front.steady import PLACES
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import heap_bytes_of
from semistream.joins.registry import Settings, check_algorithm
from semistream.joins.sides import JoinShape, On, shape_join
from semistream.master import Master

_FRONT = ("x-hybridjoin", "optimised-x-hybridjoin", "cinlj", "cmeshjoin", "chybridjoin")
_BLOCKS = ("hybridjoin", "x-hybridjoin", "optimised-x-hybridjoin", "chybridjoin")
_PAYLOAD_BYTES = 12  # of a stream tuple beside its key, where no stream is shown: the papers' 20 B
# Places of the first grid and times it is refined, by how many parameters there are.
_EFFORT = {("usual", 1): (17, 4), ("usual", 2): (5, 2), ("little", 1): (9, 2), ("little", 2): (4, 1)}
_ROUGH_PLACES = 1 << 8  # enough to compare settings with


@dataclass(frozen=True)
class Point:
    """A setting and what it is predicted to give."""

    settings: Settings
    memory_bytes: int
    rate_per_s: float
    front_share: float


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
    curve: tuple[Point, ...]  # one parameter changed at a time, around the optimum

    def __str__(self) -> str:
        parts = [f"{self.algorithm} within {format_bytes(self.memory_bytes)}"]
        if self.settings.disk_buffer:
            parts.append(f"disk buffer {format_bytes(self.settings.disk_buffer)}")
        if self.settings.front_share is not None:
            parts.append(f"{self.settings.front_share:.0%} for hot rows")
        return f"{', '.join(parts)}: about {self.rate_per_s:,.0f} tuples/s at skew {self.skew:.2f}"


@dataclass(frozen=True)
class Question:
    """What is asked, with everything but the settings and the memory decided."""

    algorithm: str
    master: Master
    shape: JoinShape
    skew: float
    disk_kind: str
    costs: Calibration
    row_heap_bytes: float
    tuple_heap_bytes: float
    parallel: int

    def case(self, memory_bytes: int, settings: Settings) -> Case:
        """For the models."""
        return case_of(
            self.algorithm,
            self.master,
            self.shape,
            memory_bytes=memory_bytes,
            settings=settings,
            skew=self.skew,
            disk_kind=self.disk_kind,
            disk=self.costs.disk,
            prices=self.costs.prices,
            row_heap_bytes=self.row_heap_bytes,
            tuple_heap_bytes=self.tuple_heap_bytes,
        )

    def point(self, memory_bytes: int, settings: Settings, *, small_places: int = PLACES) -> Point | None:
        """What a setting gives; None where it does not fit."""
        try:
            case = replace(self.case(memory_bytes, settings), small_places=small_places)
        except InvalidInputError:
            return None
        loop: Loop = predict(case)
        return Point(settings, memory_bytes, loop.rate_per_s(case), loop.front_share)


def tune(
    algorithm: str,
    master: Master,
    *,
    memory: int | str | None = None,
    rate: float | None = None,
    skew: float | None = None,
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
        sample: Some tuples of the stream; they also tell how much memory one takes.
        on: As in `join`; the master's key by default.
        columns: As in `join`.
        disk: "direct", "buffered" or a simulated disk's profile.
        parallel: Blocks that are chosen together: 1 is the papers', and the default on a simulated disk with one arm.

    Returns:
        The parameters, the predicted rate and the curve around the optimum.
    """
    question = ask(
        algorithm, master, skew=skew, sample=sample, on=on, columns=columns, disk=disk, parallel=parallel
    )
    if (memory is None) == (rate is None):
        raise InvalidInputError(
            f"tune(memory={memory!r}, rate={rate!r})",
            found="both or neither",
            hint="Give memory= for the best rate, or rate= for the least memory.",
        )
    if memory is not None:
        memory_bytes = parse_bytes(memory, name="memory")
        best = best_rate(question, memory_bytes)
    else:
        best = least_memory(question, float(rate or 0.0))
    best = question.point(best.memory_bytes, best.settings) or best  # exactly
    division = question.case(best.memory_bytes, best.settings).division
    return Tuning(
        question.algorithm,
        best.settings,
        best.memory_bytes,
        best.rate_per_s,
        question.skew,
        best.front_share,
        division.window_tuples,
        tuple(_curve(question, best)),
    )


def ask(
    algorithm: str,
    master: Master,
    *,
    skew: float | None,
    sample: pa.Table | pa.RecordBatch | None,
    on: On | None,
    columns: Sequence[str] | None,
    disk: str,
    parallel: int | None,
) -> Question:
    """Check what is asked, and find out what is not said."""
    check_algorithm(algorithm)
    if algorithm not in MODELS:
        raise InvalidInputError(
            "tuning 'auto'",
            found="no algorithm",
            hint="Name one, or join with algorithm='auto', which tunes itself.",
        )
    if not master.rows:
        raise InvalidInputError(
            f"tuning for {master.path}",
            found="an empty master",
            hint="There is nothing to tune: any setting will do.",
        )
    batch = _as_batch(sample)
    schema = batch.schema if batch is not None else _typical(master)
    shape = shape_join(
        schema, master, on=on if on is not None or batch is not None else _own_key(master), columns=columns
    )
    if skew is None:
        if batch is None:
            raise InvalidInputError(
                "tuning for a stream", found="neither its skew nor a sample", hint="Give skew= or sample=."
            )
        tuples, _ = shape.keyed(batch)
        skew = estimated_skew(tuples.codes, master.rows)
    costs = costs_of(master, disk)
    return Question(
        algorithm,
        master,
        shape,
        check_skew(skew),
        disk,
        costs,
        heap_bytes_of(master, shape),
        0.0 if batch is None else string_bytes_of(shape, batch),
        parallel if parallel is not None else usual_parallel(disk),
    )


def usual_parallel(disk: str) -> int:
    """Blocks that are chosen together: one on a simulated disk, as in the papers."""
    return Settings().parallel if disk in ("direct", "buffered") else 1


def best_rate(
    question: Question, memory_bytes: int, *, effort: Literal["usual", "little"] = "usual"
) -> Point:
    """The point of the highest rate within a memory."""
    axes = _axes(question, memory_bytes)
    grid, refinements = _EFFORT[effort, len(axes)] if axes else (1, 0)
    at = [np.linspace(0.0, 1.0, grid) for _ in axes]
    width = np.array([values[1] - values[0] for values in at])
    best: tuple[Point, tuple[float, ...]] | None = None
    for _ in range(refinements + 1):
        best = _best_of(question, memory_bytes, axes, product(*at), best)
        if best is None:
            question.case(memory_bytes, _least(question))  # says what the least memory is
            raise InvalidInputError(
                f"{question.algorithm} within {format_bytes(memory_bytes)}",
                found="no setting that fits",
                hint="Raise memory=.",
            )
        width = width / 2
        at = [
            np.clip(centre + half * np.array([-1.0, 0.0, 1.0]), 0, 1)
            for centre, half in zip(best[1], width, strict=True)
        ]
    if best is None:
        raise AssertionError("found in the first round, or an error")
    return best[0]


def least_memory(question: Question, rate: float) -> Point:
    """The point of the least memory that reaches a rate."""
    if not rate > 0.0:
        raise InvalidInputError(f"rate={rate}", found="no rate", hint="Give tuples a second, more than 0.")
    low, high = 1.0, float(max(question.master.nbytes, 1 << 20)) * 2
    most = best_rate(question, int(high))
    if most.rate_per_s < rate:
        raise InvalidInputError(
            f"{question.algorithm} at {rate:,.0f} tuples/s",
            found=f"at most {most.rate_per_s:,.0f}, with {format_bytes(most.memory_bytes)}",
            hint="Ask for less, or for another algorithm.",
        )
    best = most
    while high / low > 1.01:
        middle = float(np.sqrt(low * high))
        try:
            found = best_rate(question, int(middle))
        except InvalidInputError:
            low = middle
            continue
        if found.rate_per_s >= rate:
            best, high = found, middle
        else:
            low = middle
    return best


@dataclass(frozen=True)
class _Axis:
    """A parameter, from 0 to 1."""

    apply: Callable[[Settings, float], Settings]


def _axes(question: Question, memory_bytes: int) -> list[_Axis]:
    page, name = question.master.page_bytes, question.algorithm
    most_pages = max(1, int(0.6 * memory_bytes) // page)
    axes = []
    if name in _BLOCKS:
        together = question.parallel

        def blocks(settings: Settings, x: float) -> Settings:
            pages = max(1, round(min(most_pages, question.master.pages) ** x))
            if together == 1:
                return replace(settings, block_pages=pages, disk_buffer=pages * page)
            pages = min(pages, 16)
            room = min(2 * together * pages * page, memory_bytes // 4)
            return replace(settings, block_pages=pages, disk_buffer=max(room, 2 * pages * page))

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
        axes.append(_Axis(lambda s, x: replace(s, front_share=0.01 + 0.94 * x)))
    return axes


def _least(question: Question) -> Settings:
    return Settings(disk_buffer=question.master.page_bytes, front_share=0.0, parallel=question.parallel)


def _best_of(
    question: Question,
    memory_bytes: int,
    axes: list[_Axis],
    places: Iterator[tuple[float, ...]],
    best: tuple[Point, tuple[float, ...]] | None,
) -> tuple[Point, tuple[float, ...]] | None:
    for place in places:
        found = question.point(memory_bytes, _settings(question, axes, place), small_places=_ROUGH_PLACES)
        if found is not None and (best is None or found.rate_per_s > best[0].rate_per_s):
            best = found, place
    return best


def _settings(question: Question, axes: list[_Axis], place: tuple[float, ...]) -> Settings:
    settings = Settings(parallel=question.parallel)
    for axis, x in zip(axes, place, strict=True):
        settings = axis.apply(settings, x)
    return settings


def _curve(question: Question, best: Point) -> Iterator[Point]:
    """The disk buffer from far too small to far too large, then the share of the hot rows; the rest as it is."""
    settings, page = best.settings, question.master.page_bytes
    if settings.disk_buffer:
        for factor in 2.0 ** np.arange(-3, 4):
            pages = max(1, round(settings.disk_buffer * factor / page))
            changed = replace(settings, disk_buffer=pages * page)
            if question.algorithm in _BLOCKS and question.parallel == 1:
                changed = replace(changed, block_pages=pages)
            found = question.point(best.memory_bytes, changed, small_places=_ROUGH_PLACES)
            if found is not None:
                yield found
    if settings.front_share is not None:
        for share in np.linspace(0.1, 0.9, 5):
            found = question.point(
                best.memory_bytes, replace(settings, front_share=float(share)), small_places=_ROUGH_PLACES
            )
            if found is not None:
                yield found


def _as_batch(sample: pa.Table | pa.RecordBatch | None) -> pa.RecordBatch | None:
    if isinstance(sample, pa.Table):
        batches = sample.combine_chunks().to_batches()
        return batches[0] if batches else None
    return sample


def _own_key(master: Master) -> list[str]:
    return list(master.key)


def _typical(master: Master) -> pa.Schema:
    """Of a stream that nobody has shown: the key and a little more."""
    key = [master.schema.field(name) for name in master.key]
    return pa.schema([*key, pa.field("semistream_payload", pa.binary(_PAYLOAD_BYTES))])
