"""Choosing a disk by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from semistream.errors import InvalidInputError
from semistream.master.disk.descriptors import Mode
from semistream.master.disk.disk import CountingDisk, Disk
from semistream.master.disk.extents import LocalFile, PageFile, RemoteFile
from semistream.master.disk.local import LocalDisk
from semistream.master.disk.profiles import PROFILES
from semistream.master.disk.remote import ObjectDisk
from semistream.master.disk.simulated import SimulatedDisk

DiskKind: TypeAlias = Literal["direct", "buffered", "hdd-2007", "ssd-sata", "nvme", "object-store"]

DISK_KINDS: tuple[DiskKind, ...] = ("direct", "buffered", "hdd-2007", "ssd-sata", "nvme", "object-store")

_SIMULATED = "simulated:"


def open_disk(kind: DiskKind | str, files: Sequence[PageFile], *, threads: int | None = None) -> Disk:
    """A disk over page files; extents refer to them by their index.

    Args:
        kind: "direct", "buffered", or the name of a profile, with or without "simulated:" before it.
        files: Local files or remote ones. Remote ones are read by ranges, whether "direct" or "buffered" is asked for.
        threads: Most threads that read at once; by default chosen per batch. Direct reads use the kernel's queue and
            need threads only where there is none.

    Raises:
        InvalidInputError: An unknown kind, or local and remote files together.
    """
    if threads is not None and threads < 1:
        raise InvalidInputError(f"threads={threads}", found="no thread to read with", hint="Give 1 or more.")
    if kind == "direct":
        return _real("direct", files, threads)
    if kind == "buffered":
        return _real("buffered", files, threads)
    profile = PROFILES.get(kind.removeprefix(_SIMULATED))
    if profile is None:
        raise InvalidInputError(
            f"disk kind {kind!r}",
            found="no disk of that name",
            hint=f"Choose one of {', '.join(map(repr, DISK_KINDS))}; 'simulated:' may precede the last four.",
        )
    return SimulatedDisk(profile, _real("buffered", files, threads))


def _real(mode: Mode, files: Sequence[PageFile], threads: int | None) -> CountingDisk:
    local = [f for f in files if isinstance(f, LocalFile)]
    remote = [f for f in files if isinstance(f, RemoteFile)]
    if local and remote:
        raise InvalidInputError(
            f"a disk over {len(files)} files",
            found=f"{len(local)} local ones and {len(remote)} remote ones",
            hint="Open one disk for each place.",
        )
    if remote:
        return ObjectDisk(remote, threads=threads)
    return LocalDisk(local, mode=mode, threads=threads)
