"""Where a store's files are: a local directory, or an object store reached through pyarrow.fs.

Both give the same operations. Page files have names never used before and are invisible until a manifest names
them, so only one operation must be atomic: putting a manifest that does not exist yet.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.fs as pafs

from semistream.errors import ConcurrentChangeError, InvalidInputError, NoSpaceError, StoreError
from semistream.master.disk import LocalFile, RemoteFile

_PART_BYTES = 8 << 20
_WRITTEN_WITHIN_S = (0.05, 0.1, 0.2, 0.4, 0.8)  # a small object, in some looks
_ASIDE = ".semistream-aside"  # ends the names of files that are written under another name than their own


@dataclass(frozen=True)
class StoredFile:
    """A file of a store as its directory lists it."""

    name: str
    bytes: int
    modified: datetime


class Upload(Protocol):
    """A file being written: `write` any number of times, then `close`, or `abort`."""

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end."""

    def close(self) -> None:
        """Make what was written durable."""

    def abort(self) -> None:
        """Remove what was written."""


class Storage(Protocol):
    """The files of one store, by names relative to it, such as ``versions/00000001.json``."""

    @property
    def location(self) -> str:
        """Where the store is, as it was given."""

    def upload(self, name: str) -> Upload:
        """Begin a file that does not exist yet."""

    def put_new(self, name: str, data: bytes) -> None:
        """Create a whole file at once, durable before this returns; an existing one is a ConcurrentChangeError."""

    def claim(self, name: str, data: bytes) -> None:
        """Create a small file at once, to be synced by who goes by it; an existing one is a ConcurrentChangeError.

        Before that the machine may lose power, and the file be there with nothing in it, or with zeros.
        """

    def claimed(self, name: str) -> bytes | None:
        """All bytes of such a file; None where they were lost with the power. FileNotFoundError where there is none."""

    def sync(self, name: str) -> None:
        """Make a file durable, whoever wrote it."""

    def get(self, name: str) -> bytes:
        """All bytes of a file; FileNotFoundError where there is none."""

    def list(self, folder: str = "") -> list[StoredFile]:
        """Every file below a folder of the store, sorted by name; empty where there is no such folder."""

    def is_empty(self) -> bool:
        """Whether there is nothing at all at the location, known without listing everything."""

    def delete(self, name: str) -> None:
        """Remove a file; one that is gone already is fine."""

    def file(self, name: str) -> LocalFile | RemoteFile:
        """How a disk reads a file."""


def open_storage(path: str | os.PathLike[str], *, filesystem: pafs.FileSystem | None = None) -> Storage:
    """The storage at a local path, at a URI such as ``s3://bucket/master``, or at a path of a given file system."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(text, str) or not text:
        raise InvalidInputError(f"path={path!r}", found="no path", hint="Give a directory or a URI.")
    if filesystem is None and "://" not in text:
        return LocalStorage(_absolute(text), location=text)
    if filesystem is None:
        try:
            filesystem, text = pafs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInputError(
                f"path={_public(text)!r}",
                found=_public(str(error)),
                hint="Give a local directory or a URI that pyarrow.fs knows.",
            ) from error
    if isinstance(filesystem, pafs.LocalFileSystem):
        return LocalStorage(_absolute(text), location=os.fspath(path))
    return ObjectStorage(filesystem, text.rstrip("/"), location=_public(os.fspath(path)))


@dataclass(frozen=True)
class LocalStorage:
    """A directory of this machine, or of a file system that every executor mounts."""

    root: str
    location: str

    def upload(self, name: str) -> Upload:
        """Begin a file that does not exist yet."""
        return self._begun(self._path(name))

    def _begun(self, path: Path) -> _LocalUpload:
        with explained(f"writing {path}"):
            _make_directory(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        return _LocalUpload(path, descriptor, Path(self.root))

    def put_new(self, name: str, data: bytes) -> None:
        """Create a whole file at once: written aside, synced, then linked to its name, which fails if it is taken."""
        path = self._path(name)
        with self._aside(path, data) as upload, explained(f"writing {path}"):
            upload.sync()
            _link(upload.path, path)
            _sync(path.parent)

    def claim(self, name: str, data: bytes) -> None:
        """Create a small file at once."""
        path = self._path(name)
        with self._aside(path, data) as upload, explained(f"writing {path}"):
            upload.release()  # where the file system is mounted elsewhere too, others see nothing before that
            _link(upload.path, path)

    def claimed(self, name: str) -> bytes | None:
        """All bytes of such a file: it gets its name when they are in it, and only a lost power takes them out again."""
        data = self.get(name)
        return data if data.strip(b"\0") else None

    def sync(self, name: str) -> None:
        """Make a file durable, and its name."""
        path = self._path(name)
        with explained(f"writing {path}"):
            try:
                _sync(path)
            except OSError:
                # A failed write is told once; from then on the kernel takes the file for written. So it is written anew.
                with self._aside(path, path.read_bytes()) as upload:
                    upload.sync()
                    upload.path.replace(path)
            _sync(path.parent)

    @contextlib.contextmanager
    def _aside(self, path: Path, data: bytes) -> Iterator[_LocalUpload]:
        """A file written under another name than its own, and gone in the end."""
        upload = self._begun(path.with_name(f".{path.name}.{uuid.uuid4().hex}{_ASIDE}"))
        try:
            upload.write(data)
            yield upload
        finally:
            upload.abort()

    def get(self, name: str) -> bytes:
        """All bytes of a file."""
        return self._path(name).read_bytes()

    def list(self, folder: str = "") -> list[StoredFile]:
        """Every file below a folder of the store, sorted by name."""
        root = Path(self.root)
        found = []
        for directory, _, names in os.walk(root / folder, onerror=_unless_gone):
            for name in names:
                path = Path(directory) / name
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    modified = datetime.fromtimestamp(status.st_mtime, tz=UTC)
                    found.append(StoredFile(path.relative_to(root).as_posix(), status.st_size, modified))
        return sorted(found, key=lambda stored: stored.name)

    def is_empty(self) -> bool:
        """Whether there is nothing at the location but what operations that died left before there was a store."""
        try:
            with os.scandir(self.root) as entries:
                names = [entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return True
        # Listing everything could take for ever in a directory that is not ours.
        ours = all(name.endswith(_ASIDE) or name in ("pages", "scratch", "versions") for name in names)
        return ours and all(map(is_of_operation, (stored.name for stored in self.list())))

    def delete(self, name: str) -> None:
        """Remove a file, and the directory it leaves empty."""
        path = self._path(name)
        path.unlink(missing_ok=True)
        _remove_if_empty(path.parent, Path(self.root))

    def file(self, name: str) -> LocalFile:
        """How a disk reads a file."""
        return LocalFile(str(self._path(name)))

    def _path(self, name: str) -> Path:
        return Path(self.root) / name


@dataclass
class _LocalUpload:
    path: Path
    descriptor: int
    root: Path

    def write(self, data: bytes | memoryview) -> None:
        with explained(f"writing {self.path}"):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]

    def close(self) -> None:
        with explained(f"writing {self.path}"):
            self.sync()
            _sync(self.path.parent)

    def sync(self) -> None:
        """Make its bytes durable, though not yet its name."""
        os.fsync(self.descriptor)
        self.release()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self.release()
        self.path.unlink(missing_ok=True)
        _remove_if_empty(self.path.parent, self.root)

    def release(self) -> None:
        """Close the descriptor once: its number may be another file's afterwards."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


@dataclass(frozen=True)
class ObjectStorage:
    """An object store: a file appears whole when its upload ends, and there is no rename.

    pyarrow.fs has no conditional put, so two writers of one store at the same instant are not kept apart here as they
    are on a local disk; readers are never affected.
    """

    filesystem: pafs.FileSystem
    root: str
    location: str

    def upload(self, name: str) -> Upload:
        """Begin a file that does not exist yet."""
        path = f"{self.root}/{name}"
        with explained(f"writing {self.location}/{name}"):
            return _ObjectUpload(
                self.filesystem, path, self.filesystem.open_output_stream(path, buffer_size=_PART_BYTES)
            )

    def put_new(self, name: str, data: bytes) -> None:
        """Create a whole file at once: an object becomes visible only when it is complete."""
        path = f"{self.root}/{name}"
        if self.filesystem.get_file_info(path).type != pafs.FileType.NotFound:
            raise ConcurrentChangeError(
                f"writing {self.location}/{name}",
                found="an object of that name",
                hint="Another writer was faster: refresh() and try again.",
            )
        upload = self.upload(name)
        try:
            upload.write(data)
            upload.close()
        except BaseException:
            # Left alone, the stream would be closed, and the object complete, whenever it is collected.
            upload.abort()
            raise

    def claim(self, name: str, data: bytes) -> None:
        """Create a small file at once."""
        self.put_new(name, data)

    def claimed(self, name: str) -> bytes | None:
        """All bytes of such an object. Some stores show it empty while it is written: that is no lost power."""
        for wait_s in _WRITTEN_WITHIN_S:
            if data := self.get(name):
                return data
            time.sleep(wait_s)
        return self.get(name)

    def sync(self, name: str) -> None:
        """An object that is visible is durable."""

    def get(self, name: str) -> bytes:
        """All bytes of a file."""
        with self.filesystem.open_input_stream(f"{self.root}/{name}") as stream:
            return bytes(stream.read())

    def list(self, folder: str = "") -> list[StoredFile]:
        """Every file below a folder of the store, sorted by name."""
        selector = pafs.FileSelector(
            f"{self.root}/{folder}".rstrip("/"), recursive=True, allow_not_found=True
        )
        found = [
            StoredFile(info.path[len(self.root) + 1 :], info.size, info.mtime or datetime.now(UTC))
            for info in self.filesystem.get_file_info(selector)
            if info.type == pafs.FileType.File
        ]
        return sorted(found, key=lambda stored: stored.name)

    def is_empty(self) -> bool:
        """Whether there is no object at the location; pyarrow leaves directories behind where it deletes some."""
        entries = self.filesystem.get_file_info(pafs.FileSelector(self.root, allow_not_found=True))
        return all(info.type == pafs.FileType.Directory for info in entries) and not self.list()

    def delete(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(f"{self.root}/{name}")

    def file(self, name: str) -> RemoteFile:
        """How a disk reads a file."""
        return RemoteFile(self.filesystem, f"{self.root}/{name}")


@dataclass
class _ObjectUpload:
    filesystem: pafs.FileSystem
    path: str
    stream: pa.NativeFile

    def write(self, data: bytes | memoryview) -> None:
        with explained(f"writing {self.path}"):
            self.stream.write(data)

    def close(self) -> None:
        with explained(f"writing {self.path}"):
            self.stream.close()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(OSError):
            self.filesystem.delete_file(self.path)


def _make_directory(path: Path) -> None:
    """Make a directory and those above it, their names durable as well."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _remove_if_empty(folder: Path, root: Path) -> None:
    """Remove a folder of a store that has nothing in it; the store's own directory is not ours to remove."""
    if folder != root:
        with contextlib.suppress(OSError):
            folder.rmdir()


def is_of_operation(name: str) -> bool:
    """Whether a file is one that an operation writes before its version is made: nothing else may be cleaned away."""
    return re.fullmatch(r"(pages|scratch)/[0-9a-f]{32}/.*", name) is not None or name.endswith(_ASIDE)


def _unless_gone(error: OSError) -> None:
    """A directory that cannot be listed must not look like an empty one."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise StoreError(
            f"listing {error.filename}", found=str(error), hint="Check your rights to it and try again."
        ) from error


def _public(uri: str) -> str:
    """A URI without the credentials that may be in it: it goes into messages, logs and notebooks."""
    return re.sub(r"(\w+://)[^/@\s]*@", r"\1", uri)


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow links


def _link(aside: Path, path: Path) -> None:
    """Give a file its name, unless that is taken."""
    try:
        os.link(aside, path)
    except FileExistsError as error:
        raise ConcurrentChangeError(
            f"writing {path}",
            found="a file of that name",
            hint="Another writer was faster: refresh() and try again.",
        ) from error


def _sync(path: Path) -> None:
    """Make the bytes of a file durable, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def explained(asked: str) -> Iterator[None]:
    """Turn what the operating system says of a failed write into an error of ours."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NoSpaceError(
                asked,
                found=f"no room ({error.strerror})",
                hint="Free some space or choose another path; nothing was changed.",
            ) from error
        raise StoreError(asked, found=str(error), hint="Check the path and your rights to it.") from error
