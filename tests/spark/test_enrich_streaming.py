"""enrich() on streaming DataFrames: sources, sinks and triggers; the master's version of each micro-batch, replays included."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from enriching import (
    ByBatch,
    expected,
    forget_commit,
    many_to_many,
    read_files,
    rows_of,
    run,
    table,
    write_files,
)
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.spark.metrics import BatchId, Counts, counts_of
from semistream.spark.workload_source import FORMAT, register
from semistream.workload import Workload

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark-streaming")]

MEMORY = "2MB"
SCHEMA = "k long, n long"
KEYS = {"k": "k"}


@pytest.fixture
def shop(tmp_path):
    """Three files of a stream, the master table, and the store of it."""
    stream, master = many_to_many()
    parts = [stream.slice(0, 1000), stream.slice(1000, 1500), stream.slice(2500)]
    return parts, master, ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)


def settings_of(spark) -> list[tuple]:
    return sorted(map(tuple, spark.sql("SET").collect()))


class TestSourcesAndSinks:
    @pytest.mark.parametrize("how", ["inner", "left"])
    def test_every_micro_batch_is_answered_in_itself(self, spark, shop, tmp_path, how):
        parts, master, store = shop
        df = read_files(spark, write_files(tmp_path / "in", *parts), SCHEMA)
        before, sink = settings_of(spark), ByBatch()
        found = ss.enrich(df, store, on="k", how=how, memory=MEMORY)
        assert found.isStreaming
        query = run(found, tmp_path / "checkpoint", sink)
        assert sink.ran == [(i, expected(part, master, KEYS, how)) for i, part in enumerate(parts)]
        assert settings_of(spark) == before
        # What was counted agrees with what Spark counted, and with the rows.
        progress = {p.batchId: p.numInputRows for p in query.recentProgress if p.numInputRows}
        assert progress == {i: len(part) for i, part in enumerate(parts)}
        for number, rows in sink.ran:
            counts = counts_of(BatchId(query.id, number))["master"]
            assert (counts.tuples, counts.rows) == (progress[number], rows.total())
            assert counts.matches + counts.misses == counts.tuples
            assert counts.version == 1

    def test_the_file_sink(self, spark, shop, tmp_path):
        parts, master, store = shop
        df = read_files(spark, write_files(tmp_path / "in", *parts), SCHEMA)
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        query = found.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        wanted = expected(pa.concat_tables(parts), master, KEYS, "inner")
        assert rows_of(spark.read.parquet(str(tmp_path / "out")).collect()) == wanted
        assert rows_of(pq.read_table(sorted((tmp_path / "out").glob("*.parquet")))) == wanted

    def test_the_memory_sink_as_files_come(self, spark, shop, tmp_path):
        """A query that goes on: processing time, not what is available now."""
        parts, master, store = shop
        df = read_files(spark, write_files(tmp_path / "in", parts[0]), SCHEMA)
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        query = (
            found.writeStream.format("memory")
            .queryName("as_files_come")
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            for count in (1, 2, 3):
                query.processAllAvailable()
                wanted = expected(pa.concat_tables(parts[:count]), master, KEYS, "inner")
                assert rows_of(spark.table("as_files_come").collect()) == wanted
                if count < 3:
                    write_files(tmp_path / "in", parts[count], first=count)
        finally:
            query.stop()

    def test_the_workload_source(self, spark, tmp_path):
        register(spark)
        options = {"n_keys": "500", "columns": "n:position,k:key", "rows": "5000", "seed": "3"}
        df = spark.readStream.format(FORMAT).options(**options, pace="none", max_rows_per_batch="2000").load()
        master = table(k=range(0, 500, 2), v=[f"v{i}" for i in range(250)])
        store = ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)
        sink = ByBatch()
        query = run(ss.enrich(df, store, on="k", how="left", memory=MEMORY), tmp_path / "checkpoint", sink)
        stream = Workload.from_options(options).reader().read_all()
        assert sink.total == expected(stream, master, KEYS, "left")
        assert [rows.total() for _, rows in sink.ran] == [2000, 2000, 1000]
        counts = Counts.total(counts_of(BatchId(query.id, number))["master"] for number in sink.numbers)
        assert (counts.tuples, counts.rows) == (5000, 5000)
        assert counts.matches == sum(k % 2 == 0 for k in stream["k"].to_pylist())

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_watermark_and_windows(self, spark, tmp_path, when):
        """Event times keep their watermark across the enrichment: windows close, and give every row once."""
        register(spark)
        options = {"n_keys": "20", "columns": "n:position,k:key,at:arrival", "rows": "600", "seed": "3"}
        paced = {"arrivals": "constant", "rate": "10", "starts_at": "2020-01-01T00:00:00Z"}
        df = spark.readStream.format(FORMAT).options(**options, **paced, max_rows_per_batch="150").load()
        store = ss.build_master(
            table(k=range(20), v=["even" if i % 2 == 0 else "odd" for i in range(20)]),
            tmp_path / "master",
            key="k",
        )
        df = df.withWatermark("at", "2 seconds") if when == "before" else df
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        found = found.withWatermark("at", "2 seconds") if when == "after" else found
        closed = found.groupBy(F.window("at", "10 seconds"), "v").count()
        sink = ByBatch()
        run(
            closed.selectExpr("unix_timestamp(window.start) as start", "v", "count"),
            tmp_path / "checkpoint",
            sink,
        )
        stream = Workload.from_options(options | paced).reader().read_all()
        wanted = Counter(
            (int(at.timestamp()) // 10 * 10, "even" if k % 2 == 0 else "odd")
            for k, at in zip(stream["k"].to_pylist(), stream["at"].to_pylist(), strict=True)
        )
        until = max(stream["at"].to_pylist()).timestamp() - 2
        assert sink.total == Counter((*key, count) for key, count in wanted.items() if key[0] + 10 <= until)
        assert len(sink.total) >= 8

    def test_two_queries_at_once_do_not_meet(self, spark, shop, tmp_path):
        parts, master, store = shop
        folder = write_files(tmp_path / "in", *parts)
        queries = {}
        for how in ("inner", "left"):
            found = ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", how=how, memory=MEMORY)
            stream = found.writeStream.format("memory").queryName(f"at_once_{how}").trigger(availableNow=True)
            queries[how] = stream.option("checkpointLocation", str(tmp_path / how)).start()
        for how, query in queries.items():
            query.awaitTermination()
            rows = rows_of(spark.table(f"at_once_{how}").collect())
            assert rows == expected(pa.concat_tables(parts), master, KEYS, how)
            counts = Counts.total(counts_of(BatchId(query.id, number))["master"] for number in range(3))
            assert (counts.tuples, counts.rows) == (3000, rows.total())

    def test_enriching_each_micro_batch_for_itself(self, spark, shop, tmp_path):
        """enrich() may also be called inside foreachBatch, on a frame that is no stream."""
        parts, master, store = shop
        df = read_files(spark, write_files(tmp_path / "in", *parts), SCHEMA)
        sink = ByBatch()

        def enriched(batch, number):
            sink(ss.enrich(batch, store, on="k", how="left", memory=MEMORY), number)

        run(df, tmp_path / "checkpoint", enriched)
        assert sink.ran == [(i, expected(part, master, KEYS, "left")) for i, part in enumerate(parts)]


def keyed(count: int, first: int = 0) -> pa.Table:
    return table(
        k=pa.array([i % 10 for i in range(count)], pa.int64()),
        n=pa.array(range(first, first + count), pa.int64()),
    )


def named(value: str, count: int = 10) -> pa.Table:
    return table(k=range(count), v=[value] * count)


class TestVersions:
    @pytest.fixture
    def store(self, tmp_path) -> ss.Master:
        return ss.build_master(named("first"), tmp_path / "master", key="k", page_bytes=4096)

    @pytest.fixture
    def files(self, tmp_path):
        return write_files(tmp_path / "in", *(keyed(20, 20 * i) for i in range(3)))

    @staticmethod
    def values(sink: ByBatch) -> list[tuple[int, set[str]]]:
        return [(number, {row[-1] for row in rows}) for number, rows in sink.ran]

    @pytest.mark.parametrize("algorithm", ["auto", "meshjoin", "optimised-x-hybridjoin", "in-memory"])
    def test_a_change_is_seen_by_the_next_micro_batch(self, spark, store, files, tmp_path, algorithm):
        """Without a restart, whatever a worker holds of the version before; all of a micro-batch sees one version."""
        sink = ByBatch()

        def change(batch, number):
            sink(batch, number)
            sink(batch, number)  # computed again while the version is that of the micro-batch's beginning
            store.upsert(named(f"after {number}", count=5))
            sink(batch, number)

        df = read_files(spark, files, SCHEMA)
        query = run(
            ss.enrich(df, store, on="k", algorithm=algorithm, memory=MEMORY), tmp_path / "checkpoint", change
        )
        wanted = [(0, {"first"}), (1, {"after 0", "first"}), (2, {"after 1", "first"})]
        assert self.values(sink) == [each for each in wanted for _ in range(3)]
        assert [counts_of(BatchId(query.id, i))["master"].version for i in range(3)] == [1, 2, 3]

    def test_rows_that_come_and_go(self, spark, store, files, tmp_path):
        sink = ByBatch()

        def change(batch, number):
            sink(batch, number)
            store.delete(table(k=[1, 2])) if number == 0 else store.append(named("once more", count=3))

        run(
            ss.enrich(read_files(spark, files, SCHEMA), store, on="k", memory=MEMORY),
            tmp_path / "checkpoint",
            change,
        )
        assert [rows.total() for _, rows in sink.ran] == [20, 16, 22]
        assert {row[0] for row in sink.ran[1][1]} == {0, 3, 4, 5, 6, 7, 8, 9}

    def test_a_replayed_micro_batch_gives_the_rows_it_gave(self, spark, store, tmp_path):
        """The process dies after the sink wrote micro-batch 1 and before Spark noted it; then the master changes."""
        folder = write_files(tmp_path / "in", keyed(20), keyed(20, 20))
        checkpoint, first, second = tmp_path / "checkpoint", ByBatch(), ByBatch()
        run(ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY), checkpoint, first)
        assert self.values(first) == [(0, {"first"}), (1, {"first"})]

        forget_commit(checkpoint, 1)
        newer = store.upsert(named("second"))
        newer.vacuum(keep_for=timedelta(0))
        write_files(tmp_path / "in", keyed(20, 40), first=2)

        again = ss.open_master(store.path)
        assert again.version == 2
        run(ss.enrich(read_files(spark, folder, SCHEMA), again, on="k", memory=MEMORY), checkpoint, second)
        assert second.ran[0] == first.ran[1]
        assert self.values(second) == [(1, {"first"}), (2, {"second"})]

    def test_without_its_pin_a_replay_would_differ(self, spark, store, tmp_path):
        """That the test above can fail."""
        folder = write_files(tmp_path / "in", keyed(20))
        checkpoint, first, second = tmp_path / "checkpoint", ByBatch(), ByBatch()
        query = run(
            ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY), checkpoint, first
        )
        forget_commit(checkpoint, 0)
        store.upsert(named("second"))
        (tmp_path / "master" / "pins" / query.id / f"{0:012d}.json").unlink()
        run(ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY), checkpoint, second)
        assert self.values(second) == [(0, {"second"})]

    def test_a_failed_micro_batch_is_tried_again_on_its_version(self, spark, store, files, tmp_path):
        """The sink fails, and the master changes before the query is started again."""
        checkpoint, sink = tmp_path / "checkpoint", ByBatch()

        def fails(batch, number):
            sink(batch, number)
            if number == 1:
                raise RuntimeError("the sink is full")

        def df():
            return ss.enrich(read_files(spark, files, SCHEMA), store.path, on="k", memory=MEMORY)

        with pytest.raises(Exception, match="the sink is full"):
            run(df(), checkpoint, fails)
        store.upsert(named("second"))
        run(df(), checkpoint, sink)
        assert self.values(sink) == [(0, {"first"}), (1, {"first"}), (1, {"first"}), (2, {"second"})]
        assert sink.ran[1] == sink.ran[2]

    def test_pinned_stays_where_it_is(self, spark, store, files, tmp_path):
        sink = ByBatch()

        def change(batch, number):
            sink(batch, number)
            store.upsert(named(f"after {number}"))

        df = ss.enrich(read_files(spark, files, SCHEMA), store, on="k", versions="pinned", memory=MEMORY)
        run(df, tmp_path / "checkpoint", change)
        assert self.values(sink) == [(0, {"first"}), (1, {"first"}), (2, {"first"})]

    def test_vacuum_keeps_the_version_of_a_pinned_query(self, spark, store, tmp_path):
        folder, sink = write_files(tmp_path / "in", keyed(20)), ByBatch()
        for number in range(2):
            df = read_files(spark, folder, SCHEMA)
            df = ss.enrich(df, store, on="k", versions="pinned", memory=MEMORY)
            run(df, tmp_path / "checkpoint", sink)
            store.upsert(named(f"after {number}")).vacuum(keep_for=timedelta(0))
            write_files(tmp_path / "in", keyed(20, 20), first=1)
        assert self.values(sink) == [(0, {"first"}), (1, {"first"})]

    def test_vacuum_while_a_query_runs(self, spark, store, files, tmp_path):
        """Right after a change the version before is still the micro-batch's own: it must not go under its tasks."""
        sink = ByBatch()

        def change(batch, number):
            sink(batch, number)
            store.upsert(named(f"after {number}")).vacuum(keep_for=timedelta(0))
            sink(batch, number)

        run(
            ss.enrich(read_files(spark, files, SCHEMA), store, on="k", memory=MEMORY),
            tmp_path / "checkpoint",
            change,
        )
        assert self.values(sink) == [
            (number, {value})
            for number, value in enumerate(["first", "after 0", "after 1"])
            for _ in range(2)
        ]

    def test_two_enrichments_of_one_store_see_one_version(self, spark, store, files, tmp_path):
        sink = ByBatch()

        def change(batch, number):
            sink(batch, number)
            store.upsert(named(f"after {number}"))

        df = ss.enrich(read_files(spark, files, SCHEMA), store, on="k", memory=MEMORY)
        df = ss.enrich(df.where("n >= 0"), store, on={"k": "k"}, memory=MEMORY)
        run(df, tmp_path / "checkpoint", change)
        assert all(row[-1] == row[-2] for _, rows in sink.ran for row in rows)
        assert self.values(sink) == [(0, {"first"}), (1, {"after 0"}), (2, {"after 1"})]

    @pytest.mark.parametrize("first", ["pinned", "newest"])
    def test_pinned_and_newest_beside_each_other(self, spark, store, files, tmp_path, first):
        """Of one store, in one query: one stays, the other goes on, and vacuum takes neither's version."""
        sink = ByBatch()

        def change(batch, number):
            sink(batch, number)
            store.upsert(named(f"after {number}")).vacuum(keep_for=timedelta(0))

        df = read_files(spark, files, SCHEMA)
        for versions in (first, "newest" if first == "pinned" else "pinned"):
            df = ss.enrich(df, store, on="k", versions=versions, memory=MEMORY)
        run(df, tmp_path / "checkpoint", change)
        pinned, newest = (-2, -1) if first == "pinned" else (-1, -2)
        assert {row[pinned] for row in sink.total} == {"first"}
        assert [{row[newest] for row in rows} for _, rows in sink.ran] == [
            {"first"},
            {"after 0"},
            {"after 1"},
        ]
        assert 1 in store.versions()

    def test_what_is_refused_is_refused_before_the_query_starts(self, spark, store, files):
        with pytest.raises(InvalidInputError, match="Choose 'newest' or 'pinned'"):
            ss.enrich(read_files(spark, files, SCHEMA), store, on="k", versions="latest")
