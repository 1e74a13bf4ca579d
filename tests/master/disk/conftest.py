"""Two files of sealed pages, and every way to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs
import pytest
from numpy.typing import NDArray

from semistream.master.disk import Disk, Extents, LocalDisk, LocalFile, RemoteFile, open_disk, seal_pages

OPEN: dict[str, Callable[[Pages], Disk]] = {
    "direct": lambda pages: open_disk("direct", pages.local),
    "direct, threads": lambda pages: LocalDisk(pages.local, mode="direct", engine="threads"),
    "direct, one thread": lambda pages: LocalDisk(pages.local, mode="direct", engine="threads", threads=1),
    "buffered": lambda pages: open_disk("buffered", pages.local),
    "buffered, three threads": lambda pages: open_disk("buffered", pages.local, threads=3),
    "simulated": lambda pages: open_disk("simulated:hdd-2007", pages.local),
    "remote": lambda pages: open_disk("direct", pages.remote),
    "remote, one thread": lambda pages: open_disk("buffered", pages.remote, threads=1),
    "simulated remote": lambda pages: open_disk("object-store", pages.remote),
}


@dataclass(frozen=True)
class Pages:
    """Two files of 8 KiB pages; page i of file f is sealed with the seed f * count + i."""

    paths: tuple[Path, ...]
    content: tuple[NDArray[np.uint8], ...]
    size = 8192
    count = 600  # enough for calls to reach their largest size of 1 MiB, four times

    @property
    def local(self) -> list[LocalFile]:
        return [LocalFile(str(path)) for path in self.paths]

    @property
    def remote(self) -> list[RemoteFile]:
        root = pafs.SubTreeFileSystem(str(self.paths[0].parent), pafs.LocalFileSystem())
        return [RemoteFile(root, path.name) for path in self.paths]

    def extents(self, *reads: tuple[int, int, int, int]) -> Extents:
        """Extents from (file, first page, pages, target page)."""
        columns = np.array(reads, dtype=np.int64).reshape(-1, 4).T
        return Extents(columns[0], columns[1] * self.size, columns[2] * self.size, columns[3] * self.size)

    def seeds(self, extents: Extents) -> NDArray[np.uint64]:
        return (extents.file * self.count + extents.offset // self.size).astype(np.uint64)

    def expected(self, extents: Extents, buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What the buffer must hold after the read."""
        result = buffer.copy()
        columns = (extents.file, extents.offset, extents.length, extents.target)
        for file, offset, length, target in zip(*(c.tolist() for c in columns), strict=True):
            result[target : target + length] = self.content[file][offset : offset + length]
        return result

    def flip(self, file: int, position: int) -> None:
        """Damage one bit of a file."""
        with self.paths[file].open("r+b") as f:
            f.seek(position)
            byte = f.read(1)[0]
            f.seek(position)
            f.write(bytes([byte ^ 1]))


def make_pages(directory: Path) -> Pages:
    rng = np.random.default_rng(11)
    paths, content = [], []
    for f in range(2):
        data = rng.integers(0, 256, Pages.size * Pages.count, dtype=np.uint8)
        numbers = np.arange(Pages.count)
        seal_pages(data, numbers * Pages.size, Pages.size, (f * Pages.count + numbers).astype(np.uint64))
        path = directory / f"pages-{f}"
        path.write_bytes(data.tobytes())
        paths.append(path)
        content.append(data)
    return Pages(tuple(paths), tuple(content))


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Files that tests only read."""
    return make_pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def own_pages(tmp_path: Path) -> Pages:
    """Files that a test may damage."""
    return make_pages(tmp_path)


@pytest.fixture(params=OPEN)
def open_any(request: pytest.FixtureRequest) -> Callable[[Pages], Disk]:
    """Every way to open a disk, one after the other."""
    return OPEN[request.param]


@pytest.fixture
def disk(open_any: Callable[[Pages], Disk], pages: Pages) -> Iterator[Disk]:
    """Every kind of disk, one after the other."""
    with open_any(pages) as opened:
        yield opened
