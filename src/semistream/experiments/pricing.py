"""The virtual clock: what a run counted, in seconds. The one place that knows the names of `semistream.cost`."""

from __future__ import annotations

from dataclasses import replace

from semistream.cost import PRICES, counted_seconds
from semistream.experiments.case import Case
from semistream.joins import JoinStats
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
    """Reading and the processor's work together."""
    return float(counted_seconds(done, reading, PRICES[case.disk]))
