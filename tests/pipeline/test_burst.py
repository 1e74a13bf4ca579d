"""More arrives than a pipeline may serve, on real Spark: nothing is lost or doubled, and the backlog returns to nothing."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest
from enriching import expected, forget_commit, table, write_files
from piping import pipeline, values, written

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.pipeline.ledger import Ledger, who_waits
from semistream.shedding import WEIGHT_COLUMN
from semistream.spark.metrics import BatchId, counts_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("pipeline")]

KEYS = 2000
MASTER = table(
    k=pa.array(range(KEYS), pa.int64()),
    v=[f"value {i} {'.' * 300}" for i in range(KEYS)],
    w=[float(i) for i in range(KEYS)],
)


def burst(folder, *sizes: int) -> pa.Table:
    """A file for each micro-batch, with so many tuples; one of ten has no master row."""
    total = sum(sizes)
    stream = table(
        k=pa.array([(n * 7919) % (KEYS + 200) for n in range(total)], pa.int64()),
        n=pa.array(range(total), pa.int64()),
    )
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [stream.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]
    write_files(folder / "in", *parts)
    return stream


@pytest.fixture
def folder(tmp_path):
    ss.build_master(MASTER, tmp_path / "master", key="k", page_bytes=4096)
    return tmp_path


def joined(stream: pa.Table, how: str = "left") -> Counter:
    return expected(stream, MASTER, {"k": "k"}, how)


def test_ten_times_the_usual_rate(spark, folder):
    """Three micro-batches of it; then nothing more arrives, and who was shed comes back by itself."""
    sizes = (100, 100, 1000, 1000, 1000, 100, 100)
    stream = burst(folder, *sizes)
    config = values(folder, algorithm="chybridjoin", memory="1MB")
    config["pipeline"]["trigger"] = "0s"
    config["overload"] = {"strategy": "considering", "batch_limit": 300}
    running = pipeline(folder, config)
    told = []

    def tell(batch):
        told.append(batch)
        if batch.accounts["master"].answered == sum(sizes):
            running.stop()

    guard = threading.Timer(400, running.stop)
    guard.start()
    report = running.run(spark=spark, tell=tell)
    guard.cancel()
    accounts = [batch.accounts["master"] for batch in told]
    assert all(one.adds_up for one in accounts)
    assert max(one.shed for one in accounts) > 1000
    assert (report.accounts["master"].answered, report.accounts["master"].shed) == (sum(sizes), 0)
    assert report.ledger == "the ledger is empty"
    assert written(folder, "parquet") == joined(stream)
    assert [batch.load for batch in told[:4]] == ["calm", "calm", "overloaded", "overloaded"]
    assert told[-1].load == "calm"
    query = Ledger(folder / "state").newest().query
    counts = [counts_of(BatchId(query, batch.batch)).get("master") for batch in told]
    served = [each for each in counts if each is not None and each.tuples]
    assert all(0 < each.used_bytes <= each.budget_bytes == 1_000_000 for each in served)
    assert sum(each.tuples for each in served) == sum(sizes)


@pytest.mark.parametrize("strategy", ["upfront", "random"])
def test_kept_in_the_ledger_then_drained(spark, folder, strategy):
    stream = burst(folder, 100, 800, 100)
    config = values(folder, sink="delta", algorithm="auto")
    config["overload"] = {"strategy": strategy, "batch_limit": 250}
    report = pipeline(folder, config).run(spark=spark)
    accounts = report.accounts["master"]
    assert report.adds_up
    assert accounts.shed > 400
    (waiting,) = who_waits(Ledger(folder / "state").newest())
    assert (waiting.reason, waiting.tuples) == ("shed", accounts.shed)
    # Run again before Spark had noted its end, the last micro-batch is what it was.
    forget_commit(folder / "state" / "checkpoint", 2)
    config["pipeline"]["on_stop"] = "drain"
    report = pipeline(folder, config).run(spark=spark)
    assert (report.accounts["master"].answered, report.ledger) == (1000, "the ledger is empty")
    assert written(folder, "delta") == joined(stream)


def test_by_the_time_that_micro_batches_take(spark, folder):
    """The first one is small and tells how fast it goes; the second has far more tuples than go into a millisecond."""
    stream = burst(folder, 20, 3000)
    config = values(folder, algorithm="hybridjoin", max_delay="1h", cycles=2)
    config["overload"] = {"strategy": "upfront", "batch_time": "1ms"}
    report = pipeline(folder, config).run(spark=spark)
    assert report.adds_up
    assert report.accounts["master"].shed > 1000
    del config["overload"]
    config["pipeline"]["on_stop"] = "drain"
    report = pipeline(folder, config).run(spark=spark)
    assert report.accounts["master"].answered == 3020
    assert written(folder, "parquet") == joined(stream)


def test_a_sample_tells_of_everything(spark, folder):
    stream = burst(folder, 200, 4000, 2000, 300)
    config = values(folder, on_missing="drop", columns=["w"])
    config["overload"] = {"strategy": "random", "fate": "dropped", "batch_limit": 1000, "sum_of": ["w"]}
    report = pipeline(folder, config).run(spark=spark)
    accounts, sample = report.accounts["master"], report.sample
    assert report.adds_up
    assert accounts.arrived == 6500 == accounts.answered + accounts.dropped
    assert sample.scale_up == pytest.approx(6500 / accounts.answered)
    exactly = joined(stream, "inner")
    weight = sum(row[2] * count for row, count in written(folder, "parquet").items())
    assert weight == pytest.approx(sample.count.value, rel=0.05)  # which knows how many arrived
    assert 0 < sample.count.error < 0.1 * exactly.total()
    assert abs(sample.count.value - exactly.total()) < 2 * sample.count.error
    revenue = sum(row[3] * count for row, count in exactly.items())
    assert 0 < sample.sums["w"].error < 0.2 * revenue
    assert abs(sample.sums["w"].value - revenue) < 2 * sample.sums["w"].error
    assert report.to_json()["sample"]["sums"]["w"]["error"] == sample.sums["w"].error


def test_what_cannot_be_summed_is_told(spark, folder):
    burst(folder, 10)
    config = values(folder)
    config["overload"] = {"strategy": "random", "fate": "dropped", "batch_limit": 10, "sum_of": ["ww"]}
    with pytest.raises(InvalidInputError, match="Did you mean 'w'"):
        pipeline(folder, config).run(spark=spark)
    config["overload"]["sum_of"] = ["v"]
    with pytest.raises(InvalidInputError, match="Name one of numbers"):
        pipeline(folder, config).run(spark=spark)
    config["source"]["schema"] += f", {WEIGHT_COLUMN} double"
    with pytest.raises(InvalidInputError, match=WEIGHT_COLUMN):
        pipeline(folder, config).run(spark=spark)


def test_who_was_shed_is_not_forgotten(spark, folder):
    burst(folder, 100, 500)
    config = values(folder)
    config["overload"] = {"strategy": "upfront", "batch_limit": 100}
    pipeline(folder, config).run(spark=spark)
    del config["overload"]
    with pytest.raises(InvalidInputError, match="400 tuples that wait at master"):
        pipeline(folder, config).run(spark=spark)
