"""`algorithm="auto"`: the algorithm and its parameters from the models, the budget and the first tuples of the stream."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from semistream.config import format_bytes
from semistream.cost.calibration import costs_of
from semistream.cost.misses import Misses, estimated_misses
from semistream.cost.question import Point, Question, keys_of, may_be_alone, usual_parallel
from semistream.cost.skew import estimated_skew
from semistream.cost.tuner import best_rate, least_memory
from semistream.errors import InvalidInputError
from semistream.joins.opening import Opening, heap_bytes_of
from semistream.joins.registry import SCANNING

USUAL_SKEW = 1.0  # of sales and clicks: until there are tuples enough to tell
_CANDIDATES = ("chybridjoin", "cmeshjoin", "hybridjoin", "meshjoin", "optimised-x-hybridjoin", "x-hybridjoin")
_BY_FREQUENCY = ("optimised-x-hybridjoin", "x-hybridjoin")


def choose(opening: Opening, sample: pa.RecordBatch | None) -> Opening:
    """The best algorithm for what is to be opened, tuned."""
    if opening.settings.at_once or not opening.master.rows:  # nobody waits: a rule is enough
        return opening
    misses = Misses() if sample is None else estimated_misses(opening.master, opening.shape, sample)
    return best_for(opening, *_skew(opening, sample, misses), round(misses.share, 2))


def best_for(opening: Opening, skew: float, known: bool, misses: float = 0.0) -> Opening:
    """The best algorithm for a stream of this skew and share of misses; with an algorithm named, the best settings of it."""
    candidates = _CANDIDATES if opening.algorithm == "auto" else (opening.algorithm,)
    question = _question(opening, skew, misses)  # once: it reads a page, and what was calibrated
    found: dict[str, Point] = {}
    for name in candidates:
        if _can(name, opening):
            try:
                asked = replace(question, algorithm=name)
                found[name] = best_rate(asked, _memory(opening), effort="little")
            except InvalidInputError:  # the budget is too small for this one
                continue
    if not found:
        return opening  # which says what the least memory is
    best, *others = sorted(found, key=lambda name: -found[name].rate_per_s)
    settings = found[best].settings
    why = [f"keys look like Zipf {skew:.2f}" if known else f"Zipf {skew:.0f} assumed"]
    if misses:
        why.append(f"{misses:.0%} have no row")
    if settings.disk_buffer:
        why.append(f"disk buffer {format_bytes(settings.disk_buffer)}")
    if settings.front_share is not None:
        why.append(f"{settings.front_share:.0%} of the rest for hot rows")
    if others:
        faster = found[best].rate_per_s / found[others[0]].rate_per_s
        why.append(f"{others[0]} would reach {1 / faster:.0%} of it")
    return replace(opening, algorithm=best, settings=settings, why="; ".join(why), planned_for=(skew, misses))


def least_for(opening: Opening, skew: float, misses: float, rate: float) -> Opening:
    """The same algorithm with the least memory that reaches a rate; with all of it where none does."""
    question, most = _question(opening, skew, misses), _memory(opening)
    try:
        found = least_memory(question, rate)
    except InvalidInputError:  # no memory is enough
        found = None
    if found is None or found.memory_bytes > most:
        found = best_rate(question, most, effort="little")
    beside = opening.memory_bytes - most
    return replace(
        opening,
        memory_bytes=min(opening.memory_bytes, found.memory_bytes + beside),
        settings=found.settings,
        why=f"for {rate:,.0f} tuples/s",
    )


def rate_of(opening: Opening, skew: float, misses: float = 0.0) -> float:
    """What an opened join is predicted to reach on such a stream."""
    found = _question(opening, skew, misses).point(_memory(opening), opening.settings)
    return found.rate_per_s if found is not None else 0.0


def _can(name: str, opening: Opening) -> bool:
    """Whether an algorithm can do what is asked at all."""
    layout = opening.master.layout
    if name in SCANNING:
        return True
    if layout == "heap" or opening.shape.condition is not None or not opening.shape.is_keyed:
        return False
    return layout == "frequency" or name not in _BY_FREQUENCY


def _memory(opening: Opening) -> int:
    return opening.memory_bytes - opening.reserve_bytes - opening.ordered_bytes - opening.stream_bytes


def _skew(opening: Opening, sample: pa.RecordBatch | None, misses: Misses) -> tuple[float, bool]:
    if sample is None or not opening.shape.is_keyed:
        return USUAL_SKEW, False
    tuples, _ = opening.shape.keyed(sample)
    try:
        return round(estimated_skew(tuples.codes, keys_of(opening.master), misses), 2), True
    except InvalidInputError:
        return USUAL_SKEW, False


def _question(opening: Opening, skew: float, misses: float = 0.0) -> Question:
    return Question(
        opening.name,
        opening.master,
        opening.shape,
        skew,
        opening.disk_kind,
        costs_of(opening.master, opening.disk_kind),
        heap_bytes_of(opening.master, opening.shape),
        opening.heap_bytes,
        usual_parallel(opening.disk_kind),
        misses,
        may_be_alone(opening.disk_kind),
    )
