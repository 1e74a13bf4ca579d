from __future__ import annotations

import pickle
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.workload import ArrivalTime, Constant, Key, Poisson, Position, Workload, Zipf, open_trace

SCHEMA = (Position("id"), Key("k"), ArrivalTime("t"))


@pytest.fixture(scope="module")
def recorded() -> pa.Table:
    workload = Workload(Zipf(100), 1000, arrivals=Poisson(10.0), columns=SCHEMA)
    return pa.Table.from_batches([workload.slice(0, 1000)])


@pytest.fixture(scope="module", params=["parquet", "arrow", "feather"])
def trace_directory(request, recorded, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    for number, (start, rows) in enumerate([(0, 300), (300, 1), (301, 699)]):
        part = recorded.slice(start, rows)
        path = directory / f"part-{number}.{request.param}"
        if request.param == "parquet":
            pq.write_table(part, path, row_group_size=128)
        elif request.param == "feather":
            feather.write_feather(part, path, chunksize=128, compression="lz4")
        else:
            with pa.ipc.new_file(path, part.schema) as writer:
                writer.write_table(part, max_chunksize=128)
    (directory / "_SUCCESS").touch()
    return directory


@given(cuts=st.lists(st.integers(0, 1000), min_size=2, max_size=2))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_slice_is_what_was_recorded(trace_directory, recorded, cuts):
    start, stop = sorted(cuts)
    batch = open_trace(trace_directory).slice(start, stop)
    assert pa.Table.from_batches([batch]).equals(recorded.slice(start, stop - start).combine_chunks())


def test_the_files_come_in_order_of_name(trace_directory, recorded):
    trace = open_trace(trace_directory)
    assert trace.total_rows == 1000
    assert len(trace.pieces) == 3 + 1 + 6
    replayed = pa.Table.from_batches(trace.batches(batch_rows=90)).combine_chunks()
    assert replayed.equals(recorded.combine_chunks())


def test_a_list_of_files_is_taken_as_given(trace_directory):
    files = sorted(f for f in trace_directory.iterdir() if f.name != "_SUCCESS")
    ids = open_trace([files[2], files[0]]).slice(0, 999)["id"].to_pylist()
    assert ids == [*range(301, 1000), *range(300)]


def test_arrivals_come_from_the_named_column(trace_directory, recorded):
    trace = open_trace(trace_directory, arrival="t")
    moments = recorded["t"].cast(pa.int64()).to_numpy() / 1e6
    for seconds in (-1.0, 0.0, 0.5, 13.37, 50.0, 99.0, 1e9):
        assert trace.arrived_by(seconds) == int((moments - moments[0] <= seconds + 1e-9).sum())


def test_seconds_serve_as_arrivals_too(tmp_path):
    pq.write_table(
        pa.table({"k": [1, 2, 3, 4], "s": [10.0, 10.5, 10.5, 12.0]}), tmp_path / "a.parquet", row_group_size=2
    )
    trace = open_trace(tmp_path, arrival="s")
    assert [trace.arrived_by(s) for s in (0.0, 0.4, 0.5, 1.9, 2.0)] == [1, 1, 3, 3, 4]


def test_a_process_can_time_a_trace(trace_directory):
    trace = open_trace(trace_directory, arrivals=Constant(10.0))
    assert [trace.arrived_by(s) for s in (0.0, 1.0, 1e6)] == [0, 10, 1000]


def test_without_times_everything_is_there_at_once(trace_directory):
    assert open_trace(trace_directory).arrived_by(0.0) == 1000


def test_a_trace_travels_between_processes(trace_directory):
    trace = open_trace(trace_directory, arrival="t")
    again = pickle.loads(pickle.dumps(trace))  # noqa: S301
    assert again == trace
    assert again.slice(250, 350).equals(trace.slice(250, 350))


def test_views_become_plain_strings(tmp_path):
    table = pa.table(
        {"s": pa.array(["a", "b"], pa.string_view()), "b": pa.array([b"x", b"y"], pa.binary_view())}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    trace = open_trace(tmp_path)
    assert trace.schema == pa.schema({"s": pa.string(), "b": pa.binary()})
    assert trace.slice(0, 2).to_pydict() == {"s": ["a", "b"], "b": [b"x", b"y"]}


def test_an_empty_trace_is_empty(tmp_path):
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    trace = open_trace(tmp_path, arrival="k")
    assert trace.total_rows == 0
    assert trace.arrived_by(5.0) == 0
    assert list(trace.batches()) == []
    assert trace.slice(0, 0).num_rows == 0


def test_times_that_go_back_are_refused(tmp_path):
    times = [datetime(2024, 1, d, tzinfo=UTC) for d in (1, 3, 2)]
    pq.write_table(pa.table({"t": times}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="go back"):
        open_trace(tmp_path, arrival="t").arrived_by(1.0)


def test_times_that_are_missing_are_refused(tmp_path):
    pq.write_table(pa.table({"t": [1.0, None, 2.0]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="missing"):
        open_trace(tmp_path, arrival="t").arrived_by(1.0)


def test_refuses_what_is_no_trace(tmp_path, recorded):
    pq.write_table(recorded, tmp_path / "a.parquet")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "b.parquet")
    (tmp_path / "c.csv").touch()
    (tmp_path / "empty").mkdir()
    for paths, options, says in [
        (tmp_path / "nothing.parquet", {}, "no such file"),
        (tmp_path / "c.csv", {}, "a file that ends in '.csv'"),
        (tmp_path / "empty", {}, "no Parquet or Arrow file there"),
        ([], {}, "no file"),
        (tmp_path, {}, "other columns"),
        (tmp_path / "a.parquet", {"arrival": "time"}, "columns id, k, t"),
        (tmp_path / "b.parquet", {"arrival": "other", "arrivals": Constant()}, "both"),
    ]:
        with pytest.raises(InvalidInputError) as refused:
            open_trace(paths, **options)
        assert says in str(refused.value)


def test_text_cannot_be_an_arrival(tmp_path):
    pq.write_table(pa.table({"t": ["noon"]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="a column of string"):
        open_trace(tmp_path, arrival="t")


def test_a_replay_in_order_reads_each_piece_once(trace_directory, monkeypatch):
    from semistream.workload import trace as module

    reads = []
    original = module._read.__wrapped__
    module._read.cache_clear()

    def counted(path, index, schema):
        reads.append((path, index))
        return original(path, index, schema)

    monkeypatch.setattr(module, "_read", module.lru_cache(maxsize=3)(counted))
    trace = open_trace(trace_directory)
    assert sum(b.num_rows for b in trace.batches(batch_rows=50)) == 1000
    assert np.unique(reads, axis=0).shape[0] == len(reads) == len(trace.pieces)
