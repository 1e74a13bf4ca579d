"""Pipelines on real Spark: sources, enrichments, sinks, and micro-batches that are run again."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from enriching import expected, forget_commit, many_to_many, table, write_files
from piping import SINKS, letters, pipeline, values, written

import semistream as ss
from semistream.errors import InvalidInputError, StoreError
from semistream.pipeline.ledger import Ledger
from semistream.workload import Workload

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("pipeline")]

KEYS = {"k": "k"}


@pytest.fixture
def shop(tmp_path):
    """Three files of a stream and a master, where `piping.values` expects them."""
    stream, master = many_to_many()
    parts = [stream.slice(0, 1000), stream.slice(1000, 1500), stream.slice(2500)]
    write_files(tmp_path / "in", *parts)
    ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)
    return tmp_path, stream, master


@pytest.mark.parametrize("sink", SINKS)
def test_every_sink(spark, shop, sink):
    folder, stream, master = shop
    told = []
    report = pipeline(folder, values(folder, sink=sink)).run(spark=spark, tell=told.append)
    wanted = expected(stream, master, KEYS, "left")
    assert written(folder, sink, spark) == wanted
    assert (report.batches, report.rows) == (3, wanted.total())
    assert report.ended == "all there was is done"
    assert report.adds_up
    accounts = report.accounts["master"]
    assert (accounts.arrived, accounts.answered) == (3000, 3000)
    assert report.ledger == "the ledger is empty"
    assert [batch.rows for batch in told] == [
        expected(part, master, KEYS, "left").total()
        for part in (stream.slice(0, 1000), stream.slice(1000, 1500), stream.slice(2500))
    ]


@pytest.mark.parametrize("sink", SINKS)
def test_a_micro_batch_that_is_run_again(spark, shop, sink):
    """Sink committed, checkpoint not: run again it changes nothing, and the stream goes on."""
    folder, stream, master = shop
    config = values(folder, sink=sink)
    pipeline(folder, config).run(spark=spark)
    forget_commit(folder / "state" / "checkpoint", 2)
    told = []
    report = pipeline(folder, config).run(spark=spark, tell=told.append)
    assert [(batch.batch, batch.sink) for batch in told] == [(2, "there already")]
    assert written(folder, sink, spark) == expected(stream, master, KEYS, "left")
    assert report.accounts["master"].arrived == 3000
    more = table(k=[1, 2], n=[5000, 5001])
    write_files(folder / "in", more, first=3)
    pipeline(folder, config).run(spark=spark)
    assert written(folder, sink, spark) == expected(pa.concat_tables([stream, more]), master, KEYS, "left")


@pytest.mark.parametrize("sink", ["delta", "duckdb", "parquet"])
def test_a_micro_batch_that_was_decided_but_not_written(spark, shop, sink, monkeypatch):
    """What was decided stands, though the master has changed since."""
    folder, stream, master = shop
    config = values(folder, sink=sink)
    config["sink"]["path"] = config["sink"]["path"]
    from semistream.pipeline import sinks

    real = sinks.Guarded.write

    def fail(self, files, *, query, batch):
        if batch == 1:
            raise StoreError("the sink", found="no electricity", hint="Wait.")
        return real(self, files, query=query, batch=batch)

    monkeypatch.setattr(sinks.Guarded, "write", fail)
    with pytest.raises(StoreError, match="no electricity"):
        pipeline(folder, config).run(spark=spark)
    monkeypatch.undo()
    decided = Ledger(folder / "state").newest()
    assert decided.batch == 1
    ss.open_master(folder / "master").upsert(table(k=[1], v=["changed"], w=pa.array([0], pa.int32())))
    pipeline(folder, config).run(spark=spark)
    old = expected(stream.slice(0, 2500), master, KEYS, "left")
    rest = [row for row in master.to_pylist() if row["k"] != 1]
    new = pa.concat_tables(
        [pa.Table.from_pylist(rest, master.schema), table(k=[1], v=["changed"], w=pa.array([0], pa.int32()))]
    )
    assert written(folder, sink) == old + expected(stream.slice(2500), new, KEYS, "left")


@pytest.mark.parametrize(("on_missing", "how"), [("null", "left"), ("drop", "inner")])
def test_missing_rows(spark, shop, on_missing, how):
    folder, stream, master = shop
    report = pipeline(folder, values(folder, on_missing=on_missing)).run(spark=spark)
    assert written(folder, "parquet") == expected(stream, master, KEYS, how)
    assert report.accounts["master"].answered == 3000


def test_a_star_of_instant_and_patient_enrichments(spark, shop):
    """Instant, patient, retrying, instant: in whatever order, every tuple comes through once."""
    folder, stream, master = shop
    names = table(w=pa.array(range(0, 401, 2), pa.int32()), name=[f"name {i}" for i in range(0, 401, 2)])
    tags = table(n=pa.array(range(2000), pa.int64()), tag=[f"tag {i}" for i in range(2000)])
    last = table(name=[f"name {i}" for i in range(0, 100, 2)], first=range(50))
    ss.build_master(names, folder / "names", key="w", page_bytes=4096)
    ss.build_master(tags, folder / "tags", key="n", page_bytes=4096)
    ss.build_master(last, folder / "last", key="name", page_bytes=4096)
    config = values(folder, on_missing="drop")
    config["pipeline"]["on_stop"] = "drain"
    config["enrich"] += [
        {"master": "names", "on": "w", "memory": "2MB", "algorithm": "meshjoin", "max_delay": "1h"},
        {"master": "tags", "on": "n", "memory": "2MB", "on_missing": "retry", "retry_for": "0s"},
        {"master": "last", "on": "name", "memory": "2MB"},
    ]
    report = pipeline(folder, config).run(spark=spark)
    by_w = dict(zip(names["w"].to_pylist(), names["name"].to_pylist(), strict=True))
    by_name = dict(zip(last["name"].to_pylist(), last["first"].to_pylist(), strict=True))
    wanted, dead = Counter(), Counter()
    for (k, n, v, w), count in expected(stream, master, KEYS, "inner").items():
        name = by_w.get(w)
        if n < 2000:
            wanted[k, n, v, w, name, f"tag {n}", by_name.get(name)] += count
        else:
            dead[k, n, v, w, name] += count
    assert written(folder, "parquet") == wanted
    assert (
        Counter(tuple(row[c] for c in ("k", "n", "v", "w", "name")) for row in letters(folder, "tags"))
        == dead
    )
    assert report.adds_up
    assert {label: accounts.waiting for label, accounts in report.accounts.items()} == dict.fromkeys(
        ("master", "names", "tags", "last"), 0
    )
    assert report.accounts["tags"].dead == dead.total()
    assert report.accounts["last"].answered == wanted.total()


def test_the_workload_source(spark, tmp_path):
    options = {"n_keys": 500, "columns": "n:position,k:key", "rows": 5000, "seed": 3}
    master = table(k=range(0, 500, 2), v=[f"v{i}" for i in range(250)])
    ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)
    config = values(tmp_path)
    config["source"] = {
        "format": "semistream-workload",
        "options": {**options, "pace": "none", "max_rows_per_batch": 2000},
    }
    report = pipeline(tmp_path, config).run(spark=spark)
    stream = Workload.from_options({k: str(v) for k, v in options.items()}).reader().read_all()
    assert written(tmp_path, "parquet") == expected(stream, master, KEYS, "left")
    assert report.batches == 3


def test_the_rate_source(spark, tmp_path):
    master = table(k=range(100), v=[f"v{i}" for i in range(100)])
    ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)
    config = values(tmp_path, on={"value": "k"})
    config["source"] = {"format": "rate-micro-batch", "options": {"rowsPerBatch": 30, "numPartitions": 2}}
    config["pipeline"]["trigger"] = "0s"
    running = pipeline(tmp_path, config)
    report = running.run(spark=spark, tell=lambda batch: running.stop() if batch.batch >= 2 else None)
    assert report.ended == "stopped"
    found = written(tmp_path, "parquet")
    count = report.accounts["master"].arrived
    assert count >= 90
    assert Counter((value, v) for _, value, v in found.elements()) == Counter(
        (n, f"v{n}" if n < 100 else None) for n in range(count)
    )


def test_a_failing_job_leaves_nothing(spark, shop):
    folder, _, _ = shop
    config = values(folder)
    for pages in (folder / "master" / "pages").rglob("*"):
        if pages.is_file():
            pages.chmod(0o600)
            pages.write_bytes(b"\0" * pages.stat().st_size)
    with pytest.raises(StoreError):
        pipeline(folder, config).run(spark=spark)
    assert Ledger(folder / "state").newest() is None
    assert list((folder / "out").iterdir()) == []


def test_what_cannot_work_is_told_before_anything_runs(spark, shop):
    folder, _, _ = shop
    config = values(folder)
    config["source"]["format"] = "carrier-pigeon"
    with pytest.raises(InvalidInputError, match="carrier-pigeon") as caught:
        pipeline(folder, config).run(spark=spark)
    assert "classpath" in caught.value.hint
    config = values(folder)
    del config["source"]["schema"]
    with pytest.raises(InvalidInputError) as caught:
        pipeline(folder, config).run(spark=spark)
    assert "schema" in caught.value.hint
    with pytest.raises(InvalidInputError, match="nobody"):
        pipeline(folder, values(folder, on="nobody")).run(spark=spark)
    assert not (folder / "state" / "checkpoint").exists()


def test_a_checkpoint_without_its_ledger_is_refused(spark, shop):
    folder, _, _ = shop
    config = values(folder)
    pipeline(folder, config).run(spark=spark)
    import shutil

    shutil.rmtree(folder / "state" / "ledger")
    write_files(folder / "in", table(k=[1], n=[9]), first=3)
    with pytest.raises(StoreError, match="belong together"):
        pipeline(folder, config).run(spark=spark)
    shutil.rmtree(folder / "state" / "checkpoint")
