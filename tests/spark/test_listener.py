from __future__ import annotations

import http.client
import io
import json
import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.spark import listener as listener_module
from semistream.spark.listener import BatchMetrics, MetricsListener
from semistream.spark.metrics import BatchId, Counts

COUNTS = Counts(
    tuples=50_000,
    matches=48_000,
    misses=2_000,
    rows=48_000,
    front_hits=40_000,
    pages=1_234,
    bytes=20_200_000,
    read_seconds=0.1251,
    join_seconds=0.5,
    budget_bytes=8 << 20,
    used_bytes=6 << 20,
    peak_rss_bytes=100 << 20,
    version=3,
)
QUERY_ID = "7c5f2c4e-0000-4000-8000-000000000001"
BATCH = SimpleNamespace(
    id=QUERY_ID,
    name="sales",
    batchId=7,
    timestamp="2026-01-02T03:04:05.678Z",
    batchDuration=2_000,
    numInputRows=50_001,
)
SERIES = re.compile(
    r'semistream_(\w+)\{query="((?:[^"\\]|\\.)*)",enrichment="((?:[^"\\]|\\.)*)"\} ([\d.e+-]+)'
)


def get(url: str) -> tuple[int, str, str]:
    """Status, content type and body of a page, fetched past whatever proxy the environment has."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=30)
    try:
        connection.request("GET", where.path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def figures(url: str) -> dict[tuple[str, str, str], float]:
    """The samples of a Prometheus page by query, enrichment and metric; each after its metric's type."""
    status, kind, page = get(url)
    assert status == 200
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[tuple[str, str, str], float] = {}
    declared = ""
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            declared, of_kind = line.removeprefix("# TYPE semistream_").split()
            assert of_kind == ("counter" if declared.endswith("_total") else "gauge")
        elif not line.startswith("# HELP "):
            name, query, enrichment, value = SERIES.fullmatch(line).groups()
            assert name == declared
            found[query, enrichment, name] = float(value)
    return found


class TestWithoutSpark:
    """Events as Spark would send them, counts as the workers would."""

    @pytest.fixture(autouse=True)
    def counted(self, monkeypatch) -> dict[BatchId, dict[str, Counts]]:
        counted = {BatchId(QUERY_ID, 7): {"products": COUNTS}}
        monkeypatch.setattr(listener_module, "counts_of", lambda batch: counted.get(batch, {}))
        return counted

    @staticmethod
    def tell(listener: MetricsListener, **changed: object) -> None:
        listener.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(**vars(BATCH) | changed)))

    def test_the_line_for_people(self, capsys):
        self.tell(MetricsListener())
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            "sales batch 7 products: 50,000 tuples (25,000/s), 48,000 matches, 2,000 misses, front stage 80.0%, "
            "1,234 pages (20.2 MB in 125.1 ms), 6.0 MiB of 8.0 MiB used\n"
        )

    def test_a_text_stream_gets_the_same_line(self, capsys):
        stream = io.StringIO()
        self.tell(MetricsListener(to=stream), name=None, batchDuration=0)
        assert stream.getvalue().startswith(f"{QUERY_ID} batch 7 products: 50,000 tuples (50,000,000/s), ")
        assert capsys.readouterr().err == ""

    def test_a_function_gets_the_record(self, counted):
        counted[BatchId(QUERY_ID, 7)]["customers"] = Counts(tuples=1)
        records: list[BatchMetrics] = []
        self.tell(MetricsListener(to=records.append))
        assert [r.enrichment for r in records] == ["customers", "products"]
        assert records[1] == BatchMetrics(
            query_id=QUERY_ID,
            query_name="sales",
            batch_id=7,
            enrichment="products",
            time="2026-01-02T03:04:05.678Z",
            duration_ms=2_000,
            input_rows=50_001,
            counts=COUNTS,
        )

    @pytest.mark.parametrize("as_given", [str, Path])
    def test_json_lines_are_appended_and_hold_every_count(self, tmp_path, as_given):
        path = tmp_path / "metrics.jsonl"
        path.write_text('{"from": "before"}\n')
        listener = MetricsListener(to=as_given(path))
        self.tell(listener)
        path.rename(tmp_path / "rotated")
        self.tell(listener)
        before, record = (json.loads(line) for line in (tmp_path / "rotated").read_text().splitlines())
        assert before == {"from": "before"}
        assert record == COUNTS.to_dict() | {
            "query_id": QUERY_ID,
            "query_name": "sales",
            "batch_id": 7,
            "enrichment": "products",
            "time": "2026-01-02T03:04:05.678Z",
            "duration_ms": 2_000,
            "input_rows": 50_001,
        }
        assert [json.loads(line) for line in path.read_text().splitlines()] == [record]

    def test_a_micro_batch_without_counts_tells_nothing(self, capsys):
        self.tell(MetricsListener(), batchId=8)
        assert capsys.readouterr().err == ""

    def test_counters_add_up_and_gauges_are_the_last(self, counted):
        counted[BatchId(QUERY_ID, 8)] = {"products": Counts(tuples=10, front_hits=1, used_bytes=5, version=4)}
        listener = MetricsListener(to="prometheus:0")
        try:
            self.tell(listener)
            self.tell(listener, batchId=8, batchDuration=500)
            found = figures(listener.address)
        finally:
            listener.close()
        assert {query: enrichment for query, enrichment, _ in found} == {"sales": "products"}
        assert {name: value for (*_, name), value in found.items()} == {
            "batches_total": 2,
            "batch_seconds_total": 2.5,
            "tuples_total": 50_010,
            "matches_total": 48_000,
            "misses_total": 2_000,
            "rows_total": 48_000,
            "front_hits_total": 40_001,
            "pages_total": 1_234,
            "read_bytes_total": 20_200_000,
            "read_seconds_total": 0.1251,
            "join_seconds_total": 0.5,
            "front_share": 0.1,
            "budget_bytes": 0,
            "used_bytes": 5,
            "peak_rss_bytes": 0,
            "master_version": 4,
        }

    def test_names_cannot_break_the_page(self, counted):
        counted[BatchId(QUERY_ID, 7)] = {'a"b\\c\nd': COUNTS}
        listener = MetricsListener(to="prometheus:0")
        try:
            self.tell(listener, name="é} 1")
            found = figures(listener.address)
        finally:
            listener.close()
        assert found["é} 1", r"a\"b\\c\nd", "tuples_total"] == 50_000

    def test_the_page_is_local_elsewhere_there_is_none_and_closing_gives_the_port_back(self):
        listener = MetricsListener(to="prometheus:0")
        address = listener.address
        try:
            assert address.startswith("http://127.0.0.1:")
            assert address.endswith("/metrics")
            assert get(address.replace("/metrics", "/"))[0] == 200
            assert get(address.replace("/metrics", "/etc/passwd"))[0] == 404
            taken = f"prometheus:{urlsplit(address).port}"
            with pytest.raises(InvalidInputError, match=r"cannot be listened on .* Choose another port"):
                MetricsListener(to=taken)
        finally:
            listener.close()
        assert listener.address is None
        listener.close()
        with pytest.raises(ConnectionError):
            get(address)
        again = MetricsListener(to=taken)
        again.close()

    def test_the_page_can_be_served_to_other_hosts(self):
        listener = MetricsListener(to="prometheus:0.0.0.0:0")
        try:
            assert listener.address.startswith("http://0.0.0.0:")
            assert get(f"http://127.0.0.1:{urlsplit(listener.address).port}/metrics")[0] == 200
        finally:
            listener.close()

    def test_a_client_that_says_nothing_holds_nobody_up(self):
        listener = MetricsListener(to="prometheus:0")
        try:
            where = urlsplit(listener.address)
            with socket.create_connection((where.hostname, where.port)):
                assert get(listener.address)[0] == 200
        finally:
            listener.close()

    def test_a_full_disk_is_told_once_and_never_raises(self, capsys):
        listener = MetricsListener(to=Path("/dev/full"))
        self.tell(listener)
        self.tell(listener)
        assert re.fullmatch(
            r"semistream: warning: MetricsListener\(to=\S+/dev/full'\)\) failed and tells no more; queries go on\. "
            r"OSError: .*No space left on device.*\n",
            capsys.readouterr().err,
        )

    def test_a_standard_error_that_is_closed_is_no_reason_to_raise(self, monkeypatch):
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr("sys.stderr", closed)
        listener = MetricsListener()
        self.tell(listener)
        monkeypatch.setattr("sys.stderr", later := io.StringIO())
        self.tell(listener)
        assert later.getvalue() == ""

    @pytest.mark.parametrize(
        "to",
        [
            "consol",
            "metrics.csv",
            "",
            "prometheus:",
            "prometheus:x",
            "prometheus:1:2:3",
            9464,
            None,
            b"m.json",
        ],
    )
    def test_sinks_that_are_none(self, to):
        with pytest.raises(
            InvalidInputError, match=r"no such sink\. Choose 'console', .*\.jsonl.*'prometheus'"
        ) as caught:
            MetricsListener(to=to)
        assert caught.value.asked == f"to={to!r}"

    def test_a_port_beyond_the_last(self):
        with pytest.raises(InvalidInputError, match="cannot be listened on"):
            MetricsListener(to="prometheus:65536")

    def test_a_file_in_a_directory_that_is_not_there(self, tmp_path):
        with pytest.raises(InvalidInputError, match=r"cannot be appended to \(No such file or directory\)"):
            MetricsListener(to=str(tmp_path / "nowhere" / "metrics.jsonl"))


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
