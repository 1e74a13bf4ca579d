"""A micro-batch is in the warehouse once, however often it is given to it."""

from __future__ import annotations

import builtins
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from piping import values, written

from semistream.errors import InvalidInputError, MissingDependencyError, StoreError
from semistream.pipeline.config import PipelineConfig
from semistream.pipeline.sinks import open_sink

OUTPUT = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
WITHOUT_SPARK = ("delta", "duckdb", "parquet")


def rows(*numbers: int) -> pa.Table:
    return pa.table([numbers, [f"v{n}" for n in numbers], [n * 1_000_000 for n in numbers]], schema=OUTPUT)


def files(folder, batch: int, *parts: pa.Table) -> list[str]:
    """The answers of a micro-batch, as the tasks leave them."""
    paths = [folder / f"answers-{batch}-{i}.parquet" for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        pq.write_table(part, path)
    return [str(path) for path in paths]


def sink_of(folder, kind: str, schema: pa.Schema = OUTPUT):
    return open_sink(PipelineConfig.from_values(values(folder, sink=kind), folder=folder).sink, schema, None)


def keys(found: Counter) -> list:
    return sorted(row[0] for row in found.elements())


@pytest.mark.parametrize("kind", WITHOUT_SPARK)
class TestEverySink:
    def test_rows_are_there_once(self, tmp_path, kind):
        sink = sink_of(tmp_path, kind)
        first, second = files(tmp_path, 0, rows(1, 2), rows(3)), files(tmp_path, 1, rows(4, 4))
        assert sink.write(first, query="q", batch=0) == "written"
        assert sink.write(first, query="q", batch=0) == "there already"
        assert keys(written(tmp_path, kind)) == [1, 2, 3]
        again = sink_of(tmp_path, kind)  # another process
        assert again.write(first, query="q", batch=0) == "there already"
        assert again.write(second, query="q", batch=1) == "written"
        assert again.write(second, query="q", batch=1) == "there already"
        assert keys(written(tmp_path, kind)) == [1, 2, 3, 4, 4]

    def test_another_query_is_another(self, tmp_path, kind):
        sink = sink_of(tmp_path, kind)
        sink.write(files(tmp_path, 5, rows(1)), query="q", batch=5)
        assert sink.write(files(tmp_path, 0, rows(2)), query="other", batch=0) == "written"
        assert keys(written(tmp_path, kind)) == [1, 2]

    def test_nothing_is_nothing(self, tmp_path, kind):
        sink = sink_of(tmp_path, kind)
        assert sink.write([], query="q", batch=0) == "nothing to write"
        assert sink.write(files(tmp_path, 1, rows(1)), query="q", batch=1) == "written"
        assert keys(written(tmp_path, kind)) == [1]

    def test_values_survive(self, tmp_path, kind):
        sink = sink_of(tmp_path, kind)
        sink.write(files(tmp_path, 0, rows(7)), query="q", batch=0)
        ((key, value, at),) = written(tmp_path, kind)
        assert (key, value) == (7, "v7")
        assert at.timestamp() == 7

    def test_a_failure_is_told_and_leaves_nothing(self, tmp_path, kind):
        sink = sink_of(tmp_path, kind)
        sink.write(files(tmp_path, 0, rows(1)), query="q", batch=0)
        good = files(tmp_path, 1, rows(2), rows(3))
        (tmp_path / "broken.parquet").write_bytes(b"PAR1 no file PAR1")
        with pytest.raises(StoreError, match=f"the {kind} sink"):
            sink.write([*good, str(tmp_path / "broken.parquet")], query="q", batch=1)
        assert keys(written(tmp_path, kind)) == [1]
        assert sink.write(good, query="q", batch=1) == "written"
        assert keys(written(tmp_path, kind)) == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.xdist_group("pipeline")
@pytest.mark.parametrize("dies_at", range(4))
def test_files_that_spark_writes_are_there_once_wherever_it_dies(spark, tmp_path, monkeypatch, dies_at):
    """Before the rename, before each of two files is moved, and after the last: the next attempt goes on from there."""
    config = PipelineConfig.from_values(values(tmp_path, sink="orc"), folder=tmp_path).sink
    sink = open_sink(config, OUTPUT, spark)
    assert sink.write(files(tmp_path, 0, rows(1)), query="q", batch=0) == "written"
    (tmp_path / ".written").unlink()  # in the ledger every micro-batch has a folder, and a mark, of its own
    answers = files(tmp_path, 1, rows(2, 2), rows(3))
    real, done = Path.rename, []

    def dies(path, target):
        if len(done) == dies_at:
            raise OSError("killed")
        done.append(path.name)
        return real(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", dies)
        if dies_at == 3:
            patched.setattr(Path, "touch", lambda _: dies(Path("mark"), None))
        with pytest.raises(StoreError, match="killed"):
            sink.write(answers, query="q", batch=1)
    assert len(done) == dies_at
    assert sink.write(answers, query="q", batch=1) == "written"
    assert sink.write(answers, query="q", batch=1) == "there already"
    assert keys(written(tmp_path, "orc")) == [1, 2, 2, 3]
    assert not list((tmp_path / "out").glob(".*-q*"))


@pytest.mark.parametrize(("kind", "package"), [("delta", "deltalake"), ("duckdb", "duckdb")])
def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch, kind, package):
    real = builtins.__import__

    def without(name, *rest):
        if name == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"semistream\[demo\]"):
        sink_of(tmp_path, kind)


def test_delta_paths_that_make_it_panic_are_refused(tmp_path):
    folder = tmp_path / "a[1]"
    folder.mkdir()
    with pytest.raises(InvalidInputError, match=r"\[ \]"):
        sink_of(folder, "delta")


def test_a_panic_becomes_an_error(tmp_path):
    from semistream.pipeline.sinks import Guarded

    class Panic(BaseException):
        pass

    class Panicking:
        def write(self, *_, **__):
            raise Panic("called `Option::unwrap()`")

    with pytest.raises(StoreError, match="unwrap"):
        Guarded(Panicking(), "a sink").write(["x"], query="q", batch=0)


def test_a_table_of_any_name(tmp_path):
    config = values(tmp_path, sink="duckdb")
    config["sink"]["table"] = 'odd "name"; drop table x'
    sink = open_sink(PipelineConfig.from_values(config, folder=tmp_path).sink, OUTPUT, None)
    assert sink.write(files(tmp_path, 0, rows(1)), query="q", batch=0) == "written"
    import duckdb

    with duckdb.connect(str(tmp_path / "out.duckdb")) as connection:
        assert connection.execute('select k from "odd ""name""; drop table x"').fetchall() == [(1,)]
