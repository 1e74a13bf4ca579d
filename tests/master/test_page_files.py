"""Page files are plain Arrow files, and their batches begin on disk blocks."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import semistream as ss
from semistream.master import LAYOUTS

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "tags": pa.list_(pa.string()),
        "at": pa.struct([("x", pa.float64()), ("y", pa.decimal128(20, 2))]),
        "flag": pa.bool_(),
        "none": pa.null(),
    }
)


def some_rows(count: int, seed: int) -> list[dict]:
    rng = random.Random(seed)
    return [
        {
            "id": key,
            "name": rng.choice([None, "", "n" * rng.choice([1, 40, 20_000])]) if i % 9 == 0 else f"row {i}",
            "tags": rng.choice([None, [], ["a", None, "b" * 50]]),
            "at": rng.choice([None, {"x": None, "y": None}, {"x": 0.5, "y": None}]),
            "flag": rng.choice([None, True, False]),
            "none": None,
        }
        for i, key in enumerate(rng.sample(range(10 * count), count))
    ]


@pytest.fixture(params=LAYOUTS)
def store(request, tmp_path):
    """A master and the rows that its only page file of rows holds, in order."""
    rows = some_rows(800, seed=1)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    master = ss.build_master(table, tmp_path / "m", key="id", layout=request.param, page_bytes=4096)
    expected = sorted(rows, key=lambda row: row["id"]) if request.param == "key" else rows
    return master, expected


def page_files(master: ss.Master) -> list[Path]:
    return [Path(master.path, name) for name in master.manifest.data.files]


def starts_of(path: Path) -> list[int]:
    """Where each record batch begins, found by reading one message behind the other as a stream is read."""
    source = pa.memory_map(str(path))
    assert source.read(8) == b"ARROW1\0\0"
    starts = []
    while True:
        at = source.tell()
        _, metadata_bytes = struct.unpack("<Ii", source.read(8))
        if metadata_bytes == 0:  # the end of the stream
            return starts
        source.seek(at)
        if pa.ipc.read_message(source).type == "record batch":
            starts.append(at)


def test_pyarrow_opens_a_page_file(store):
    master, expected = store
    (path,) = page_files(master)
    with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
        assert file.schema == master.schema
        assert file.num_record_batches == master.pages
        assert file.read_all().to_pylist() == expected
        # From the end to the beginning: through the footer, not as a stream.
        backwards = [file.get_batch(i).to_pylist() for i in reversed(range(file.num_record_batches))]
    assert [row for batch in reversed(backwards) for row in batch] == expected


def test_a_page_file_is_a_dataset(store):
    master, expected = store
    dataset = pads.dataset([str(path) for path in page_files(master)], format="arrow")
    assert dataset.schema == master.schema
    assert dataset.count_rows() == len(expected)
    assert dataset.to_table().to_pylist() == expected
    wanted = expected[5]["id"]
    assert dataset.to_table(filter=pads.field("id") == wanted).to_pylist() == [expected[5]]


def test_every_batch_begins_on_a_disk_block(store):
    master, _ = store
    (path,) = page_files(master)
    starts = starts_of(path)
    assert len(starts) == master.pages > 10
    assert all(start % 4096 == 0 for start in starts)
    assert starts == master.data.load_table().offset.tolist()


def test_a_page_file_is_also_a_stream_of_messages(store):
    """Without its first eight bytes an Arrow file is an Arrow stream: the padding must not disturb it."""
    master, expected = store
    (path,) = page_files(master)
    with pa.ipc.open_stream(pa.py_buffer(path.read_bytes()[8:])) as stream:
        assert stream.read_all().to_pylist() == expected


def test_page_tables_and_the_key_index_are_arrow_files_too(tmp_path):
    rows = some_rows(500, seed=2)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    master = ss.build_master(table, tmp_path / "m", key="id", layout="frequency", page_bytes=4096)
    for name in master.manifest.files():
        with pa.ipc.open_file(str(Path(master.path, name))) as file:
            assert file.read_all().num_rows > 0
    entries = pads.dataset(
        [str(Path(master.path, n)) for n in master.manifest.key_index.files], format="arrow"
    )
    assert sorted(entries.to_table().column("id").to_pylist()) == sorted(row["id"] for row in rows)


def test_files_of_a_change_are_arrow_files_too(store):
    master, _ = store
    changed = master.upsert(pa.Table.from_pylist(some_rows(50, seed=3), schema=SCHEMA))
    new = [path for path in page_files(changed) if path not in page_files(master)]
    assert len(new) == 1
    with pa.ipc.open_file(str(new[0])) as file:
        assert file.num_record_batches == len(starts_of(new[0])) > 0
    assert all(start % 4096 == 0 for start in starts_of(new[0]))


def test_a_file_without_room_for_its_schema_in_one_block(tmp_path):
    """The schema of 500 columns takes several blocks; pages still begin on one."""
    table = pa.table({"id": [2, 1]} | {f"a rather long name of column {i}": [i, None] for i in range(500)})
    master = ss.build_master(table, tmp_path / "m", key="id")
    (path,) = page_files(master)
    starts = starts_of(path)
    assert starts[0] > 4096
    assert all(start % 4096 == 0 for start in starts)
    with pa.ipc.open_file(str(path)) as file:
        assert file.read_all().column("id").to_pylist() == [1, 2]
