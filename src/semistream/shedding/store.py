"""Where shed tuples wait, durably, until the load falls.

A private directory of Arrow files, which any tool can read:

    shed-000000000007.arrow         whole: written aside, synced, then renamed
    shed-000000000008.arrow.part    never finished: whoever opens the store next removes it

Tuples come back oldest first. A file is removed when its tuples are answered, but not while one of the last two snapshots
counts on it: a crash may come before the last one is safe itself. A snapshot says which files held shed tuples
when it was taken. Files that came later hold tuples that the snapshot has, or that the stream will bring again; they are removed
when it is resumed.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from semistream.errors import InvalidInputError, NoSpaceError, StoreError

_NAME = re.compile(r"shed-(\d{12})\.arrow")
_PART = ".part"
_BATCH_ROWS = 1 << 12
_WRITE_SHARE, _READ_SHARE = 0.5, 0.25  # of the store's memory; the rest is for putting small batches together


@dataclass(frozen=True)
class ShedFile:
    """A file, from which tuples are to be read from this row of this batch on; `rows` are left."""

    name: str
    rows: int
    batch: int = 0
    row: int = 0


class ShedStore:
    """Tuples that were put away: `tuples` of them."""

    def __init__(self, folder: Path, schema: pa.Schema, buffer_bytes: int) -> None:
        self.folder, self.schema = folder, schema
        self.write_bytes, self.read_bytes = int(_WRITE_SHARE * buffer_bytes), int(_READ_SHARE * buffer_bytes)
        self.tuples = 0
        self.files_written = self.bytes_written = self.bytes_read = 0
        self._unwritten: deque[pa.RecordBatch] = deque()
        self._unwritten_bytes = 0
        self._files: deque[ShedFile] = deque()  # with tuples to come back, oldest first
        self._open: pa.RecordBatch | None = None  # of the first file, the batch it is at
        self._read: list[str] = []  # all their tuples were given back
        self._offered: deque[tuple[str, float]] = deque()  # and offered; answered by this advance
        self._held: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        self._next = 0

    @staticmethod
    def open(folder: str | Path, schema: pa.Schema, *, buffer_bytes: int, resume: str = "") -> ShedStore:
        """A store in a directory that is ours alone; `resume` is what a snapshot says of it."""
        store = ShedStore(Path(folder), schema, buffer_bytes)
        try:
            store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = {entry.name for entry in store.folder.iterdir()}
        except OSError as error:
            raise StoreError(
                f"shed_to={str(folder)!r}", found=str(error), hint="Give a directory that can be written."
            ) from error
        store._adopt(found, _parse(resume) if resume else None)
        return store

    def _adopt(self, found: set[str], resumed: list[ShedFile] | None) -> None:
        files = resumed or []
        for name in [
            name for name in found if _NAME.fullmatch(name.removesuffix(_PART)) and name.endswith(_PART)
        ]:
            (self.folder / name).unlink()
        whole = {name for name in found if _NAME.fullmatch(name)}
        lost = [file.name for file in files if file.name not in whole]
        if lost:
            raise StoreError(
                f"resuming with the shed tuples in {self.folder}",
                found=f"no {lost[0]}",
                hint="Give the directory that the snapshot was taken with.",
            )
        if whole and resumed is None:
            raise StoreError(
                f"shed_to={str(self.folder)!r}",
                found=f"{len(whole)} files of tuples that another join has shed",
                hint="Resume from a snapshot of that join, give another directory, or remove it if they are not needed.",
            )
        for name in whole - {file.name for file in files}:
            (self.folder / name).unlink()
        self._files.extend(files)
        self.tuples = sum(file.rows for file in files)
        self._held = (frozenset(), frozenset(file.name for file in files))  # until the next snapshot is safe
        self._next = max((int(match[1]) + 1 for name in whole if (match := _NAME.fullmatch(name))), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._unwritten_bytes + (self._open.nbytes if self._open is not None else 0)

    def put(self, batch: pa.RecordBatch) -> None:
        """Put tuples away, behind those that are here."""
        if self._unwritten_bytes + batch.nbytes > self.write_bytes:
            self.flush()
        self._unwritten.append(batch)
        self._unwritten_bytes += batch.nbytes
        self.tuples += len(batch)
        if self._unwritten_bytes > self.write_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory as a file."""
        if not self._unwritten:
            return
        name = f"shed-{self._next:012d}.arrow"
        aside = self.folder / (name + _PART)
        try:
            rows = self._write(aside)
            aside.rename(self.folder / name)
            _sync(self.folder)
        except OSError as error:
            aside.unlink(missing_ok=True)
            kind = NoSpaceError if error.errno == errno.ENOSPC else StoreError
            raise kind(
                f"shedding to {self.folder}", found=str(error), hint="Give shed_to= a disk with room."
            ) from error
        self._files.append(ShedFile(name, rows))
        self._next += 1
        self.files_written += 1
        self._unwritten.clear()
        self._unwritten_bytes = 0

    def _write(self, path: Path) -> int:
        rows = 0
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with pa.ipc.new_file(file, self.schema) as writer:
                for batch in _together(self._unwritten, self.read_bytes):
                    writer.write_batch(batch)
                    rows += len(batch)
            file.flush()
            os.fsync(descriptor)
            self.bytes_written += file.tell()
        return rows

    def take(self, most: int) -> pa.RecordBatch | None:
        """The tuples that were put away first, some of them; None where there are none."""
        batch = self._from_file(most) if self._files else self._from_memory(most)
        if batch is not None:
            self.tuples -= len(batch)
        return batch

    def _from_memory(self, most: int) -> pa.RecordBatch | None:
        if not self._unwritten:
            return None
        batch = self._unwritten.popleft()
        self._unwritten_bytes -= batch.nbytes
        if len(batch) > most:
            rest = batch.slice(most)
            self._unwritten.appendleft(rest)
            self._unwritten_bytes += rest.nbytes
        return batch.slice(0, most)

    def _from_file(self, most: int) -> pa.RecordBatch:
        file = self._files[0]
        if self._open is None:
            self._open = self._load(file)
        batch = self._open.slice(file.row, most)
        left = replace(file, rows=file.rows - len(batch), row=file.row + len(batch))
        if left.row == len(self._open):
            left = replace(left, batch=file.batch + 1, row=0)
            self._open = None
        if left.rows:
            self._files[0] = left
        else:
            self._files.popleft()
            self._read.append(file.name)
        return batch

    def _load(self, file: ShedFile) -> pa.RecordBatch:
        path = self.folder / file.name
        try:
            with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
                if not reader.schema.equals(self.schema):
                    raise pa.ArrowInvalid(f"tuples with {reader.schema}, which is not the stream's schema")
                batch = reader.get_batch(file.batch)
                if file.row >= len(batch):
                    raise pa.ArrowInvalid(f"{len(batch)} tuples where there were more than {file.row}")
        except (OSError, ValueError) as error:
            raise StoreError(
                f"the shed tuples in {path}", found=str(error), hint="Resume from a snapshot that has them."
            ) from error
        self.bytes_read += batch.nbytes
        return batch

    def settle(self, advances: float, bound: int) -> None:
        """Remove files whose tuples are answered.

        All that were given back have been offered by now, after so many advances, and are answered after `bound` more.
        """
        self._offered.extend((name, advances + bound) for name in self._read)
        self._read.clear()
        if self._offered and self._offered[0][1] <= advances:
            self.flush()  # a tuple that came back may have been put away again
        while self._offered and self._offered[0][1] <= advances:
            self._remove(self._offered.popleft()[0])

    def _remove(self, name: str) -> None:
        if name not in self._held[0] | self._held[1]:
            (self.folder / name).unlink(missing_ok=True)

    def mark(self) -> str:
        """For a snapshot: which files hold tuples. They stay until two later snapshots are taken."""
        held = {file.name for file in self._files} | set(self._read) | {name for name, _ in self._offered}
        before = self._held[0]
        self._held = (self._held[1], frozenset(file.name for file in self._files))
        for name in before - held:
            self._remove(name)
        return json.dumps([asdict(file) for file in self._files])

    def unwritten(self) -> list[pa.RecordBatch]:
        """Tuples that are in no file yet: a snapshot has them itself."""
        return list(self._unwritten)

    def close(self) -> None:
        """Nothing waits any more: remove what no snapshot counts on."""
        for name in [*self._read, *(name for name, _ in self._offered)]:
            self._remove(name)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def _parse(resume: str) -> list[ShedFile]:
    """What `mark` gave, checked: it may have been on a disk since."""
    try:
        files = [ShedFile(**entry) for entry in json.loads(resume or "[]")]
    except (ValueError, TypeError) as error:
        raise _bad(resume) from error
    for file in files:
        numbers = (file.rows, file.batch, file.row)
        if not isinstance(file.name, str) or not _NAME.fullmatch(file.name):
            raise _bad(resume)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise _bad(resume)
    return files


def _bad(resume: str) -> InvalidInputError:
    return InvalidInputError(
        "resuming a join", found=f"{resume[:80]!r} for its shed tuples", hint="Pass what snapshot() gave."
    )


def _together(
    batches: Iterator[pa.RecordBatch] | deque[pa.RecordBatch], most: int
) -> Iterator[pa.RecordBatch]:
    """Batches of so many bytes, or of _BATCH_ROWS tuples, where that is less."""
    some: list[pa.RecordBatch] = []
    rows = nbytes = 0
    for batch in batches:
        each = max(1, min(_BATCH_ROWS, most * len(batch) // max(batch.nbytes, 1)))
        for start in range(0, len(batch), each):
            piece = batch.slice(start, each)
            if some and (rows + len(piece) > _BATCH_ROWS or nbytes + piece.nbytes > most):
                yield pa.concat_batches(some)
                some, rows, nbytes = [], 0, 0
            some.append(piece)
            rows, nbytes = rows + len(piece), nbytes + piece.nbytes
    if some:
        yield pa.concat_batches(some)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
