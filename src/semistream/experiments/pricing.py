"""The virtual clock and the cost models, at any scale. The one place that knows the names of `semistream.cost`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from semistream.cost.auto import choose
from semistream.cost.calibration import Calibration
from semistream.cost.case import Case as ModelCase
from semistream.cost.disks import ProfileCosts
from semistream.cost.prices import PRICES, Prices, counted_seconds, prices_of
from semistream.cost.question import Question
from semistream.cost.tuner import best_rate
from semistream.experiments.case import INDEX_LOOPS, Case, Measured
from semistream.experiments.data import joined_on
from semistream.joins import JoinStats, Settings
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import Opening, heap_bytes_of
from semistream.joins.sides import shape_join
from semistream.master import Master
from semistream.master.disk.profiles import PROFILES, DiskProfile
from semistream.master.disk.simulated import makespan
from semistream.master.disk.stats import DiskStats


def scaled_profile(disk: str, latency_factor: float) -> DiskProfile:
    """The disk whose latencies shrink with the data; see scale.py.

    A block that shrank to some pages stands for one that is read by as many calls as the disk has room for, so streams that do not
    slow each other become one that is as fast as all of them.
    """
    profile = PROFILES[disk]
    streams = profile.queue_depth if profile.bandwidth == "per-stream" and latency_factor < 1 else 1
    return replace(
        profile,
        seek_s=latency_factor * profile.seek_s,
        rotation_s=latency_factor * profile.rotation_s,
        call_s=latency_factor * profile.call_s,
        bytes_per_s=streams * profile.bytes_per_s,
        bandwidth="shared" if latency_factor < 1 else profile.bandwidth,
    )


def scaled_prices(disk: str, scale: float) -> Prices:
    """The processor's work; what an iteration costs shrinks as an access does."""
    prices = prices_of(disk)
    return replace(
        prices,
        scan_step_s=scale * prices.scan_step_s,
        block_step_s=scale * prices.block_step_s,
        lookup_step_s=scale * prices.lookup_step_s,
        front_step_s=scale * prices.front_step_s,
    )


def seconds_on(disk: str, counted: Measured, case: Case) -> float:
    """What a run took on another disk than the one it was counted on: no count depends on the disk.

    Look-ups of an index loop, which are given to the disk together and are not scaled, keep all of its queue busy.
    """
    profile = scaled_profile(disk, case.latency_factor)
    if case.algorithm in INDEX_LOOPS:
        deep = 4 * profile.queue_depth
        length = counted.bytes // max(counted.calls, 1)
        together = makespan(PROFILES[disk], np.full(deep, length, np.int64), np.zeros(deep, np.int64))
        reading = counted.calls * together / deep
    else:
        reading = counted.calls * profile.call_s + counted.bytes / profile.bytes_per_s
    reading += counted.seeks * (profile.seek_s + profile.rotation_s)
    prices = scaled_prices(disk, case.scale)
    done = JoinStats(
        tuples=counted.answered,
        probes=counted.probes,
        front_probes=counted.front_probes,
        admitted=counted.admitted,
        rows=counted.rows,
        advances=counted.advances,
    )
    return float(counted_seconds(done, reading, prices, case.algorithm))


def disk_seconds(read: DiskStats, disk: str, *, latency_factor: float) -> float:
    """What these reads cost. With one arm it is a sum over what was counted; with a queue it is what the disk said."""
    if disk not in PROFILES or PROFILES[disk].queue_depth > 1:
        return read.seconds
    profile = scaled_profile(disk, latency_factor)
    waiting = read.seeks * (profile.seek_s + profile.rotation_s) + read.calls * profile.call_s
    return waiting + read.bytes / profile.bytes_per_s


def total_seconds(done: JoinStats, reading: float, case: Case) -> float:
    """Reading and the processor's work together; who was read but still waits is not counted as read yet."""
    prices = scaled_prices(case.disk, case.scale)
    return float(counted_seconds(replace(done, tuples=done.answered), reading, prices, case.algorithm))


def predicted_rate(case: Case, settings: Settings, master: Master, first: pa.RecordBatch) -> float | None:
    """What the model says a case reaches; None where it has nothing to say."""
    question = _question(case, master, first)
    point = question.point(case.memory_bytes, settings) if question is not None else None
    return point.rate_per_s if point is not None else None


def best_settings(
    case: Case, master: Master, first: pa.RecordBatch, *, effort: Literal["usual", "little"] = "usual"
) -> Settings | None:
    """What the tuner finds best; None where the models do not know such a stream."""
    question = _question(case, master, first)
    return best_rate(question, case.memory_bytes, effort=effort).settings if question is not None else None


def automatic(case: Case, opening: Opening, first: pa.RecordBatch) -> tuple[str, Settings]:
    """What `auto` chooses for an opening once it has seen some tuples, on the scaled disk of a case."""
    name = f"{case.disk} at {case.scale:g}"  # under which `auto` finds what that disk and its machine cost
    PROFILES[name] = scaled_profile(case.disk, case.scale)
    PRICES[name] = scaled_prices(case.disk, case.scale)
    chosen = choose(replace(opening, algorithm="auto", disk_kind=name), first)
    return chosen.name, chosen.settings


@dataclass(frozen=True)
class _ByPopularity(Question):
    """A master sorted by a key that numbers rows by popularity: X-HYBRID's order, with the index of layout "key"."""

    def case(self, memory_bytes: int, settings: Settings) -> ModelCase:
        return replace(super().case(memory_bytes, settings), layout="frequency")


def _question(case: Case, master: Master, first: pa.RecordBatch) -> Question | None:
    """What is asked of the models: Zipf streams over masters whose keys are unique, on a simulated disk."""
    unique = case.master.kind != "cloud" and case.master.rows_per_key == 1 and not case.master.key_skew
    if case.stream.kind not in ("zipf", "tpch") or not unique or case.disk not in PROFILES:
        return None
    shape = shape_join(first.schema, master, on=joined_on(case.master))
    profile = scaled_profile(case.disk, case.latency_factor)
    kind = _ByPopularity if case.stream.popularity == "in-order" else Question
    return kind(
        case.algorithm,
        master,
        shape,
        case.stream.exponent,
        case.disk,
        Calibration(ProfileCosts(profile), scaled_prices(case.disk, case.scale), {}, case.disk),
        heap_bytes_of(master, shape),
        string_bytes_of(shape, first),
        1,
        case.stream.misses,
    )
