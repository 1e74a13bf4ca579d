"""A full disk: a clear error, and everything as it was before."""

from __future__ import annotations

import errno
import os
import resource

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import NoSpaceError, StoreError
from semistream.master import LAYOUTS, sources, storage
from semistream.master.sort import ExternalSort

ROWS = pa.table({"id": range(60), "v": ["x" * 500] * 60})
CHANGED = pa.table({"id": range(20, 90), "v": ["y" * 500] * 70})


class Room:
    """Stands in for os.write: what is written goes through until the disk is full."""

    def __init__(self, nbytes: float) -> None:
        self.left = nbytes
        self.written = 0
        self.write = os.write

    def __call__(self, descriptor: int, data: memoryview) -> int:
        if self.left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = self.write(descriptor, data[: int(min(self.left, len(data)))])
        self.left -= done
        self.written += done
        return done


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def build(path, layout) -> ss.Master:
    return ss.build_master(ROWS, path, key="id", layout=layout, page_bytes=4096)


def replace(path, layout) -> ss.Master:
    return ss.build_master(CHANGED, path, key="id", layout=layout, page_bytes=4096, if_exists="replace")


def upsert(path, layout) -> ss.Master:
    return ss.open_master(path).upsert(CHANGED)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", [build, replace, upsert])
def test_a_disk_that_fills_up_at_any_moment(tmp_path, monkeypatch, tree_of, operation, layout):
    def attempt(place: str, nbytes: float) -> Room:
        if operation is not build:
            build(tmp_path / place, layout)
        room = Room(nbytes)
        with monkeypatch.context() as patched:
            patched.setattr(storage.os, "write", room)
            operation(tmp_path / place, layout)
        return room

    total = attempt("enough", float("inf")).written
    before = tree_of(tmp_path)
    # Checksums have more digits or fewer, so the last few bytes are not the same in every run.
    steps = [0, 1, *range(total // 7, total - 60, total // 7), total - 300, total - 60]
    for nbytes in steps:
        place = f"with {nbytes}"
        if operation is not build:
            build(tmp_path / place, layout)
        was = tree_of(tmp_path)
        files = open_files()
        with monkeypatch.context() as patched:
            patched.setattr(storage.os, "write", Room(nbytes))
            with pytest.raises(
                NoSpaceError, match=r"writing .*: found no room \(No space left on device\)\. Free some"
            ):
                operation(tmp_path / place, layout)
        assert tree_of(tmp_path) == was, f"after {nbytes} bytes"
        assert open_files() == files, "no file stays open"
        if operation is not build:
            assert ss.open_master(tmp_path / place).verify().rows == 60
    assert operation(tmp_path / "enough" if operation is not build else tmp_path / "again", layout).rows > 0
    assert len(before) > 0


@pytest.mark.parametrize("call", ["fsync", "link"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_when_files_are_finished(tmp_path, monkeypatch, tree_of, call, number):
    build(tmp_path / "m", "key")
    before = tree_of(tmp_path)
    files = open_files()

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage.os, call, fail)
    kind = NoSpaceError if number == errno.ENOSPC else StoreError
    with pytest.raises(kind, match=r"writing .*: found .*(No space left|Input/output error)"):
        upsert(tmp_path / "m", "key")
    assert tree_of(tmp_path) == before
    assert open_files() == files


def test_a_descriptor_is_closed_once(tmp_path, monkeypatch):
    """After it was closed its number may be that of another file, which a second close would take away."""
    closed = []
    close = os.close

    def watched(descriptor):
        closed.append(descriptor)
        close(descriptor)

    def fail(*_):
        raise OSError(errno.EIO, "no sync")

    upload = storage.open_storage(tmp_path).upload("pages/x/file")
    number = upload.descriptor
    upload.write(b"data")
    monkeypatch.setattr(storage.os, "close", watched)
    monkeypatch.setattr(storage, "_sync", fail)
    with pytest.raises(StoreError, match="no sync"):
        upload.close()
    upload.abort()
    assert closed.count(number) == 1
    assert not (tmp_path / "pages" / "x").exists()


def test_no_room_for_spilled_rows(tmp_path, monkeypatch, tree_of):
    """Arrow writes them, not Python: a limit on the size of files stands in for the full disk."""
    monkeypatch.setattr(sources, "ExternalSort", lambda *args: ExternalSort(*args, memory_bytes=1))
    rows = pa.table({"id": range(20_000, 0, -1)})
    before = tree_of(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(NoSpaceError, match=r"spilling rows to .*/scratch/.*: found no room"):
            ss.build_master(rows, tmp_path / "m", key="id")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert tree_of(tmp_path) == before
