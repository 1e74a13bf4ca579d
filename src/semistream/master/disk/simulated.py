"""A disk of any kind on any machine: real bytes, virtual time.

The device has `queue_depth` slots. A call takes the slot that is free first, waits for its latency (`call_s`, and
`seek_s` + `rotation_s` if it is a seek) beside the calls in the other slots, then transfers its bytes: in turn, over one
channel, or at full speed beside the others (`bandwidth`). With one slot this is the sum the papers use:

    seconds = seeks * (seek_s + rotation_s) + calls * call_s + bytes / bytes_per_s

The price depends on the calls alone, so the same batches cost the same on every machine.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.kernel import kernel
from semistream.master.disk.calls import LENGTH, SEEK, Calls
from semistream.master.disk.disk import CountingDisk
from semistream.master.disk.profiles import DiskProfile


class VirtualClock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        """Let time pass; threads that work on one clock work one after the other."""
        if not seconds >= 0.0:
            raise InvalidInputError(
                f"advance({seconds})", found="time that does not go forward", hint="Give seconds >= 0."
            )
        with self._lock:
            self.seconds += seconds


class SimulatedDisk(CountingDisk):
    """Takes the bytes from another disk and the time from a profile.

    `clock` is public: work that is not reading can be priced on it too.
    """

    def __init__(self, profile: DiskProfile, bytes_from: CountingDisk) -> None:
        super().__init__(profile.name, bytes_from.files)
        self.profile = profile
        self.clock = VirtualClock()
        self._bytes_from = bytes_from

    def fetch(self, calls: Calls) -> int:
        """See `CountingDisk.fetch`."""
        return self._bytes_from.fetch(calls)

    def release(self) -> None:
        """See `CountingDisk.release`."""
        self._bytes_from.close()

    def _seconds(self, calls: Calls, started: float) -> float:  # noqa: ARG002 - real time does not count here
        seconds = batch_seconds(self.profile, calls)
        self.clock.advance(seconds)
        return seconds


def batch_seconds(profile: DiskProfile, calls: Calls) -> float:
    """What a batch costs on a disk of this profile."""
    return makespan(profile, calls.row(LENGTH), calls.row(SEEK))


def makespan(profile: DiskProfile, lengths: NDArray[np.int64], seeks: NDArray[np.int64]) -> float:
    """What calls of these lengths, given together, cost; `seeks` is 1 where the arm moves."""
    return _makespan(
        lengths,
        seeks,
        profile.seek_s + profile.rotation_s,
        profile.call_s,
        profile.bytes_per_s,
        profile.bandwidth == "shared",
        np.zeros(profile.queue_depth),
    )


@kernel
def _makespan(
    length: NDArray[np.int64],
    seek: NDArray[np.int64],
    seek_s: float,
    call_s: float,
    bytes_per_s: float,
    shared: bool,
    slot_free_at: NDArray[np.float64],
) -> float:
    channel_free_at = 0.0
    end = 0.0
    for j in range(length.size):
        slot = 0
        for other in range(1, slot_free_at.size):
            if slot_free_at[other] < slot_free_at[slot]:
                slot = other
        ready = slot_free_at[slot] + call_s
        if seek[j]:
            ready += seek_s
        if shared:
            ready = max(ready, channel_free_at)
        done = ready + length[j] / bytes_per_s
        channel_free_at = done
        slot_free_at[slot] = done
        end = max(end, done)
    return end
