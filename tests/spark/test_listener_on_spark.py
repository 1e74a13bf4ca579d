"""The listener on queries that run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheuspage import figures

import semistream as ss
from semistream.spark.listener import BatchMetrics, MetricsListener


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestOnSpark:
    """Queries over files, one file a micro-batch; the counts are worked out from the keys again."""

    @pytest.fixture
    def sales(self, spark, tmp_path):
        """Where files of sales are put, and a stream over them in two partitions."""
        directory = tmp_path / "sales"
        directory.mkdir()
        stream = spark.readStream.schema("product_id long, region_id long").option("maxFilesPerTrigger", 1)
        return SimpleNamespace(directory=directory, df=stream.parquet(str(directory)).repartition(2))

    @staticmethod
    def put(directory: Path, number: int, rows: int) -> pa.Table:
        """A file of so many sales: of products 0..1999 and regions 0..19."""
        rng = np.random.default_rng(number)
        table = pa.table({"product_id": rng.integers(0, 2_000, rows), "region_id": rng.integers(0, 20, rows)})
        pq.write_table(table, directory / f".{number}")
        (directory / f".{number}").rename(directory / f"{number}.parquet")
        return table

    @staticmethod
    def master(path: Path, key: str, n_keys: int) -> ss.Master:
        keys = np.arange(n_keys)
        return ss.build_master(pa.table({key: keys, f"{key}_name": keys.astype(str)}), path, key=key)

    @pytest.fixture
    def products(self, tmp_path) -> ss.Master:
        return self.master(tmp_path / "products", "product_id", 1_000)

    @staticmethod
    def start(df, name: str, checkpoint: Path):
        writer = df.writeStream.format("memory").queryName(name).option("checkpointLocation", str(checkpoint))
        return writer.start()

    @staticmethod
    def heard(spark) -> None:
        """Wait until Spark has delivered every event there is."""
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)

    @pytest.fixture
    def listening(self, spark):
        """Add listeners for the length of a test."""
        added: list[MetricsListener] = []

        def add(to: object) -> MetricsListener:
            added.append(MetricsListener(to=to))
            spark.streams.addListener(added[-1])
            return added[-1]

        yield add
        for listener in added:
            spark.streams.removeListener(listener)
            listener.close()

    def test_records_add_up_to_what_went_in(self, spark, sales, products, listening, tmp_path):
        regions = self.master(tmp_path / "regions", "region_id", 5)
        put = [self.put(sales.directory, i, rows) for i, rows in enumerate((3_000, 1_000, 2_000))]
        records: list[BatchMetrics] = []
        listening(records.append)
        listening(tmp_path / "metrics.jsonl")
        df = ss.enrich(sales.df, products, on="product_id", how="left", memory="8MB")
        df = ss.enrich(df, regions, on="region_id", memory="8MB", label="where")
        began = datetime.now(UTC)
        query = self.start(df, "sales_told", tmp_path / "checkpoint")
        try:
            query.processAllAvailable()
            self.heard(spark)
        finally:
            query.stop()

        assert [(r.batch_id, r.enrichment) for r in records] == [
            (batch, label) for batch in range(3) for label in ("products", "where")
        ]
        assert {(r.query_id, r.query_name) for r in records} == {(query.id, "sales_told")}
        for name, column, n_keys in (("products", "product_id", 1_000), ("where", "region_id", 5)):
            expected = [
                (
                    t.num_rows,
                    t.num_rows,
                    sum(t[column].to_numpy() < n_keys),
                    sum(t[column].to_numpy() >= n_keys),
                )
                for t in put
            ]
            told = [r for r in records if r.enrichment == name]
            assert sorted(
                (r.input_rows, r.counts.tuples, r.counts.matches, r.counts.misses) for r in told
            ) == (sorted(expected))
        assert sum(r.counts.rows for r in records if r.enrichment == "where") == (
            spark.table("sales_told").count()
        )
        for r in records:
            assert 0 < r.counts.used_bytes <= r.counts.budget_bytes == 8_000_000
            assert r.counts.version == 1
            assert r.duration_ms > 0
            assert 0 <= (datetime.fromisoformat(r.time) - began).total_seconds() < 600
        lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == [r.to_dict() for r in records]

    def test_the_prometheus_page_adds_up_over_micro_batches(
        self, spark, sales, products, listening, tmp_path
    ):
        listener = listening("prometheus:0")
        df = ss.enrich(sales.df, products, on="product_id", memory="8MB")
        query = self.start(df, "sales_page", tmp_path / "checkpoint")
        tuples = matches = 0
        try:
            for i, rows in enumerate((700, 1_100)):
                put = self.put(sales.directory, i, rows)
                tuples, matches = tuples + rows, matches + sum(put["product_id"].to_numpy() < 1_000)
                query.processAllAvailable()
                self.heard(spark)
                found = figures(listener.address)
                assert {
                    name: found["sales_page", "products", f"{name}_total"]
                    for name in ("batches", "tuples", "matches", "misses", "rows")
                } == {
                    "batches": i + 1,
                    "tuples": tuples,
                    "matches": matches,
                    "misses": tuples - matches,
                    "rows": matches,
                }
        finally:
            query.stop()

    def test_a_query_without_enrichment_is_not_told_of(self, spark, sales, products, listening, tmp_path):
        self.put(sales.directory, 0, 100)
        records: list[BatchMetrics] = []
        listening(records.append)
        enriched = ss.enrich(sales.df, products, on="product_id", memory="8MB")
        for name, df in (("sales_plain", sales.df), ("sales_rich", enriched)):
            query = self.start(df, name, tmp_path / name)
            try:
                query.processAllAvailable()
            finally:
                query.stop()
        self.heard(spark)
        assert [r.query_name for r in records] == ["sales_rich"]

    def test_a_sink_that_fails_ends_no_query(self, spark, sales, products, listening, tmp_path, capsys):
        put = [self.put(sales.directory, i, 500) for i in range(3)]
        calls: list[BatchMetrics] = []

        def failing(record: BatchMetrics) -> None:
            calls.append(record)
            raise RuntimeError("the sink is out of order")

        listening(failing)
        df = ss.enrich(sales.df, products, on="product_id", memory="8MB")
        query = self.start(df, "sales_untold", tmp_path / "checkpoint")
        try:
            query.processAllAvailable()
            self.heard(spark)
            assert query.exception() is None
        finally:
            query.stop()
        assert len(calls) == 1
        assert capsys.readouterr().err.count("RuntimeError: the sink is out of order") == 1
        assert spark.table("sales_untold").count() == sum(
            sum(t["product_id"].to_numpy() < 1_000) for t in put
        )
