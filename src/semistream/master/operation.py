"""One attempt to make a version: a folder of its own for what it writes, so that failing leaves nothing behind.

Files of an operation are invisible until a manifest names them. If the operation fails, its folder goes; if the process
is killed, the folder stays unseen until vacuum finds it. No operation ever touches another one's files.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import ConcurrentChangeError, StoreError
from semistream.master.manifest import (
    MARKER,
    Manifest,
    is_claimed,
    list_versions,
    read_manifest,
    write_manifest,
    write_marker,
)
from semistream.master.storage import LocalStorage, Storage


@dataclass
class Operation:
    """Where an operation writes: page files and tables below `folder`, spilled rows below `scratch`."""

    storage: Storage
    folder: str
    scratch: Path
    _attempt: Manifest | None = None

    def commit(self, manifest: Manifest) -> None:
        """Make the version current, then drop what failed tasks wrote and it does not use."""
        if not is_claimed(self.storage):  # another first build failed and took its claim back
            write_marker(self.storage)
        self._check_written(manifest)
        self._attempt = manifest
        write_manifest(self.storage, manifest)
        used = manifest.files()
        with contextlib.suppress(OSError):  # the version is made; what stays, vacuum removes
            for stored in self.storage.list(self.folder):
                if stored.name not in used:
                    self.storage.delete(stored.name)

    def _check_written(self, manifest: Manifest) -> None:
        """What is about to become a version must be here: executors may have written elsewhere, vacuum too eagerly."""
        there = {stored.name for stored in self.storage.list(self.folder)}
        absent = sorted(
            name for name in manifest.files() if name.startswith(f"{self.folder}/") and name not in there
        )
        if (
            absent and max(list_versions(self.storage), default=0) < manifest.version
        ):  # or else we are just too late
            raise StoreError(
                f"making version {manifest.version} of {self.storage.location}",
                found=f"that {absent[0]} and {len(absent) - 1} other files are not there",
                hint="Use a path or URI that the driver and every executor share, and no vacuum while it is written.",
            )

    def is_committed(self) -> bool:
        """Whether the version was made, even if what came after that failed."""
        if self._attempt is None:
            return False
        try:
            made = read_manifest(self.storage, self._attempt.version)
        except StoreError:
            return False
        return made.data.table == self._attempt.data.table


@contextlib.contextmanager
def operation(storage: Storage) -> Iterator[Operation]:
    """Begin an operation on a store, or on a path that is to become one."""
    name = uuid.uuid4().hex
    root = Path(storage.root) if isinstance(storage, LocalStorage) else None
    missing = [path for path in (root, *root.parents) if not path.exists()] if root else []
    claimed = is_claimed(storage)
    # Rows are spilled beside the pages, where there must be room anyway; beside an object store there is only /tmp.
    scratch = root / "scratch" / name if root else Path(tempfile.mkdtemp(prefix="semistream-"))
    begun = Operation(storage, folder=f"pages/{name}", scratch=scratch)
    try:
        if not claimed:
            write_marker(storage)
        yield begun
    except BaseException as error:
        if not begun.is_committed():
            for stored in storage.list(begun.folder):
                storage.delete(stored.name)
            shutil.rmtree(scratch, ignore_errors=True)
            if not claimed and not isinstance(error, ConcurrentChangeError):
                _give_up_claim(storage)
            if root:
                folders = (begun.folder, "scratch", "pages", "versions")
                _remove_all_empty([*(root / name for name in folders), *missing])
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if root:
            _remove_all_empty([scratch.parent])


def _give_up_claim(storage: Storage) -> None:
    """Where no version was ever made and nobody else is at work, leave the path as it was found."""
    if all(stored.name == MARKER for stored in storage.list()):
        storage.delete(MARKER)


def _remove_all_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
