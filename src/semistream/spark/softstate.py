"""What the Python workers of a host share: front stages, as files in memory that every worker maps.

    <shared memory>/semistream-<user>/              0700, the user's own
        <jvm>-<query>/                              one for each query of a running JVM
            <enrichment>.front                      replaced at once, never changed

It is soft: losing any of it costs speed, never a row. A worker maps a file copy-on-write, so what nobody changes is in
memory once for all of them. Nothing is trusted: a file must be the user's own, in a directory that is the user's alone,
be of the very master, columns and size that are asked for, and have the checksum it was written with when it is mapped.
Numbers only are read from it; nothing in it is ever executed. Nobody writes into a file that is there: it is replaced.

What a JVM that is gone has left behind is removed when the next worker starts; what a query has, when it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from semistream.master.disk.checksum import checksum

Arrays = Mapping[str, NDArray[np.generic]]
_MAGIC = "semistream front stage 2"
_HEADER_BYTES = 4096
_ALIGNMENT = 4096
_PIECE_BYTES = 1 << 20
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_IDLE_S = 3600.0  # a query's state that nobody has looked at for so long belongs to a query that has ended
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - below it a directory of the user's own is made, and checked


@dataclass(frozen=True)
class Process:
    """A process of this host, told from a later one with the same number by when it began."""

    pid: int
    began: int

    @staticmethod
    def of(pid: int) -> Process | None:
        """The process with this number, if there is one and the system tells."""
        fields = _stat_fields(pid)
        return None if fields is None else Process(pid, int(fields[19]))

    @staticmethod
    def running_this_worker() -> Process:
        """The executor's JVM: the parent of PySpark's daemon, whose child a worker is; else what is nearest to it."""
        fields = _stat_fields(os.getppid())
        jvm = Process.of(int(fields[1])) if fields is not None else None
        return jvm or Process.of(os.getppid()) or Process(os.getpid(), 0)

    @property
    def name(self) -> str:
        """As a directory is named."""
        return f"{self.pid}.{self.began}"

    @staticmethod
    def is_gone(name: str) -> bool:
        """Whether the process that a directory is named after is no more."""
        pid, _, began = name.partition(".")
        if not (pid.isdigit() and began.isdigit()):
            return False
        return Path("/proc/self").exists() and Process.of(int(pid)) != Process(int(pid), int(began))


@dataclass(frozen=True)
class SoftState:
    """The shared state of one query on this host."""

    folder: Path

    @staticmethod
    def open(query: str, root: Path | None = None) -> SoftState | None:
        """The state of a query, in a private directory; None where there can be none."""
        base = private_folder(root)
        if base is None or not re.fullmatch(r"[0-9a-zA-Z-]{1,64}", query):
            return None
        folder = base / f"{Process.running_this_worker().name}-{query}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            os.utime(folder)
        return SoftState(folder) if _is_private(folder) else None

    def generation(self, name: str) -> int:
        """A number that changes whenever a state is replaced; 0 where there is none."""
        try:
            return (self.folder / f"{name}.front").stat().st_mtime_ns
        except OSError:
            return 0

    def publish(self, name: str, digest: str, arrays: Arrays) -> int:
        """Replace a state, at once for everybody; gives its generation, 0 if it could not be written."""
        aside = self.folder / f".{name}.{uuid.uuid4().hex}"
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                _write(file, digest, arrays)
            generation = aside.stat().st_mtime_ns
            aside.rename(self.folder / f"{name}.front")
        except OSError:  # no room, or the directory was removed: soft
            with contextlib.suppress(OSError):
                aside.unlink()
            return 0
        return generation

    def load(self, name: str, digest: str) -> dict[str, NDArray[np.generic]] | None:
        """A state of exactly this kind, mapped copy-on-write; None where there is none that can be trusted."""
        with contextlib.suppress(*_UNREADABLE):
            descriptor = os.open(self.folder / f"{name}.front", os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                if not _is_own_file(os.fstat(file.fileno())):
                    return None
                return _read(file, digest)
        return None

    def remove(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def private_folder(root: Path | None = None) -> Path | None:
    """The directory of this user, made if need be; None where it cannot be private."""
    base = root or (_SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir()))
    folder = base / f"semistream-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            raise
        except OSError:
            return None
    return folder if _is_private(folder) else None


def sweep(root: Path | None = None) -> None:
    """Remove what JVMs that are gone left behind, and what nobody has used for long."""
    base = private_folder(root)
    if base is None:
        return
    for folder in _folders(base):
        with contextlib.suppress(OSError):
            idle = time.time() - folder.stat().st_mtime > _IDLE_S
            if idle or Process.is_gone(folder.name.partition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)


def forget(*, query: str | None = None, jvm: Process | None = None, root: Path | None = None) -> None:
    """Remove what a query that has ended, or a JVM that is about to end, had on this host."""
    base = private_folder(root)
    for folder in _folders(base) if base is not None else ():
        owner, _, of_query = folder.name.partition("-")
        if of_query == query or (jvm is not None and owner == jvm.name):
            shutil.rmtree(folder, ignore_errors=True)


def digest_of(parts: object) -> str:
    """What a state must agree in, in one word."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _write(file: BinaryIO, digest: str, arrays: Arrays) -> None:
    places: dict[str, dict[str, int | str]] = {}
    at = _HEADER_BYTES
    for name, array in arrays.items():
        places[name] = {
            "at": at,
            "dtype": array.dtype.str,
            "count": array.size,
            "sum": _sum(_pieces_of(array)),
        }
        at += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps({"magic": _MAGIC, "digest": digest, "arrays": places}).encode()
    if len(header) > _HEADER_BYTES:
        raise OSError("the header is too long")
    file.write(header.ljust(_HEADER_BYTES))
    for name, array in arrays.items():
        file.seek(int(places[name]["at"]))
        file.write(_bytes(array).data)
    file.truncate(at)


def _read(file: FileIO, digest: str) -> dict[str, NDArray[np.generic]] | None:
    """Sums are taken of what is read piece by piece: what is mapped takes memory only from when it is used."""
    header = json.loads(file.read(_HEADER_BYTES).decode())
    if header["magic"] != _MAGIC or header["digest"] != digest:
        return None
    kinds = {name: np.dtype(str(place["dtype"])) for name, place in header["arrays"].items()}
    for name, place in header["arrays"].items():
        if kinds[name].hasobject:
            return None
        file.seek(int(place["at"]))
        if _sum(_pieces(file, int(place["count"]) * kinds[name].itemsize)) != place["sum"]:
            return None
    mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return {
        str(name): np.frombuffer(
            mapped, dtype=kinds[name], count=int(place["count"]), offset=int(place["at"])
        )
        for name, place in header["arrays"].items()
    }


def _sum(pieces: Iterable[NDArray[np.uint8]]) -> int:
    total = 1
    for piece in pieces:
        total = checksum(piece, seed=total)
    return total


def _pieces(file: FileIO, count: int) -> Iterator[NDArray[np.uint8]]:
    buffer = np.empty(min(count, _PIECE_BYTES), dtype=np.uint8)
    for begin in range(0, count, _PIECE_BYTES):
        piece = buffer[: min(_PIECE_BYTES, count - begin)]
        if file.readinto(piece.data) != len(piece):
            raise ValueError("the file ends too early")
        yield piece


def _pieces_of(array: NDArray[np.generic]) -> Iterator[NDArray[np.uint8]]:
    whole = _bytes(array)
    for begin in range(0, len(whole), _PIECE_BYTES):
        yield whole[begin : begin + _PIECE_BYTES]


def _bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _folders(base: Path) -> Iterator[Path]:
    try:
        yield from [Path(entry) for entry in os.scandir(base) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _is_own_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _stat_fields(pid: int) -> list[str] | None:
    """What /proc tells of a process, from its state on: the name before it may hold blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
