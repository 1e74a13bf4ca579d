"""A join can be stopped after any step and gone on with, from the snapshot and the rest of the stream alone."""

from __future__ import annotations

import io
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import expected, multiset

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.joins import Settings

FIXED = [name for name in ss.ALGORITHMS if name != "auto"]


def through_a_file(batch: pa.RecordBatch) -> pa.RecordBatch:
    file = io.BytesIO()
    with pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_file(io.BytesIO(file.getvalue())) as reader:
        return reader.get_batch(0)


@pytest.mark.parametrize("algorithm", FIXED)
@given(drawn=st.data())
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_resume_at_every_step(algorithm, drawn, tmp_path_factory):
    masters = drawn.draw(st.lists(st.integers(0, 40), min_size=1, max_size=60))
    keys = drawn.draw(st.lists(st.none() | st.integers(0, 50), min_size=1, max_size=60))
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    rows = drawn.draw(st.integers(1, 30))
    master = pa.table({"k": pa.array(masters, pa.int64()), "v": [f"{i:0200d}" for i in range(len(masters))]})
    built = ss.build_master(master, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)
    stream = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(len(keys)), pa.int64())})
    want = expected(stream, master, ["k"], how)

    def start(batches, **more):
        return ss.join(
            pa.RecordBatchReader.from_batches(stream.schema, batches),
            built,
            on="k",
            how=how,
            algorithm=algorithm,
            memory=200_000,
            disk="buffered",
            settings=Settings(disk_buffer=4096, per_step=drawn.draw(st.just(5)), parallel=2),
            **more,
        )

    stop = 0
    while True:
        source = iter(stream.to_batches(max_chunksize=rows))
        joined = start(source)
        out: Counter = Counter()
        ended = True
        for number, answers in enumerate(joined._steps):
            for batch in answers:
                out += multiset(pa.Table.from_batches([batch]))
            if number == stop:
                ended = False
                break
        if ended:
            assert out == want
            break
        kept = through_a_file(joined.snapshot())
        joined._steps.close()
        resumed = start(source, resume=kept)
        for batch in resumed:
            out += multiset(pa.Table.from_batches([batch]))
        assert out == want, f"stopped after step {stop}"
        assert resumed.stats.tuples == resumed.stats.answered
        stop += 1
    assert stop > 0


def small(tmp_path):
    return ss.build_master(
        pa.table({"k": list(range(2000)), "v": list(range(2000))}), tmp_path / "s", key="k", page_bytes=4096
    )


def partly_joined(built, **more):
    joined = ss.join(
        pa.table({"k": list(range(1000))}),
        built,
        on="k",
        algorithm="meshjoin",
        memory=300_000,
        disk="buffered",
        settings=Settings(disk_buffer=4096, per_step=900),
        **more,
    )
    next(joined)
    list(joined.ready())
    return joined


def test_a_snapshot_belongs_to_its_version(tmp_path):
    built = small(tmp_path)
    kept = partly_joined(built).snapshot()
    newer = built.upsert(pa.table({"k": [1], "v": [-1]}))
    with pytest.raises(InvalidInputError, match=r"Open that version: open_master\(path, version=1\)"):
        list(ss.join(pa.table({"k": [1]}), newer, on="k", algorithm="meshjoin", memory=300_000, resume=kept))


def test_a_snapshot_needs_the_memory_it_had(tmp_path):
    built = small(tmp_path)
    kept = partly_joined(built).snapshot()
    options = {"algorithm": "meshjoin", "disk": "buffered", "settings": Settings(disk_buffer=4096)}
    with pytest.raises(InvalidInputError, match="at least as much memory as it had"):
        list(ss.join(pa.table({"k": [1]}), built, on="k", memory=40_000, resume=kept, **options))


def test_what_is_no_snapshot_is_refused(tmp_path):
    built = small(tmp_path)
    with pytest.raises(InvalidInputError, match=r"Pass what snapshot\(\) gave"):
        ss.join(pa.table({"k": [1]}), built, on="k", resume=pa.record_batch({"k": [1]}))
    kept = partly_joined(built).snapshot()
    with pytest.raises(InvalidInputError, match="a snapshot of a stream with"):
        list(ss.join(pa.table({"k": [1], "n": [2]}), built, on="k", algorithm="meshjoin", resume=kept))


def test_answers_are_handed_out_before_a_snapshot(tmp_path):
    built = small(tmp_path)
    joined = ss.join(
        pa.table({"k": [None, 1, 2]}), built, on="k", how="left", algorithm="in-memory", disk="buffered"
    )
    next(joined)
    joined._answers = iter([pa.record_batch({"k": [1]})])
    with pytest.raises(InvalidInputError, match=r"Take what ready\(\) gives first"):
        joined.snapshot()
    ordered = partly_joined(built, order="any")
    assert len(ordered.snapshot()) > 0
    ordered = ss.join(pa.table({"k": [1]}), built, on="k", order="stream", disk="buffered")
    with pytest.raises(InvalidInputError, match="holds answers back"):
        ordered.snapshot()
