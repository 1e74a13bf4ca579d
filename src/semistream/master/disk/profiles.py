"""Disks that can be simulated, each number with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DiskProfile:
    """What reading costs on a disk.

    Attributes:
        name: What users call it.
        seek_s: Moving the arm, on average; paid by calls that are seeks.
        rotation_s: Waiting for the sector, half a turn on average; paid with the seek.
        bytes_per_s: Transfer rate, of the device or of each stream (see `bandwidth`).
        call_s: What every call costs before its first byte.
        queue_depth: How many calls the device works on at once.
        bandwidth: "shared": one channel that calls take turns on; "per-stream": calls in flight do not slow each other.
    """

    name: str
    seek_s: float
    rotation_s: float
    bytes_per_s: float
    call_s: float
    queue_depth: int
    bandwidth: Literal["shared", "per-stream"] = "shared"


HDD_2007 = DiskProfile(
    name="hdd-2007",
    seek_s=8.5e-3,  # average read seek in the data sheets of 7200 rpm desktop disks of the time
    rotation_s=60 / 7200 / 2,  # half a turn at 7200 rpm, 4.17 ms
    bytes_per_s=60e6,  # over the whole surface: HD Tune on a Barracuda 7200.10 of 2007 averages 62 MB/s
    call_s=0.1e-3,  # command overhead; data sheets that name it say 0.1 to 0.5 ms
    queue_depth=1,  # one arm; the reordering of NCQ is part of no paper's cost model
)

SSD_SATA = DiskProfile(
    name="ssd-sata",
    seek_s=0.0,
    rotation_s=0.0,
    bytes_per_s=550e6,  # what SATA at 6 Gbit/s leaves after encoding and framing
    call_s=90e-6,  # about 11,000 reads/s of 4 KiB at queue depth 1, as data sheets of TLC drives give
    queue_depth=32,  # NCQ has 32 tags
)

NVME = DiskProfile(
    name="nvme",
    seek_s=0.0,
    rotation_s=0.0,
    bytes_per_s=3.4e9,  # sequential read of PCIe 3.0 x4 drives, near the 3.9 GB/s of the link
    call_s=80e-6,  # read latency of TLC flash and the controller: about 12,500 reads/s at depth 1
    queue_depth=64,  # reads in flight after which such drives gain little more
)

OBJECT_STORE = DiskProfile(
    name="object-store",
    seek_s=0.0,
    rotation_s=0.0,
    bytes_per_s=90e6,  # per request: AWS's guidance counts 85 to 90 MB/s for each concurrent request
    call_s=30e-3,  # first byte: Durner, Leis, Neumann (VLDB 2023) see about 30 ms as the usual case on S3
    queue_depth=32,  # what ObjectDisk keeps in flight
    bandwidth="per-stream",
)

PROFILES = {profile.name: profile for profile in (HDD_2007, SSD_SATA, NVME, OBJECT_STORE)}
