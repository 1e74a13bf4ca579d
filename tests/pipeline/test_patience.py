"""Tuples that wait across micro-batches, on real Spark: max_delay, retry, idle streams, and micro-batches that are run again."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from enriching import expected, forget_commit, table, write_files
from piping import letters, pipeline, values, written

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.pipeline.ledger import Ledger, who_waits

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("pipeline")]

KEYS = {"k": "k"}
PADDING = "." * 300  # a dozen rows a page


def sides(tuples: int = 800, keys: int = 2000) -> tuple[pa.Table, pa.Table]:
    stream = table(
        k=pa.array([None if i % 97 == 0 else i * 7919 % (keys + 100) for i in range(tuples)], pa.int64()),
        n=pa.array(range(tuples), pa.int64()),
    )
    return stream, table(k=pa.array(range(keys), pa.int64()), v=[f"value {i} {PADDING}" for i in range(keys)])


@pytest.fixture
def shop(tmp_path):
    """Eight files of a stream and a master of some two hundred pages."""
    stream, master = sides()
    write_files(tmp_path / "in", *[stream.slice(i * 100, 100) for i in range(8)])
    ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)
    return tmp_path, stream, master


@pytest.mark.parametrize("algorithm", ["r-meshjoin", "auto"])  # test_holding.py has them all
def test_kept_then_drained(spark, shop, algorithm):
    folder, stream, master = shop
    config = values(folder, algorithm=algorithm, max_delay="1h", cycles=4)
    report = pipeline(folder, config).run(spark=spark)
    assert report.adds_up
    accounts = report.accounts["master"]
    assert accounts.arrived == 800
    assert accounts.waiting > 0
    assert report.waiting[0].reason == "delay"
    assert report.ledger.startswith(f"the ledger keeps {accounts.waiting:,} tuples")
    config["pipeline"]["on_stop"] = "drain"
    report = pipeline(folder, config).run(spark=spark)
    assert report.accounts["master"].answered == 800
    assert report.ledger == "the ledger is empty"
    assert written(folder, "parquet") == expected(stream, master, KEYS, "left")


def test_a_scan_is_shared_by_micro_batches(spark, shop):
    """Counted: a micro-batch reads no more than 1.05 / cycles of the master, over all tasks together."""
    folder, stream, _ = shop
    store = ss.open_master(folder / "master")
    told = []
    config = values(folder, algorithm="meshjoin", max_delay="1h", cycles=5)
    pipeline(folder, config).run(spark=spark, tell=told.append)
    assert len(told) == 8
    assert all(0 < batch.pages <= 1.05 * store.pages / 5 for batch in told)
    # Who came in one of the first four has met every page by the last of the eight.
    keyless = stream.slice(400)["k"].null_count
    assert told[-1].accounts["master"].answered == 400 + keyless
    outcome = Ledger(folder / "state").newest()
    assert 0 < outcome.bytes <= 1.05 * store.nbytes / 5


def test_the_ledger_can_be_read_by_anybody(spark, shop):
    folder, _, _ = shop
    config = values(folder, algorithm="meshjoin", max_delay="1h", cycles=5)
    pipeline(folder, config).run(spark=spark)
    outcome = Ledger(folder / "state").newest()
    (begun,) = {file.kind for file in outcome.of_kind("begun", "untouched")}
    rows = pa.concat_tables(
        [pq.read_table(outcome.path(file)) for file in outcome.of_kind(begun)]
    ).to_pylist()
    assert {row["semistream_reason"] for row in rows} == {"delay"}
    assert {row["n"] for row in rows} <= set(range(400, 800))
    (waiting,) = who_waits(outcome)
    assert waiting.tuples == len(rows)
    assert min(row["semistream_since"] for row in rows).timestamp() == pytest.approx(waiting.since_us / 1e6)


@pytest.mark.parametrize(
    ("algorithm", "sink"), [("meshjoin", "delta"), ("cmeshjoin", "duckdb"), ("chybridjoin", "parquet")]
)
def test_a_micro_batch_with_a_ledger_that_is_run_again(spark, shop, algorithm, sink):
    folder, stream, master = shop
    config = values(folder, sink=sink, algorithm=algorithm, max_delay="1h", cycles=4)
    pipeline(folder, config).run(spark=spark)
    forget_commit(folder / "state" / "checkpoint", 7)
    write_files(folder / "in", table(k=[3], n=[7000]), first=8)
    config["pipeline"]["on_stop"] = "drain"
    pipeline(folder, config).run(spark=spark)
    every = pa.concat_tables([stream, table(k=[3], n=[7000])])
    assert written(folder, sink) == expected(every, master, KEYS, "left")


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin"])
def test_an_idle_stream_strands_nobody(spark, shop, algorithm):
    """Nothing arrives after the eight files; everybody is answered when the delay is up."""
    folder, stream, master = shop
    config = values(folder, algorithm=algorithm, max_delay="3s")
    config["pipeline"]["trigger"] = "0s"
    config["source"]["options"]["maxFilesPerTrigger"] = 8
    running = pipeline(folder, config)
    told = []

    def tell(batch):
        told.append(batch)
        if batch.accounts["master"].answered == 800:
            running.stop()

    guard = threading.Timer(60, running.stop)
    guard.start()
    began = time.monotonic()
    report = running.run(spark=spark, tell=tell)
    guard.cancel()
    assert report.accounts["master"].answered == 800
    assert any(batch.accounts["master"].waiting for batch in told)
    assert time.monotonic() - began < 45
    assert written(folder, "parquet") == expected(stream, master, KEYS, "left")


@pytest.mark.parametrize("max_delay", ["0s", "1h"])
def test_rows_that_arrive_late(spark, tmp_path, max_delay):
    """Keys of 1,000 and more come after their tuples did, those of 2,000 and more never do."""
    stream, master = sides(tuples=600)
    write_files(tmp_path / "in", *[stream.slice(i * 200, 200) for i in range(3)])
    store = ss.build_master(master.slice(0, 1000), tmp_path / "master", key="k", page_bytes=4096)
    config = values(tmp_path, on_missing="retry", retry_for="1h", max_delay=max_delay, cycles=2)
    config["pipeline"]["on_stop"] = "drain"
    report = pipeline(tmp_path, config).run(spark=spark)
    keys = stream["k"].to_pylist()
    late = sum(k is not None and k >= 1000 for k in keys)
    assert report.adds_up
    assert report.accounts["master"].waiting == late
    assert [waiting.reason for waiting in report.waiting] == ["missing"]
    assert report.accounts["master"].dead == keys.count(None)
    store.append(master.slice(1000))
    write_files(tmp_path / "in", table(k=[5], n=[9000]), first=3)
    report = pipeline(tmp_path, config).run(spark=spark)
    every = pa.concat_tables([stream, table(k=[5], n=[9000])])
    assert written(tmp_path, "parquet") == expected(every, master, KEYS, "inner")
    never = [n for k, n in zip(keys, range(600), strict=True) if k is not None and k >= 2000]
    assert report.accounts["master"].waiting == len(never)
    config["enrich"][0]["retry_for"] = "1ms"
    write_files(tmp_path / "in", table(k=[6], n=[9001]), first=4)
    report = pipeline(tmp_path, config).run(spark=spark)
    assert report.adds_up
    assert report.accounts["master"].waiting == 0
    found = letters(tmp_path)
    assert Counter(row["n"] for row in found) == Counter(
        [*never, *(n for k, n in zip(keys, range(600), strict=True) if k is None)]
    )
    assert written(tmp_path, "parquet").total() + len(found) == 602


def test_an_idle_stream_sees_a_row_that_arrives_late(spark, tmp_path):
    stream = table(k=[1, 2], n=[0, 1])
    write_files(tmp_path / "in", stream)
    store = ss.build_master(table(k=[1], v=["one"]), tmp_path / "master", key="k", page_bytes=4096)
    config = values(tmp_path, on_missing="retry", retry_for="1h", retry_every="200ms")
    config["pipeline"]["trigger"] = "0s"
    running = pipeline(tmp_path, config)
    seen = []

    def tell(batch):
        seen.append(batch.accounts["master"])
        if len(seen) == 2:
            store.append(table(k=[2], v=["two"]))
        if seen[-1].answered == 2:
            running.stop()

    guard = threading.Timer(60, running.stop)
    guard.start()
    report = running.run(spark=spark, tell=tell)
    guard.cancel()
    assert [accounts.waiting for accounts in seen[:2]] == [1, 1]
    assert report.accounts["master"].answered == 2
    assert written(tmp_path, "parquet") == Counter({(1, 0, "one"): 1, (2, 1, "two"): 1})


def test_a_pipeline_must_not_forget_who_waits(spark, shop):
    folder, _, _ = shop
    pipeline(folder, values(folder, algorithm="meshjoin", max_delay="1h", cycles=4)).run(spark=spark)
    with pytest.raises(InvalidInputError, match="tuples that wait at master"):
        pipeline(folder, values(folder)).run(spark=spark)
