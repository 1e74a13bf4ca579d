"""The listener and where it tells: events as Spark would send them."""

from __future__ import annotations

import io
import json
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from prometheuspage import figures, get

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
