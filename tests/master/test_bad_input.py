"""What cannot be a master: a clear error, and not a file more or less than before."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import (
    InvalidInputError,
    NotAStoreError,
    SemistreamError,
    StoreExistsError,
    UnsupportedTypeError,
)
from semistream.master import LAYOUTS, operation, part, storage
from semistream.master.manifest import MARKER


def table(**columns) -> pa.Table:
    return pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]} | columns)


UNION = pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array([1, 2, 3])])
STRANGE = {
    "union": UNION,
    "extension": pa.array([b"0" * 16] * 3, pa.binary(16)).cast(pa.uuid()),
    "union in a list": pa.ListArray.from_arrays([0, 1, 2, 3], UNION),
    "extension in a struct": pa.StructArray.from_arrays([pa.array([b"0" * 16] * 3, pa.uuid())], names=["u"]),
    "fixed size list": pa.array([[1, 2]] * 3, pa.list_(pa.int8(), 2)),
    "run-end encoded": pa.RunEndEncodedArray.from_arrays([3], [1]),
}
NO_KEYS = {
    "float": pa.array([1.0, 2.0, 3.0]),
    "bool": pa.array([True, False, None]),
    "list": pa.array([[1], [2], []]),
    "struct": pa.array([{"a": 1}] * 3),
    "map": pa.array([[(1, 2)]] * 3, pa.map_(pa.int8(), pa.int8())),
    "null": pa.nulls(3),
    "decimal256": pa.array([1, 2, 3], pa.decimal256(50, 0)),
    "duration": pa.array([1, 2, 3], pa.duration("s")),
    "fixed size binary": pa.array([b"ab"] * 3, pa.binary(2)),
}
# What is asked for, the error, and what its message must name: asked, found, hint.
ARGUMENTS = {
    "missing key": ({"key": "nope"}, InvalidInputError, r"key='nope': found columns id, v\. .*'nope'"),
    "one of two keys missing": (
        {"key": ["id", "nope"]},
        InvalidInputError,
        r"key=\['id', 'nope'\].*columns id, v",
    ),
    "no key": ({"key": []}, InvalidInputError, r"key=\[\]: found no list of distinct column names"),
    "the same key twice": ({"key": ["id", "id"]}, InvalidInputError, r"key=\['id', 'id'\].*distinct"),
    "a key that is no name": ({"key": 5}, InvalidInputError, r"key=5: found no list"),
    "names that are none": ({"key": [None]}, InvalidInputError, r"key=None: found no list"),
    "layout": ({"layout": "btree"}, InvalidInputError, r"layout='btree'.*key, frequency, heap"),
    "frequency of another layout": (
        {"frequency": "id"},
        InvalidInputError,
        r"frequency='id': found layout='key'",
    ),
    "frequency missing": (
        {"layout": "frequency", "frequency": "n"},
        InvalidInputError,
        r"frequency='n': found columns id, v",
    ),
    "frequency of a string": (
        {"layout": "frequency", "frequency": "v"},
        InvalidInputError,
        r"frequency='v': found type string.*Cast",
    ),
    "if_exists": ({"if_exists": "append"}, InvalidInputError, r"if_exists='append'.*'error' or 'replace'"),
    "page of no size": ({"page_bytes": "big"}, InvalidInputError, r"page_bytes='big': found no size"),
    "page of nothing": ({"page_bytes": 0}, InvalidInputError, r"page_bytes=0: found .*not positive"),
    "negative page": ({"page_bytes": -4096}, InvalidInputError, r"page_bytes=-4096: found .*not positive"),
    "page not of blocks": ({"page_bytes": 5000}, InvalidInputError, r"page_bytes=5000.*multiple of 4096"),
    "page in thousands": ({"page_bytes": "16KB"}, InvalidInputError, r"page_bytes=16000.*multiple of 4096"),
    "page too large": ({"page_bytes": 2 << 30}, InvalidInputError, r"page_bytes=2147483648"),
    "fractional page": ({"page_bytes": 4096.0}, InvalidInputError, r"page_bytes=4096\.0: found a float"),
}


@pytest.fixture(params=["new path", "old store"])
def target(request, tmp_path, tree_of):
    """A path that is nothing yet, and one that is a store; either must be afterwards as it was before."""
    path = tmp_path / "place" / "m"
    (tmp_path / "place").mkdir()
    extra = {}
    if request.param == "old store":
        ss.build_master(table(), path, key="id")
        extra = {"if_exists": "replace"}
    before = tree_of(tmp_path)
    yield path, extra
    assert tree_of(tmp_path) == before, "nothing was changed"


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(target, name):
    path, extra = target
    arguments, error, message = ARGUMENTS[name]
    with pytest.raises(error, match=message) as caught:
        ss.build_master(table(), path, **({"key": "id"} | extra | arguments))
    assert caught.value.hint.endswith("."), "the hint is a sentence"


@pytest.mark.parametrize("name", STRANGE)
def test_types_that_cannot_be_stored(target, name):
    path, extra = target
    with pytest.raises(UnsupportedTypeError, match=r"column 'odd': found type .*Cast it"):
        ss.build_master(table(odd=STRANGE[name]), path, key="id", **extra)


@pytest.mark.parametrize("name", NO_KEYS)
def test_types_that_cannot_be_keys(target, name):
    path, extra = target
    kind = re.escape(str(NO_KEYS[name].type))
    with pytest.raises(UnsupportedTypeError, match=rf"key='odd': found 'odd' of type {kind}\. A key can"):
        ss.build_master(table(odd=NO_KEYS[name]), path, key="odd", **extra)
    with pytest.raises(UnsupportedTypeError, match=rf"key=\['id', 'odd'\]: found 'odd' of type {kind}"):
        ss.build_master(table(odd=NO_KEYS[name]), path, key=["id", "odd"], **extra)


def test_a_column_name_twice(target):
    path, extra = target
    doubled = pa.table([[1], [2], [3]], names=["id", "v", "v"])
    with pytest.raises(InvalidInputError, match=r"distinct column names: found 'v' more than once"):
        ss.build_master(doubled, path, key="id", **extra)


class Stream:
    """An object of another library whose stream is not one of rows, or fails."""

    def __arrow_c_stream__(self, requested_schema=None):
        return pa.chunked_array([[1, 2]]).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "source",
    [None, 5, b"path", {"id": [1]}, [], [1], [{"id": 1}], (1,), pa.array([1]), Stream()],
    ids=lambda s: type(s).__name__,
)
def test_sources_of_a_wrong_type(target, source):
    path, extra = target
    with pytest.raises(
        InvalidInputError, match=r"(a source of type|the Parquet files of) .*: found .* Give a"
    ):
        ss.build_master(source, path, key="id", **extra)


@pytest.mark.parametrize(
    "path", [None, "", 5, b"bytes", "nothing://known/to/arrow", "s3:///no-bucket"], ids=repr
)
def test_paths_that_are_none(path):
    with pytest.raises(InvalidInputError, match=r"path=.*: found .* Give a"):
        ss.build_master(table(), path, key="id")
    with pytest.raises(InvalidInputError, match=r"path="):
        ss.open_master(path)


def test_parquet_that_is_missing_or_none(target, tmp_path_factory):
    path, extra = target
    folder = tmp_path_factory.mktemp("parquet")
    (folder / "text.parquet").write_text("this is no Parquet file")
    pq.write_table(table(), folder / "cut.parquet")
    (folder / "cut.parquet").write_bytes((folder / "cut.parquet").read_bytes()[:-20])
    for name in ("none.parquet", "text.parquet", "cut.parquet", ""):
        with pytest.raises(InvalidInputError, match=r"the Parquet files of .*: found .* Give a Parquet file"):
            ss.build_master(folder / name, path, key="id", **extra)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parquet_that_is_damaged_inside(target, tmp_path_factory, layout):
    """The footer is whole, so it shows only when the rows are read."""
    path, extra = target
    file = tmp_path_factory.mktemp("parquet") / "damaged.parquet"
    big = pa.table({"id": range(200_000), "v": [f"{i * 7919}" for i in range(200_000)]})
    pq.write_table(big, file, row_group_size=20_000)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 30_000] = bytes(30_000)
    file.write_bytes(raw)
    with pytest.raises(InvalidInputError, match=rf"the rows of {file}: found .*damaged file"):
        ss.build_master(file, path, key="id", layout=layout, **extra)


def reader_of(batches, schema=None) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema or table().schema, batches)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_source_that_fails_midway(target, layout, error):
    path, extra = target

    def rows():
        for i in range(50):
            yield pa.record_batch({"id": [i], "v": ["x" * 3000]})
        raise error("midway")

    with pytest.raises(error, match="midway"):
        ss.build_master(reader_of(rows()), path, key="id", layout=layout, page_bytes=4096, **extra)


class Ragged:
    """A source whose second batch has other columns than its first, which Arrow's own readers would not let pass."""

    schema = table().schema
    rows = None

    def write(self, writer, **_):
        return [writer([pa.record_batch({"id": [1], "v": ["a"]}), pa.record_batch({"id": [2], "w": ["b"]})])]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_with_other_columns(target, monkeypatch, layout):
    path, extra = target
    monkeypatch.setattr(ss.master.build, "open_source", lambda source: source)
    with pytest.raises(InvalidInputError, match=r"columns id, v: found columns id, w\. Add v; every batch"):
        ss.build_master(Ragged(), path, key="id", layout=layout, **extra)


def test_rows_that_were_not_sorted_as_asked(target, monkeypatch):
    """Another engine may sort strings by a collation; the index would not find them."""
    path, extra = target

    class Unsorted(Ragged):
        def write(self, writer, **_):
            return [writer([pa.record_batch({"id": [2, 1], "v": ["a", "b"]})])]

    monkeypatch.setattr(ss.master.build, "open_source", lambda source: source)
    with pytest.raises(InvalidInputError, match=r"rows sorted by key: found a key below the one before"):
        ss.build_master(Unsorted(), path, key="id", **extra)


@pytest.mark.parametrize("step", ["pages", "table", "manifest"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_at_any_stage(target, monkeypatch, step, error):
    path, extra = target

    def fail(*_, **__):
        raise error("now")

    where = {
        "pages": (part.PageFileWriter, "close"),
        "table": (ss.master.build, "save_page_set"),
        "manifest": (operation, "write_manifest"),
    }
    monkeypatch.setattr(*where[step], fail)
    with pytest.raises(error, match="now"):
        ss.build_master(table(), path, key="id", **extra)


def test_progress_that_raises(target):
    path, extra = target

    def stop(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ss.build_master(table(), path, key="id", progress=stop, **extra)


def test_an_empty_directory_stays_one_when_a_build_fails(tmp_path):
    (tmp_path / "m").mkdir()
    for layout in LAYOUTS:
        for failing in (iter([]), (pa.record_batch({"id": [1], "v": ["x"]}) for _ in range(2))):

            def rows(failing=failing):
                yield from failing
                raise RuntimeError("midway")

            with pytest.raises(RuntimeError, match="midway"):
                ss.build_master(reader_of(rows()), tmp_path / "m", key="id", layout=layout)
            assert list((tmp_path / "m").iterdir()) == []


def test_directories_made_on_the_way_go_when_a_build_fails(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(operation, "write_manifest", fail)
    with pytest.raises(KeyboardInterrupt):
        ss.build_master(table(), tmp_path / "a" / "b" / "m", key="id")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_a_file(tmp_path, tree_of):
    (tmp_path / "m").write_text("mine")
    before = tree_of(tmp_path)
    with pytest.raises(StoreExistsError, match=r"building a master at .*/m: found a file\. Choose another"):
        ss.build_master(table(), tmp_path / "m", key="id")
    with pytest.raises(NotAStoreError, match=r"opening .*/m as a master store: found .*Not a directory"):
        ss.open_master(tmp_path / "m")
    with pytest.raises(SemistreamError, match="Not a directory"):
        ss.build_master(table(), tmp_path / "m" / "below", key="id")
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("if_exists", ["error", "replace"])
@pytest.mark.parametrize("content", ["file", "directory", "hidden file"])
def test_a_directory_that_is_somebody_elses(tmp_path, tree_of, if_exists, content):
    (tmp_path / "m").mkdir()
    mine = tmp_path / "m" / (".mine" if content == "hidden file" else "mine")
    mine.mkdir() if content == "directory" else mine.write_text("mine")
    before = tree_of(tmp_path)
    with pytest.raises(
        StoreExistsError, match=r"building a master at .*/m: found .*no store\. .*nothing was changed"
    ):
        ss.build_master(table(), tmp_path / "m", key="id", if_exists=if_exists)
    with pytest.raises(NotAStoreError, match=r"found other files\. Make a store with build_master"):
        ss.open_master(tmp_path / "m")
    assert tree_of(tmp_path) == before


def test_a_path_that_is_nothing(tmp_path):
    with pytest.raises(NotAStoreError, match=r"opening .*/m as a master store: found nothing\. Make a store"):
        ss.open_master(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_was_not_finished(tmp_path):
    ss.build_master(table(), tmp_path / "m", key="id")
    (tmp_path / "m" / "versions" / "00000001.json").unlink()
    with pytest.raises(NotAStoreError, match=r"found a build that was not finished\. Run build_master again"):
        ss.open_master(tmp_path / "m")
    assert ss.build_master(table(), tmp_path / "m", key="id").version == 1


def test_the_claim_of_a_path_is_put_aside_first(tmp_path):
    """A file left by a process that was killed as it claimed the path is not somebody else's."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / f".{MARKER}.0123{storage._ASIDE}").write_text("{")
    assert ss.build_master(table(), tmp_path / "m", key="id").rows == 3
