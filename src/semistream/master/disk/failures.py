"""How a read that went wrong is told: which file, which bytes of it, what was found, what to do."""

from __future__ import annotations

import os

from semistream.config import format_bytes
from semistream.errors import CorruptPageError, StoreError
from semistream.master.disk.calls import Calls
from semistream.master.disk.extents import PageFile

_RESTORE = "Build the master again, or restore this file from a copy."


def cannot_open(file: PageFile, error: OSError) -> StoreError:
    """A file that is missing or locked away."""
    if isinstance(error, FileNotFoundError):
        hint = "The store lost a file, or its version was vacuumed: open the master again, or build it again."
    elif isinstance(error, PermissionError):
        hint = "Let the user this process runs as read the file."
    else:
        hint = "Check that the store's file system is reachable."
    return StoreError(f"opening page file {file.path}", found=_reason(error), hint=hint)


def cannot_read(file: PageFile, offset: int, length: int, error: OSError) -> StoreError:
    """A device or a store that refused."""
    return StoreError(
        _asked(file, offset, length),
        found=_reason(error),
        hint="Check the health of the disk or store under it.",
    )


def truncated(file: PageFile, offset: int, length: int, end: int) -> CorruptPageError:
    """A file that ends too early."""
    return CorruptPageError(
        _asked(file, offset, length), found=f"a file that ends at byte {end}; it was truncated", hint=_RESTORE
    )


def corrupt(file: PageFile, calls: Calls, extent: int) -> CorruptPageError:
    """A page whose checksum does not match."""
    offset, length = int(calls.extents.offset[extent]), int(calls.extents.length[extent])
    return CorruptPageError(
        _asked(file, offset, length),
        found="a page whose checksum does not match: its bytes changed, or belong elsewhere",
        hint=_RESTORE,
    )


def _asked(file: PageFile, offset: int, length: int) -> str:
    return f"reading {format_bytes(length)} of page file {file.path} at offset {offset}"


def _reason(error: OSError) -> str:
    if error.errno is None:  # pyarrow raises some without
        return str(error).rstrip(".") or type(error).__name__
    return f"{os.strerror(error.errno)} (errno {error.errno})"
