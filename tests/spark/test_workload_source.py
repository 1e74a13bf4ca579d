from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.functions import col, count, count_distinct
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from semistream.errors import InvalidInputError
from semistream.spark.workload_source import (
    FORMAT,
    Offset,
    Settings,
    WorkloadReader,
    WorkloadStreamReader,
    register,
)
from semistream.workload import Constant, Poisson, Workload, Zipf, retail

COLUMNS = "id:position,product_id:key,quantity:int32:1:9,event_time:arrival"
OPTIONS = {"n_keys": "1000", "columns": COLUMNS, "arrivals": "poisson", "rate": "1000", "seed": "7"}
NOW_S = 1_800_000_000.0


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def stream_reader(clock: Clock | None = None, **options: str) -> WorkloadStreamReader:
    return WorkloadStreamReader(Settings.from_options(OPTIONS | options), clock=clock or Clock())


def rows_of(reader: WorkloadStreamReader | WorkloadReader, partitions) -> pa.Table:
    return pa.Table.from_batches([b for p in partitions for b in reader.read(p)]).combine_chunks()


class TestReaderWithoutSpark:
    def test_tuples_are_held_back_until_they_arrive(self):
        clock = Clock()
        reader = stream_reader(clock)
        start = reader.initialOffset()
        assert start == {"position": 0, "began_us": int(NOW_S * 1e6)}
        expected = Poisson(1000.0)
        for elapsed_s in (0.0, 0.25, 3.0, 10.0):
            clock.now_s = NOW_S + elapsed_s
            latest = reader.latestOffset(start, ReadMaxRows(10**9))
            assert latest == {
                "position": expected.arrived_by(elapsed_s, seed=7),
                "began_us": start["began_us"],
            }

    def test_a_restart_keeps_the_beginning_and_catches_up(self):
        clock = Clock()
        start = stream_reader(clock).initialOffset()
        clock.now_s += 100.0
        restarted = stream_reader(clock, arrivals="constant")
        assert restarted.initialOffset()["began_us"] == int((NOW_S + 100) * 1e6)
        latest = restarted.latestOffset(Offset(position=500, began_us=start["began_us"]), ReadMaxRows(10**9))
        assert latest == {"position": 100_000, "began_us": start["began_us"]}

    def test_a_micro_batch_is_bounded(self):
        clock = Clock()
        reader = stream_reader(clock, max_rows_per_batch="300", arrivals="constant")
        assert reader.getDefaultReadLimit() == ReadMaxRows(300)
        start = reader.initialOffset()
        clock.now_s += 1.0
        offset, sizes = start, []
        while (latest := reader.latestOffset(offset, ReadMaxRows(300))) != offset:
            sizes.append(latest["position"] - offset["position"])
            offset = latest
        assert sizes == [300, 300, 300, 100]
        assert reader.reportLatestOffset() == {"position": 1000, "began_us": start["began_us"]}
        assert reader.latestOffset(start, ReadAllAvailable())["position"] == 1000

    def test_a_clock_that_goes_back_takes_nothing_back(self):
        clock = Clock()
        reader = stream_reader(clock)
        given_out = Offset(position=5_000, began_us=int(NOW_S * 1e6))
        clock.now_s -= 3600.0
        assert reader.latestOffset(given_out, ReadMaxRows(100)) == given_out

    def test_without_pace_only_the_bound_holds_back(self):
        reader = stream_reader(pace="none")
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadMaxRows(123))["position"] == 123
        with pytest.raises(InvalidInputError, match="without end"):
            reader.latestOffset(start, ReadAllAvailable())
        assert stream_reader(pace="none", rows="50").latestOffset(start, ReadAllAvailable())["position"] == 50

    def test_available_now_is_all_rows_or_all_that_have_arrived(self):
        clock = Clock()
        finite = stream_reader(clock, rows="5000")
        start = finite.initialOffset()
        finite.prepareForTriggerAvailableNow()
        assert finite.latestOffset(start, ReadMaxRows(10**9))["position"] == 5000

        endless = stream_reader(clock, arrivals="constant")
        clock.now_s += 2.0
        endless.prepareForTriggerAvailableNow()
        clock.now_s += 50.0
        assert endless.latestOffset(start, ReadMaxRows(10**9))["position"] == 2000

    @pytest.mark.parametrize(
        ("start", "stop", "parts"), [(0, 1000, 3), (17, 18, 4), (5, 5, 2), (100_000, 300_001, 2)]
    )
    def test_partitions_cover_the_range_once(self, start, stop, parts):
        reader = stream_reader(partitions=str(parts))
        cut = reader.partitions(Offset(position=start, began_us=1), Offset(position=stop, began_us=2))
        assert [p for part in cut for p in range(part.start, part.stop)] == list(range(start, stop))
        assert len(cut) == min(parts, stop - start)
        assert {p.began_us for p in cut} <= {2}
        if cut:
            assert rows_of(reader, cut)["id"].to_pylist() == list(range(start, stop))

    def test_the_same_offsets_give_the_same_rows_however_they_are_cut(self):
        begin, end = Offset(position=70, began_us=10**15), Offset(position=100_070, began_us=10**15)
        one, five = stream_reader(partitions="1"), stream_reader(partitions="5")
        assert rows_of(one, one.partitions(begin, end)).equals(rows_of(five, five.partitions(begin, end)))

    def test_event_times_count_from_the_beginning_in_the_offset(self):
        reader = stream_reader()
        begin_us = int(NOW_S * 1e6)
        part = reader.partitions(Offset(position=0, began_us=0), Offset(position=500, began_us=begin_us))
        begin = datetime.fromtimestamp(NOW_S, tz=UTC)
        times = rows_of(reader, part)["event_time"].to_pylist()
        expected = Poisson(1000.0).times(0, 500, seed=7)
        assert [(t - begin) / timedelta(seconds=1) for t in times] == pytest.approx(
            expected.tolist(), abs=1e-6
        )

    def test_a_stream_can_begin_when_it_is_told_to(self):
        reader = stream_reader(starts_at="2020-01-01T00:00:00Z")
        assert reader.initialOffset()["began_us"] == int(datetime(2020, 1, 1, tzinfo=UTC).timestamp()) * 10**6

    def test_an_endless_stream_cannot_be_read_as_a_batch(self):
        with pytest.raises(InvalidInputError, match="Set the option rows"):
            WorkloadReader(Settings(source=Workload(Zipf(10)))).partitions()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"partitions": "0"},
            {"partitions": "two"},
            {"max_rows_per_batch": "0"},
            {"pace": "slow"},
            {"pase": "none"},
        ],
    )
    def test_options_that_cannot_be(self, wrong):
        with pytest.raises(InvalidInputError, match=next(iter(wrong))):
            Settings.from_options(OPTIONS | wrong)

    def test_settings_keep_what_they_are_given(self):
        source = Workload(Zipf(10), arrivals=Constant(1.0))
        assert Settings(source=source).partitions == 2
        assert Settings.from_options({"n_keys": "10", "rate": "1"}).source == source
        assert Settings(source=source).max_rows_per_batch == 1_000_000


@pytest.mark.spark
class TestOnSpark:
    @pytest.fixture(autouse=True)
    def registered(self, spark):
        register(spark)

    @staticmethod
    def collect_by_batch(directory: Path):
        """A sink that is idempotent on the batch id, as the pipeline's are."""

        def write(batch, batch_id):
            batch.write.mode("overwrite").parquet(str(directory / str(batch_id)))

        return write

    @staticmethod
    def run(df, sink, checkpoint: Path) -> None:
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()

    @staticmethod
    def read_sink(directory: Path) -> pa.Table:
        table = pa.concat_tables(
            [pq.read_table(d) for d in sorted(directory.iterdir(), key=lambda d: int(d.name))]
        )
        return table.sort_by("id").combine_chunks()

    def test_a_batch_read_is_the_workload(self, spark):
        options = OPTIONS | {"rows": "150000", "partitions": "3"}
        df = spark.read.format(FORMAT).options(**options).load()
        assert df.rdd.getNumPartitions() == 3
        assert dict(df.dtypes) == {
            "id": "bigint",
            "product_id": "bigint",
            "quantity": "int",
            "event_time": "timestamp",
        }
        expected = Workload.from_options(OPTIONS | {"rows": "150000"}).reader().read_all()
        assert (
            df.toArrow()
            .sort_by("id")
            .cast(expected.schema)
            .combine_chunks()
            .equals(expected.combine_chunks())
        )

    def test_available_now_gives_every_row_once_in_bounded_batches(self, spark, tmp_path):
        df = (
            spark.readStream.format(FORMAT).options(**OPTIONS, rows="10000", max_rows_per_batch="3000").load()
        )
        assert df.isStreaming
        self.run(df, self.collect_by_batch(tmp_path / "out"), tmp_path / "checkpoint")
        sizes = [pq.read_table(tmp_path / "out" / str(i)).num_rows for i in range(4)]
        assert sizes == [3000, 3000, 3000, 1000]
        assert self.read_sink(tmp_path / "out")["id"].to_pylist() == list(range(10_000))

    @pytest.mark.parametrize("crash_at", [0, 1])
    def test_a_crash_and_a_restart_leave_no_gap_and_no_duplicate(self, spark, tmp_path, crash_at):
        out, crashed = tmp_path / "out", tmp_path / "crashed"

        def load():
            options = OPTIONS | {"rows": "2500", "max_rows_per_batch": "1000"}
            return spark.readStream.format(FORMAT).options(**options).load()

        def crash_once(batch, batch_id):
            directory = crashed if batch_id == crash_at else out
            batch.write.mode("overwrite").parquet(str(directory / str(batch_id)))
            if batch_id == crash_at:
                raise RuntimeError("the sink has written, the batch is not committed")

        with pytest.raises(StreamingQueryException):
            self.run(load(), crash_once, tmp_path / "checkpoint")
        self.run(load(), self.collect_by_batch(out), tmp_path / "checkpoint")

        replayed = pq.read_table(out / str(crash_at)).sort_by("id")
        assert replayed.equals(pq.read_table(crashed / str(crash_at)).sort_by("id"))
        everything = self.read_sink(out)
        assert everything["id"].to_pylist() == list(range(2500))
        # One beginning for all, kept across the restart: the times are those of one unbroken process.
        times = everything["event_time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
        process = Poisson(1000.0).times(0, 2500, seed=7)
        assert times - times[0] == pytest.approx((process - process[0]) * 1e6, abs=2)

    def test_a_finished_stream_gives_nothing_more(self, spark, tmp_path):
        df = spark.readStream.format(FORMAT).options(**OPTIONS, rows="500").load()
        for _ in range(2):
            self.run(df, self.collect_by_batch(tmp_path / "out"), tmp_path / "checkpoint")
        assert [d.name for d in (tmp_path / "out").iterdir()] == ["0"]

    def test_a_paced_stream_gives_what_has_arrived(self, spark, tmp_path):
        # Begun in 2020, everything has arrived; beginning in 2200, nothing has.
        for year, rows in (("2020", 700), ("2200", 0)):
            options = OPTIONS | {"rows": "700", "starts_at": f"{year}-01-01"}
            df = spark.readStream.format(FORMAT).options(**options).load()
            stream = df.writeStream.format("memory").queryName(f"paced_{year}")
            query = stream.option("checkpointLocation", str(tmp_path / year)).start()
            try:
                query.processAllAvailable()
                found = spark.table(f"paced_{year}").agg(count("*"), count_distinct(col("id"))).first()
                assert tuple(found) == (rows, rows)
            finally:
                query.stop()

    def test_a_trace_is_replayed(self, spark, tmp_path):
        recorded = Workload.from_options(OPTIONS | {"rows": "2000"}).reader().read_all()
        recorded = recorded.append_column("naive", recorded["event_time"].cast(pa.timestamp("ns")))
        (tmp_path / "trace").mkdir()
        pq.write_table(recorded, tmp_path / "trace" / "part.parquet", row_group_size=300)
        df = spark.readStream.format(FORMAT).option("arrival", "event_time").load(str(tmp_path / "trace"))
        self.run(df, self.collect_by_batch(tmp_path / "out"), tmp_path / "checkpoint")
        found = self.read_sink(tmp_path / "out").select(["id", "product_id"])
        assert found.equals(recorded.select(["id", "product_id"]).combine_chunks())
        # A time without a zone is taken as UTC; nanoseconds, which Spark has not, become microseconds.
        times = self.read_sink(tmp_path / "out")
        assert times["naive"].equals(times["event_time"])

    def test_products_can_be_made_in_parallel(self, spark):
        df = (
            spark.read.format(FORMAT)
            .options(dataset="products", rows="3000", seed="5", partitions="4")
            .load()
        )
        expected = retail.products(3000, seed=5).read_all()
        assert (
            df.toArrow()
            .sort_by("product_id")
            .cast(expected.schema)
            .combine_chunks()
            .equals(expected.combine_chunks())
        )

    def test_a_slip_in_an_option_is_named(self, spark):
        with pytest.raises(AnalysisException, match="Did you mean 'exponent'"):
            spark.read.format(FORMAT).options(n_keys="10", exponnent="1").load()
