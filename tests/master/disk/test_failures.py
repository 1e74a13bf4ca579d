"""What goes wrong is told: the file, the place, what was found, what to do."""

from __future__ import annotations

import errno
import os
import pickle

import numpy as np
import pytest

from semistream.errors import CorruptPageError, StoreError
from semistream.master.disk import aligned_buffer, kernels, open_disk

BUFFER = aligned_buffer(600 * 8192)


@pytest.mark.parametrize("position", [0, 4000, 8183, 8184, 8191], ids=lambda p: f"byte {p}")
def test_a_flipped_bit_is_found_and_named(own_pages, open_any, position: int) -> None:
    bad = 301
    own_pages.flip(1, bad * own_pages.size + position)
    with open_any(own_pages) as disk:
        extents = own_pages.extents(*((1, page, 1, page) for page in range(600)))
        message = rf"reading 8\.0 KiB of page file .*pages-1 at offset {bad * 8192}: found .* Build the master again"
        with pytest.raises(CorruptPageError, match=message):
            disk.read(extents, BUFFER, own_pages.seeds(extents))
        disk.read(extents, BUFFER)  # nobody asked for verification
        assert disk.stats.calls == 2 * 5  # the first read happened, too


def test_the_first_of_several_bad_pages_is_named(own_pages, open_any) -> None:
    numbers = np.random.default_rng(8).permutation(600)
    for place in (417, 230, 599):
        own_pages.flip(0, int(numbers[place]) * own_pages.size + 99)
    with open_any(own_pages) as disk:
        extents = own_pages.extents(*((0, page, 1, i) for i, page in enumerate(numbers.tolist())))
        with pytest.raises(CorruptPageError, match=f"at offset {numbers[230] * 8192}:"):
            disk.read(extents, BUFFER, own_pages.seeds(extents))


def test_a_page_at_the_wrong_place_is_found(own_pages, open_any) -> None:
    size = own_pages.size
    data = bytearray(own_pages.paths[0].read_bytes())
    data[size : 2 * size], data[2 * size : 3 * size] = data[2 * size : 3 * size], data[size : 2 * size]
    own_pages.paths[0].write_bytes(data)
    with open_any(own_pages) as disk:
        extents = own_pages.extents((0, 0, 1, 0), (0, 2, 1, 1))
        with pytest.raises(CorruptPageError, match=f"at offset {2 * size}"):
            disk.read(extents, BUFFER, own_pages.seeds(extents))


@pytest.mark.parametrize(
    "end", [0, 8192 * 100, 8192 * 100 + 4096, 8192 * 100 + 777], ids=lambda e: f"{e} bytes"
)
@pytest.mark.parametrize("single", [True, False], ids=["one page", "many"])
def test_a_truncated_file_is_found_and_its_end_named(own_pages, open_any, end: int, single: bool) -> None:
    os.truncate(own_pages.paths[0], end)
    reads = [(0, 100, 1, 0)] if single else [(1, 100, 1, 2), (0, 100, 1, 0), (1, 3, 1, 3), (0, 500, 1, 1)]
    with open_any(own_pages) as disk:
        message = rf"pages-0 at offset {8192 * 100}: found a file that ends at byte {end}; it was truncated"
        with pytest.raises(CorruptPageError, match=message):
            disk.read(own_pages.extents(*reads), BUFFER)


def test_a_missing_file_is_named(own_pages, open_any) -> None:
    own_pages.paths[1].unlink()
    with open_any(own_pages) as disk:
        disk.read(own_pages.extents((0, 0, 1, 0)), BUFFER)  # files are opened when they are read
        with pytest.raises(
            StoreError, match=r"opening page file .*pages-1: found .*(?i:no such file).* open the master"
        ):
            disk.read(own_pages.extents((0, 0, 1, 0), (1, 0, 1, 1)), BUFFER)
        disk.read(own_pages.extents((0, 0, 1, 0)), BUFFER)


@pytest.mark.parametrize("kind", ["direct", "buffered", "hdd-2007"])
def test_a_forbidden_file_is_named(own_pages, monkeypatch, kind: str) -> None:
    def forbidden(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("semistream.master.disk.descriptors.os.open", forbidden)
    with open_disk(kind, own_pages.local) as disk:
        with pytest.raises(StoreError, match=r"pages-0: found Permission denied \(errno 13\)\. Let the user"):
            disk.read(own_pages.extents((0, 0, 1, 0)), BUFFER)
        monkeypatch.undo()


@pytest.mark.parametrize("kind", ["direct", "buffered", "hdd-2007"])
def test_a_failing_device_is_named(pages, monkeypatch, kind: str) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(kernels, "read_in_turn", lambda *_: (0, -1))
    monkeypatch.setattr("semistream.master.disk.local.os.preadv", broken)
    with open_disk(kind, pages.local) as disk:
        with pytest.raises(
            StoreError, match=r"pages-1 at offset 16384: found Input/output error \(errno 5\)\. Check"
        ):
            disk.read(pages.extents((1, 2, 1, 0)), BUFFER)
        assert disk.stats.calls == 0


def test_errors_survive_the_way_between_processes(own_pages) -> None:
    own_pages.flip(0, 1)
    with open_disk("direct", own_pages.local) as disk:
        extents = own_pages.extents((0, 0, 1, 0))
        with pytest.raises(CorruptPageError) as caught:
            disk.read(extents, BUFFER, own_pages.seeds(extents))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301
