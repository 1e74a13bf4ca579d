"""Damaged files: noticed wherever the damage is, named, and never read as rows."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import CorruptPageError, NewerFormatError, NotAStoreError, SemistreamError, StoreError
from semistream.master import LAYOUTS, Master, manifest

ROWS = [{"id": i, "v": f"{i} " + "x" * 300} for i in range(100)]


@pytest.fixture(params=LAYOUTS)
def master(request, tmp_path) -> Master:
    return ss.build_master(
        pa.Table.from_pylist(ROWS), tmp_path / "m", key="id", layout=request.param, page_bytes=4096
    )


@pytest.fixture
def simple(tmp_path) -> Master:
    """For what does not depend on the layout."""
    return ss.build_master(pa.Table.from_pylist(ROWS), tmp_path / "m", key="id", page_bytes=4096)


def page_file(master: Master) -> Path:
    (name,) = master.manifest.data.files
    return Path(master.path, name)


def flip(path: Path, at: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << bit
    path.write_bytes(raw)


def regions(path: Path, start: int) -> dict[str, int]:
    """A byte in every region of the 4096-byte page that begins at `start`."""
    page = path.read_bytes()[start : start + 4096]
    (metadata_bytes,) = struct.unpack_from("<i", page, 4)
    used = len(page[:-8].rstrip(b"\0"))
    assert used < 4096 - 16, "this page has no padding"
    return {
        "continuation": 0,
        "length": 4,
        "first of metadata": 8,
        "metadata": 8 + metadata_bytes // 2,
        "first of body": 8 + metadata_bytes,
        "body": (8 + metadata_bytes + used) // 2,
        "first of padding": used + 1,
        "padding": 4096 - 9,
        "first of checksum": 4096 - 8,
        "checksum": 4096 - 1,
    }


REGIONS = (
    "continuation",
    "length",
    "first of metadata",
    "metadata",
    "first of body",
    "body",
    "first of padding",
    "padding",
    "first of checksum",
    "checksum",
)


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_in_any_region_of_a_page(master, region):
    path = page_file(master)
    start = int(master.data.load_table().offset[3])
    flip(path, start + regions(path, start)[region], bit=5)
    for disk in ("buffered", "direct"):
        with pytest.raises(CorruptPageError, match=rf"page file {path} at offset {start}: found .*checksum"):
            list(master.scan(disk=disk))
    assert len(master.verify().damaged) == 1
    for operation in (master.upsert, master.delete) if master.layout != "key" else (master.upsert,):
        with pytest.raises(CorruptPageError, match=f"offset {start}"):
            operation(pa.table({"id": [row["id"] for row in ROWS], "v": [""] * 100}))
    assert master.versions() == [1]


def test_any_flipped_bit_of_a_page(simple):
    """Flips anywhere in the pages of a file, one after the other."""
    path = page_file(simple)
    raw = path.read_bytes()
    table = simple.data.load_table()
    rng = random.Random(8)
    for _ in range(150):
        page = rng.randrange(len(table))
        start = int(table.offset[page])
        flip(path, start + rng.randrange(4096), rng.randrange(8))
        found = simple.verify()
        assert len(found.damaged) == 1
        assert f"offset {start}:" in found.damaged[0]
        path.write_bytes(raw)


def test_what_is_around_the_pages_is_not_needed_to_read_them(master, rows_of):
    """The header and the footer serve other tools; a join reads pages by their place."""
    path = page_file(master)
    raw = bytearray(path.read_bytes())
    table = master.data.load_table()
    end = int(table.offset[-1] + table.length[-1])
    raw[: int(table.offset[0])] = bytes(int(table.offset[0]))
    raw[end:] = bytes(len(raw) - end)
    path.write_bytes(raw)
    assert rows_of(master) == ROWS
    assert master.verify().damaged == ()


@pytest.mark.parametrize("damage", ["cut in a page", "cut between pages", "empty", "missing"])
def test_a_file_that_is_cut_or_gone(master, damage):
    path = page_file(master)
    table = master.data.load_table()
    raw = path.read_bytes()
    first_lost = {"cut in a page": 7, "cut between pages": 8, "empty": 0, "missing": 0}[damage]
    if damage == "missing":
        path.unlink()
    else:
        start = int(table.offset[first_lost]) if first_lost else 0
        path.write_bytes(raw[: start + (100 if damage == "cut in a page" else 0)])
    with pytest.raises(StoreError, match=str(path)) as caught:
        list(master.scan())
    assert isinstance(caught.value, CorruptPageError) == (damage != "missing")
    found = master.verify()
    assert len(found.damaged) == master.pages - first_lost
    assert found.rows == int(table.rows[:first_lost].sum())


def test_verify_names_every_damaged_page_and_counts_the_rest(master):
    path = page_file(master)
    table = master.data.load_table()
    bad = [0, 3, 4, len(table) - 1]
    for page in bad:
        flip(path, int(table.offset[page]) + 2000)
    told: list[int] = []
    found = master.verify(progress=told.append)
    assert len(found.damaged) == len(bad)
    for page, line in zip(bad, found.damaged, strict=True):
        assert f"page file {path} at offset {table.offset[page]}: found" in line
    good = [i for i in range(len(table)) if i not in bad]
    assert found.rows == int(table.rows[good].sum())
    index_pages = master.manifest.key_index.pages if master.manifest.key_index else 0
    assert found.pages == sum(told) == len(table) + index_pages


def test_verify_looks_at_the_key_index_too(tmp_path):
    master = ss.build_master(
        pa.Table.from_pylist(ROWS), tmp_path / "m", key="id", layout="frequency", page_bytes=4096
    )
    (name,) = master.manifest.key_index.files
    flip(Path(master.path, name), 4096 + 50)
    found = master.verify()
    assert (found.rows, len(found.damaged)) == (100, 1)
    assert name in found.damaged[0]


def test_a_page_of_another_place_is_damage(tmp_path):
    """Whole, with a right checksum, but not the page that was asked for."""
    one = ss.build_master(pa.Table.from_pylist(ROWS), tmp_path / "one", key="id", page_bytes=4096)
    two = ss.build_master(pa.Table.from_pylist(ROWS), tmp_path / "two", key="id", page_bytes=4096)
    start, other = one.data.load_table().offset[[2, 5]].tolist()
    raw = bytearray(page_file(one).read_bytes())
    raw[start : start + 4096] = raw[other : other + 4096]
    page_file(one).write_bytes(raw)
    assert [f"offset {start}:" in line for line in one.verify().damaged] == [True]
    raw[start : start + 4096] = page_file(two).read_bytes()[start : start + 4096]
    page_file(one).write_bytes(raw)
    assert [f"offset {start}:" in line for line in one.verify().damaged] == [True]


def test_any_flipped_bit_of_the_page_table(master):
    name = master.manifest.data.table
    path = Path(master.path, name)
    raw = path.read_bytes()
    for at in random.Random(3).sample(range(len(raw)), 60):
        flip(path, at, at % 8)
        with pytest.raises(
            StoreError, match=rf"reading {name} of .*: found bytes that are not those written"
        ):
            list(ss.open_master(master.path).scan())
        path.write_bytes(raw)
    assert sum(len(batch) for batch in ss.open_master(master.path).scan()) == 100


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_page_table_is_reported_once(master, damage):
    name = master.manifest.data.table
    path = Path(master.path, name)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else b"X" + path.read_bytes()[1:])
    opened = ss.open_master(master.path)
    found = opened.verify()
    assert [f"reading {name}" in line for line in found.damaged] == [True]
    assert found.rows == 0
    with pytest.raises(StoreError, match=rf"reading {name} of .*Restore that file, or open another version"):
        opened.upsert(pa.table({"id": [1], "v": [""]}))
    assert master.versions() == [1]


def test_any_flipped_bit_of_the_manifest(simple):
    """Statistics, names, types: nothing in it may change unnoticed."""
    path = Path(simple.path, "versions/00000001.json")
    raw = path.read_bytes()
    for at in range(0, len(raw), 3):
        flip(path, at, at % 7)
        with pytest.raises(SemistreamError):
            ss.open_master(simple.path)
        path.write_bytes(raw)
    assert ss.open_master(simple.path) == simple


def rewrite(path: Path, change, *, seal: bool = True) -> None:
    """Change what a JSON file of the store says, as another program, or an attacker, would."""
    record = json.loads(path.read_text())
    change(record)
    if seal and "checksum" in record:
        del record["checksum"]
        record["checksum"] = manifest._checksum(record)
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"text"', "{}", '{"format": "semistream-master"}', "\xff", "[" * 100_000],
    ids=lambda text: repr(text[:20]),
)
def test_a_manifest_that_is_none(simple, text, tree_of):
    path = Path(simple.path, "versions/00000001.json")
    path.write_bytes(text.encode("latin-1"))
    before = tree_of(Path(simple.path))
    with pytest.raises(StoreError, match=r"opening version 1 of "):
        ss.open_master(simple.path)
    with pytest.raises(StoreError, match=r"opening version 1 of "):
        simple.at_version(1)
    assert tree_of(Path(simple.path)) == before


WRONG = [
    (field, value)
    for field in ("version", "key", "schema_ipc", "data", "statistics", "layout", "created_at")
    for value in (None, 7, "text", [], {}, ["x", 1])
    if (field, value) != ("version", 7)  # a number like any other
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=repr)
def test_a_manifest_with_a_field_of_a_wrong_kind(simple, field, value):
    rewrite(Path(simple.path, "versions/00000001.json"), lambda record: record.update({field: value}))
    with pytest.raises(
        StoreError, match=r"found a damaged manifest versions/00000001\.json .*Restore that file"
    ):
        ss.open_master(simple.path)


def test_an_older_version_opens_beside_a_damaged_manifest(simple, rows_of):
    simple.append(pa.table({"id": [1], "v": [""]}))
    Path(simple.path, "versions/00000002.json").write_text("{")
    with pytest.raises(StoreError, match=r"damaged manifest versions/00000002\.json .*open an older version"):
        ss.open_master(simple.path)
    assert rows_of(ss.open_master(simple.path, version=1)) == ROWS


@pytest.mark.parametrize("version", [2, 99, "1", None, 1.5])
def test_a_store_of_a_newer_format(simple, tree_of, version):
    marker = Path(simple.path, manifest.MARKER)
    rewrite(marker, lambda record: record.update(format_version=version))
    before = tree_of(Path(simple.path))
    for attempt in (
        lambda: ss.open_master(simple.path),
        lambda: simple.append(pa.table({"id": [1], "v": [""]})),
        lambda: ss.build_master(pa.table({"id": [1]}), simple.path, key="id", if_exists="replace"),
    ):
        with pytest.raises(
            NewerFormatError, match=rf"found format {version}, newer than 1\. Upgrade semistream"
        ):
            attempt()
    assert tree_of(Path(simple.path)) == before


def test_a_version_of_a_newer_format(simple, tree_of):
    """Its checksum may be made in another way: the format is looked at first."""
    path = Path(simple.path, "versions/00000001.json")
    rewrite(path, lambda record: record.update(format_version=2), seal=False)
    before = tree_of(Path(simple.path))
    with pytest.raises(NewerFormatError, match=r"opening version 1 of .*: found format 2, newer than 1\."):
        ss.open_master(simple.path)
    assert tree_of(Path(simple.path)) == before


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other"}', "\xff\xfe"])
def test_a_marker_that_is_not_ours(simple, tree_of, text):
    Path(simple.path, manifest.MARKER).write_bytes(text.encode("latin-1"))
    before = tree_of(Path(simple.path))
    with pytest.raises(
        NotAStoreError, match=r"opening .* as a master store: found .*Give the directory of a store"
    ):
        ss.open_master(simple.path)
    with pytest.raises(SemistreamError):
        ss.build_master(pa.table({"id": [1]}), simple.path, key="id", if_exists="replace")
    assert tree_of(Path(simple.path)) == before


@pytest.mark.parametrize(
    "name", ["../secret.arrow", "pages/../../secret", "/etc/passwd", "..", 5, None], ids=repr
)
@pytest.mark.parametrize("where", ["files", "table"])
def test_a_manifest_that_points_outside_of_the_store(tmp_path, simple, name, where):
    (tmp_path / "secret.arrow").write_bytes(b"secret")
    path = Path(simple.path, "versions/00000001.json")
    rewrite(path, lambda record: record["data"].update({where: name if where == "table" else [name]}))
    with pytest.raises(StoreError, match=r"damaged manifest"):
        ss.open_master(simple.path)
    with pytest.raises(StoreError, match=r"damaged manifest"):
        simple.vacuum()
    assert (tmp_path / "secret.arrow").exists()
