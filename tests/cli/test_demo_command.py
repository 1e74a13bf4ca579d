from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import semistream as ss
from semistream.cli.main import main
from semistream.errors import InvalidInputError
from semistream.workload import Workload, retail

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("demo")]  # one demo for all tests
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("deltalake")
pytest.importorskip("matplotlib")

ROWS, TUPLES = 20_000, 6_000
# Most of what Java does in so short a run is to compile; with its simple compiler that takes half the time.
SHORT = os.environ | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
COMMAND = [sys.executable, "-m", "semistream", "demo"]


def demo(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words, "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=SHORT,
    )


def warehouse(folder: Path) -> pads.Dataset:
    from semistream.cli.demo_warehouse import Warehouse

    return Warehouse(folder / "sales").dataset()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "of a kind"


@pytest.fixture(scope="module")
def done(folder):
    words = ("--rows", str(ROWS), "--tuples", str(TUPLES), "--rate", "20000", "--memory", "2MB")
    return demo(*words, folder=folder)


class TestTheWholeDemo:
    def test_it_succeeds_and_only_the_report_is_heard(self, done):
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""

    def test_the_warehouse_holds_the_batch_join(self, done, folder):
        assert done.returncode == 0, done.stderr
        found = duckdb.from_arrow(warehouse(folder)).order("sale_id").to_arrow_table()
        # When the stream began is known only to the demo: its first sale arrived so long after that.
        plain = {"n_keys": str(ROWS), "rows": str(TUPLES), "seed": "2", "rate": "20000", "arrivals": "bursty"}
        bursts = {"burst_factor": "8", "burst_s": "1", "period_s": "7"}
        columns = {"columns": "sale_id:position,product_id:key,quantity:int32:1:9,event_time:arrival"}
        stream = Workload.from_options(plain | bursts | columns).reader().read_all()
        products = retail.products(ROWS, seed=1).read_all()
        expected = stream.join(products, "product_id").sort_by("sale_id")
        for name in expected.column_names:
            if name != "event_time":
                assert found[name].to_pylist() == expected[name].to_pylist(), name
        assert found.num_rows == TUPLES
        assert sorted(found.column_names) == sorted(expected.column_names)
        shift = {
            ours - theirs
            for ours, theirs in zip(
                found["event_time"].cast(pa.int64()).to_pylist(),
                expected["event_time"].cast(pa.int64()).to_pylist(),
                strict=True,
            )
        }
        assert max(shift) - min(shift) <= 2  # the same process, to the rounding of microseconds

    def test_the_report_says_what_it_must(self, done):
        said = " ".join(done.stdout.split())
        assert f"{TUPLES:,} sales in, {TUPLES:,} rows out, each sale once" in said
        assert "every value of the 14 columns is the one that DuckDB's batch join" in said
        assert re.search(r"p50 \d+\.\d\d s, p99 \d+\.\d\d s", said)
        assert re.search(r"memory of the join [\d.]+ [KM]iB of 1\.9 MiB a worker", said)
        assert re.search(r"semistream \d+\.\d\d s [\d,]+ Spark's stream-static join \d+\.\d\d s [\d,]+", said)
        assert "Both gave the same rows." in said

    def test_the_picture_is_there_and_nothing_is_left_behind(self, done, folder):
        assert done.returncode == 0, done.stderr
        assert (folder / "stream.png").read_bytes().startswith(b"\x89PNG")
        assert sorted(p.name for p in folder.iterdir()) == ["products", "sales", "spark.log", "stream.png"]
        assert ss.open_master(folder / "products").rows == ROWS

    def test_the_query_it_prints_runs(self, done):
        (line,) = [line for line in done.stdout.splitlines() if " -c " in line]
        answer = subprocess.run(shlex.split(line), capture_output=True, text=True, check=True).stdout
        assert "revenue" in answer
        assert all(category in answer for category in retail.CATEGORIES.to_pylist())

    def test_spark_is_heard_in_the_log_only(self, done, folder):
        assert "WARN" not in done.stdout + done.stderr
        assert "WARN" in (folder / "spark.log").read_text()


def test_a_micro_batch_that_is_run_again_is_written_once(tmp_path):
    from semistream.cli.demo_warehouse import Warehouse

    rows = pa.table({"sale_id": [1, 2, 3]})
    table = Warehouse.create(tmp_path / "sales", rows.schema, name="sales")
    said = [table.append(rows, query=query, batch=batch) for query, batch in [("a", 0), ("a", 0), ("a", 1)]]
    assert said == ["written", "there already", "written"]
    assert Warehouse(tmp_path / "sales").append(rows, query="a", batch=1) == "there already"
    assert table.append(rows, query="b", batch=0) == "written"  # another query has numbers of its own
    assert table.dataset().to_table()["sale_id"].to_pylist() == [1, 2, 3] * 3


class TestTheCheck:
    """What it must see: it is the judge of the demo."""

    @pytest.fixture
    def right(self):
        from semistream.cli.demo_choices import SALES

        stream = Workload.from_options(
            {
                "n_keys": "50",
                "rows": "100",
                "columns": "sale_id:position,product_id:key,quantity:int32:1:9,event_time:arrival",
            }
        )
        joined = stream.reader().read_all().join(retail.products(50, seed=1).read_all(), "product_id")
        return joined.select(SALES.names)

    @staticmethod
    def fingerprint(table, tmp_path):
        from semistream.cli.demo_check import fingerprint_of

        return fingerprint_of(pads.dataset(table), tmp_path)

    def test_order_does_not_matter(self, right, tmp_path):
        reversed_rows = right.take(list(range(99, -1, -1)))
        expected = self.fingerprint(right, tmp_path)
        assert self.fingerprint(reversed_rows, tmp_path).differences(expected) == []

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            (lambda t: t.slice(1), "99 rows where 100"),
            (lambda t: pa.concat_tables([t.slice(1), t.slice(1, 1)]), "99 different sales"),
            (lambda t: _with(t, "brand", [None, *t["brand"].to_pylist()[1:]]), "other values in brand"),
            (
                lambda t: _with(t, "quantity", [10, *t["quantity"].to_pylist()[1:]]),
                "other values in quantity",
            ),
            (lambda t: _with(t, "name", t["name"].to_pylist()[::-1]), "values of one row in another"),
        ],
    )
    def test_what_is_wrong_is_seen(self, right, tmp_path, wrong, words):
        expected = self.fingerprint(right, tmp_path)
        assert words in "; ".join(self.fingerprint(wrong(right), tmp_path).differences(expected))


def _with(table: pa.Table, name: str, values: list[object]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, name, pa.array(values, table.schema.field(name).type))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--rows", "0"], "Ask for at least one"),
        (["--skew", "3"], "--skew=3.0"),
        (["--memory", "lots"], "--memory='lots'"),
        (["--memory", "4KB"], "too little for auto"),
        (["--algorithm", "in-memory", "--memory", "1MB"], "too little for in-memory"),
        (["--algorithm", "chybridjon"], "Did you mean 'chybridjoin'?"),
        (["--seconds", "0"], "--seconds=0.0"),
        (["--tuples", "0"], "--tuples=0"),
        (["--rate", "0"], "--rate=0.0"),
        (["--folder", "[red]"], "[ ] in its path"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_written(words, expected, tmp_path, capsys):
    given = [] if "--rows" in words else ["--rows", "100000"]
    assert main(["demo", "--folder", str(tmp_path / "new"), *given, *words]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert expected in error
    assert "Traceback" not in error
    assert not (tmp_path / "new").exists()


class TestWhatIsNotItsOwn:
    @pytest.mark.parametrize("name", ["products", "sales", "stream.png", "spark.log"])
    def test_files(self, name, tmp_path, capsys):
        (tmp_path / name).write_text("precious")
        assert main(["demo", "--rows", "10", "--folder", str(tmp_path)]) == 1
        assert "nothing was changed" in " ".join(capsys.readouterr().err.split())
        assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {name: "precious"}

    def test_another_store_and_another_table(self, tmp_path):
        from semistream.cli.demo_choices import Choices, check_own
        from semistream.cli.demo_warehouse import Warehouse

        def check(folder: Path) -> None:
            check_own(Choices(1, 1, 1.0, "auto", 1, 1.0, folder))

        ss.build_master(pa.table({"id": [1]}), tmp_path / "a" / "products", key="id")
        Warehouse.create(tmp_path / "b" / "sales", pa.schema({"id": pa.int64()}), name="precious")
        for folder in ("a", "b"):
            with pytest.raises(InvalidInputError, match="nothing was changed"):
                check(tmp_path / folder)
        ss.build_master(retail.products(5), tmp_path / "damaged" / "products", key="product_id")
        (manifest,) = (tmp_path / "damaged" / "products" / "versions").glob("*.json")
        manifest.write_text(manifest.read_text().replace('"rows"', '"rose"'))
        with pytest.raises(InvalidInputError, match="Remove it, or choose another --folder"):
            check(tmp_path / "damaged")
        ss.build_master(retail.products(5), tmp_path / "c" / "products", key="product_id")
        (tmp_path / "c" / "spark.log").touch()
        check(tmp_path / "c")
        manifest.write_text("{}")
        with pytest.raises(InvalidInputError, match="nothing was changed"):
            check(tmp_path / "damaged")
        manifest.unlink()
        check(tmp_path / "damaged")  # begun, and not more: a demo that was stopped leaves that
        check(tmp_path / "nowhere")


def test_an_interrupt_ends_it_in_one_line(tmp_path):
    words = [*COMMAND, "--rows", "2000", "--seconds", "600", "--rate", "1000", "--folder", str(tmp_path)]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=SHORT)
    try:
        deadline = time.monotonic() + 120
        for line in iter(running.stdout.readline, ""):
            if "tuples/s" in line or time.monotonic() > deadline:
                break
        running.send_signal(signal.SIGINT)
        out, error = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, error.strip()) == (130, "stopped")
    assert "Traceback" not in out
    assert not list(tmp_path.glob(".work-*"))
