"""The virtual clock and the cost models, at any scale. The one place that knows the names of `semistream.cost`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from semistream.cost.calibration import Calibration
from semistream.cost.case import Case as ModelCase
from semistream.cost.disks import ProfileCosts
from semistream.cost.prices import counted_seconds, prices_of
from semistream.cost.question import Question
from semistream.cost.tuner import best_rate
from semistream.experiments.case import Case
from semistream.experiments.data import joined_on
from semistream.joins import JoinStats, Settings
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import heap_bytes_of
from semistream.joins.sides import shape_join
from semistream.master import Master
from semistream.master.disk.profiles import PROFILES, DiskProfile
from semistream.master.disk.stats import DiskStats


def scaled_profile(disk: str, latency_factor: float) -> DiskProfile:
    """The disk whose latencies shrink with the data; see scale.py."""
    profile = PROFILES[disk]
    return replace(
        profile,
        seek_s=latency_factor * profile.seek_s,
        rotation_s=latency_factor * profile.rotation_s,
        call_s=latency_factor * profile.call_s,
    )


def disk_seconds(read: DiskStats, disk: str, *, latency_factor: float) -> float:
    """What these reads cost. With one arm it is a sum over what was counted; with a queue it is what the disk said."""
    if disk not in PROFILES or PROFILES[disk].queue_depth > 1:
        return read.seconds
    profile = scaled_profile(disk, latency_factor)
    waiting = read.seeks * (profile.seek_s + profile.rotation_s) + read.calls * profile.call_s
    return waiting + read.bytes / profile.bytes_per_s


def total_seconds(done: JoinStats, reading: float, case: Case) -> float:
    """Reading and the processor's work together; who was read but still waits is not counted as read yet."""
    return float(counted_seconds(replace(done, tuples=done.answered), reading, prices_of(case.disk)))


def predicted_rate(case: Case, settings: Settings, master: Master, first: pa.RecordBatch) -> float | None:
    """What the model says a case reaches; None where it has nothing to say."""
    question = _question(case, master, first)
    point = question.point(case.memory_bytes, settings) if question is not None else None
    return point.rate_per_s if point is not None else None


def best_settings(case: Case, master: Master, first: pa.RecordBatch) -> Settings | None:
    """What the tuner finds best; None where the models do not know such a stream."""
    question = _question(case, master, first)
    return best_rate(question, case.memory_bytes).settings if question is not None else None


@dataclass(frozen=True)
class _ByPopularity(Question):
    """A master sorted by a key that numbers rows by popularity: X-HYBRID's order, with the index of layout "key"."""

    def case(self, memory_bytes: int, settings: Settings) -> ModelCase:
        return replace(super().case(memory_bytes, settings), layout="frequency")


def _question(case: Case, master: Master, first: pa.RecordBatch) -> Question | None:
    """What is asked of the models: Zipf streams over masters whose keys are unique, on a simulated disk."""
    unique = case.master.kind == "keys" and case.master.rows_per_key == 1 and not case.master.key_skew
    if case.stream.kind != "zipf" or not unique or case.disk not in PROFILES:
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
        Calibration(ProfileCosts(profile), prices_of(case.disk), {}, case.disk),
        heap_bytes_of(master, shape),
        string_bytes_of(shape, first),
        1,
    )
