"""What goes wrong while enrich() runs: errors of the executors, workers and executors that die, soft state that goes away."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from enriching import ByBatch, ask, expected, read_files, replace_bytes, run, table, write_files

import semistream as ss
from semistream import errors
from semistream.errors import CorruptPageError, InvalidInputError, NotAStoreError, SemistreamError, StoreError
from semistream.joins.registry import Settings
from semistream.spark.errors import explained, from_spark
from semistream.spark.softstate import private_folder, sweep

MEMORY = "2MB"
LEARNING = {"on": "k", "how": "left", "memory": "1MB", "settings": Settings(front_share=0.05)}
SCHEMA = "k long, n long"
in_one_session = [pytest.mark.spark, pytest.mark.xdist_group("spark-streaming")]
in_processes = [pytest.mark.spark, pytest.mark.xdist_group("spark-processes")]


@pytest.fixture
def store(tmp_path) -> ss.Master:
    master = table(k=range(3000), v=[f"value {i}" for i in range(3000)])
    return ss.build_master(master, tmp_path / "master", key="k", page_bytes=4096)


def page_file(store: ss.Master) -> Path:
    (path,) = [path for path in Path(store.path).rglob("*.arrow") if not path.name.startswith("table-")]
    return path


class TestErrorsOfExecutors:
    pytestmark = in_one_session

    @pytest.fixture
    def df(self, spark):
        return spark.range(3000).toDF("k")

    def test_a_damaged_page(self, df, store):
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        path = page_file(store)
        replace_bytes(path, path.stat().st_size * 3 // 4, b"damage" * 20)
        with pytest.raises(CorruptPageError, match=r"page .*master") as raised, ss.explained():
            found.collect()
        self.is_whole(raised.value)

    def test_a_store_that_is_gone(self, df, store):
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        shutil.rmtree(store.path)
        with pytest.raises(StoreError, match="No such file") as raised, ss.explained():
            found.collect()
        self.is_whole(raised.value)

    def test_a_budget_that_is_too_small_for_all_of_the_master(self, df, store):
        found = ss.enrich(df, store, on="k", algorithm="in-memory", memory="20KB")
        with pytest.raises(InvalidInputError, match="in-memory within") as raised, ss.explained():
            found.collect()
        self.is_whole(raised.value)
        assert "memory=" in raised.value.hint

    def test_in_a_streaming_query(self, spark, store, tmp_path):
        folder = write_files(tmp_path / "in", table(k=range(3000), n=range(3000)))
        found = ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY)
        path = page_file(store)
        replace_bytes(path, path.stat().st_size * 3 // 4, b"damage" * 20)
        with pytest.raises(CorruptPageError) as raised, ss.explained():
            run(found, tmp_path / "checkpoint", ByBatch())
        self.is_whole(raised.value)

    def test_in_a_streaming_query_whose_store_is_gone(self, spark, store, tmp_path):
        """The first thing a micro-batch asks the store for is its version."""
        folder = write_files(tmp_path / "in", table(k=range(3000), n=range(3000)))
        found = ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY)
        shutil.rmtree(store.path)
        with pytest.raises(NotAStoreError, match="found nothing") as raised, ss.explained():
            run(found, tmp_path / "checkpoint", ByBatch())
        self.is_whole(raised.value)
        assert not Path(store.path).exists(), "nothing was written where the store was"

    def test_a_damaged_pin(self, spark, store, tmp_path):
        folder = write_files(tmp_path / "in", table(k=range(10), n=range(10)))
        checkpoint = tmp_path / "checkpoint"
        sink = ByBatch()
        query = run(
            ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY), checkpoint, sink
        )
        write_files(folder, table(k=range(10), n=range(10)), first=1)
        (Path(store.path) / "pins" / query.id / f"{1:012d}.json").write_text("{}")
        with pytest.raises(StoreError, match=r"the pin pins/.* Remove the file"), ss.explained():
            run(ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY), checkpoint, sink)
        (Path(store.path) / "pins" / query.id / f"{1:012d}.json").unlink()
        run(ss.enrich(read_files(spark, folder, SCHEMA), store, on="k", memory=MEMORY), checkpoint, sink)
        assert sink.numbers == [0, 1]

    @staticmethod
    def is_whole(error: SemistreamError) -> None:
        """The class, what it says, and where it came from."""
        assert error.asked
        assert error.found
        assert error.hint.endswith(".")
        assert "Traceback" not in str(error)
        assert "semistream" in str(error.__cause__), "Spark's own error, with both stacks"
        assert type(error.__cause__).__module__.startswith("pyspark.")

    def test_the_next_query_is_not_affected(self, df, store):
        """A worker that failed is no worker's business."""
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        whole = page_file(store).read_bytes()
        replace_bytes(page_file(store), len(whole) * 3 // 4, b"damage" * 20)
        with pytest.raises(CorruptPageError), ss.explained():
            found.collect()
        page_file(store).write_bytes(whole)
        assert found.count() == 3000

    def test_errors_of_others_stay_as_they_are(self, spark):
        with pytest.raises(Exception, match="broken source") as raised, ss.explained():
            spark.range(1).selectExpr("raise_error('broken source')").collect()
        assert not isinstance(raised.value, SemistreamError)
        with pytest.raises(ZeroDivisionError), ss.explained():
            1 / 0  # noqa: B018
        ours = InvalidInputError("asked", found="found", hint="Hint.")
        with pytest.raises(InvalidInputError) as raised, ss.explained():
            raise ours
        assert raised.value is ours


KINDS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SemistreamError)
]


class TestReadingSparksErrors:
    @staticmethod
    def as_spark_tells_it(error: Exception) -> Exception:
        return RuntimeError(
            "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
            "stage 1.0 (TID 1) (vm executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent "
            'call last):\n  File "/x/worker.py", line 1, in f\n    raise\nsemistream.errors.StoreError: an earlier one: '
            "found x. Try y.\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most "
            f'recent call last):\n  File "/x/worker.py", line 2, in g\nsemistream.errors.{type(error).__name__}: {error}\n\n'
            "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)\n\nDriver stacktrace:\n\tat x"
        )

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_class_of_ours(self, kind):
        error = kind("opening x: y", found="nothing, it seems", hint="Try this. Or that.")
        with pytest.raises(kind) as raised, explained():
            raise self.as_spark_tells_it(error)
        assert type(raised.value) is kind
        assert str(raised.value) == str(error)
        assert (raised.value.asked, raised.value.found, raised.value.hint) == (
            error.asked,
            error.found,
            error.hint,
        )

    def test_a_message_of_several_lines(self):
        error = InvalidInputError("a stream", found="k: int64\nn: string", hint="Cast it to\nk: int64.")
        assert str(from_spark(self.as_spark_tells_it(error))) == str(error)

    def test_what_only_looks_like_one_of_ours(self):
        for text in (
            "semistream.errors.NoSuchError: asked: found x. y",
            "semistream.errors.StoreError without its parts",
            "semistream.errors.annotations: asked: found x. y",
            "see semistream.errors.StoreError: asked: found x. y",
            "",
        ):
            assert not isinstance(from_spark(RuntimeError(text)), StoreError)


class TestSoftStateOnSpark:
    pytestmark = in_one_session

    @pytest.fixture
    def parts(self):
        """Four micro-batches whose keys are all hot: every one makes a state worth publishing."""
        return [
            table(k=[100 * part + i % 120 for i in range(3000)], n=range(3000 * part, 3000 * part + 3000))
            for part in range(4)
        ]

    @staticmethod
    def folders(spark, query: str) -> list[Path]:
        jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
        return list(private_folder().glob(f"{jvm}.*-{query}"))

    @staticmethod
    def delivered(spark) -> None:
        """Listeners have been told of all that has happened."""
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()

    def enriched(self, spark, store, parts, tmp_path, meanwhile=lambda *_: None):
        """Run a query, with something happening after each micro-batch; give it and what it gave."""
        sink, seen = ByBatch(), []

        def write(batch, number):
            sink(batch, number)
            query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            seen.append([sorted(path.iterdir()) for path in self.folders(spark, query)])
            meanwhile(query, number)

        df = read_files(spark, write_files(tmp_path / "in", *parts), SCHEMA).repartition(2)
        query = run(ss.enrich(df, store, **LEARNING), tmp_path / "checkpoint", write)
        master = table(k=range(3000), v=[f"value {i}" for i in range(3000)])
        assert sink.ran == [(i, expected(part, master, {"k": "k"}, "left")) for i, part in enumerate(parts)]
        return query, seen

    def test_it_is_there_while_the_query_runs_and_not_after(self, spark, store, parts, tmp_path):
        def private(query, _):
            (folder,) = self.folders(spark, query)
            assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
            assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]

        query, seen = self.enriched(spark, store, parts, tmp_path, private)
        assert all(len(files) == 1 for (files,) in seen)
        self.delivered(spark)
        assert self.folders(spark, query.id) == []

    def test_it_comes_back_with_the_query(self, spark, store, parts, tmp_path):
        """The same query, started again in the same session."""
        query, _ = self.enriched(spark, store, parts[:2], tmp_path)
        self.delivered(spark)
        assert self.folders(spark, query.id) == []
        seen = []

        def look(batch, number):
            batch.collect()
            seen.append([sorted(path.iterdir()) for path in self.folders(spark, query.id)])

        write_files(tmp_path / "in", *parts[2:], first=2)
        df = read_files(spark, tmp_path / "in", SCHEMA).repartition(2)
        again = run(ss.enrich(df, store, **LEARNING), tmp_path / "checkpoint", look)
        assert again.id == query.id
        assert [len(files) for (files,) in seen] == [1, 1]

    @pytest.mark.parametrize("what", ["removed", "replaced by rubbish", "made everybody's"])
    def test_whatever_happens_to_it_rows_are_right(self, spark, store, parts, tmp_path, what):
        def harm(query, _):
            for folder in self.folders(spark, query):
                if what == "removed":
                    shutil.rmtree(folder)
                elif what == "made everybody's":
                    folder.chmod(0o777)
                else:
                    for path in folder.iterdir():
                        (folder / "aside").write_bytes(os.urandom(10_000))
                        (folder / "aside").rename(path)

        query, _ = self.enriched(spark, store, parts, tmp_path, harm)
        self.delivered(spark)
        assert self.folders(spark, query.id) == []

    def test_calling_enrich_in_every_micro_batch_adds_nothing_up(self, spark, store, parts, tmp_path):
        sizes, ids = [], []

        def write(batch, number):
            ss.enrich(batch.repartition(2), ss.open_master(store.path), **LEARNING).collect()
            ids.append(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
            sizes.append(sum(len(list(folder.iterdir())) for folder in self.folders(spark, ids[-1])))

        df = read_files(spark, write_files(tmp_path / "in", *parts), SCHEMA)
        run(df, tmp_path / "checkpoint", write)
        assert sizes == [1, 1, 1, 1]
        self.delivered(spark)
        assert self.folders(spark, ids[0]) == []


class TestDeaths:
    pytestmark = in_processes

    def test_a_worker_that_is_killed_is_replaced(self, tmp_path):
        """kill -9 after a part of the task's rows were put out: none is lost, none comes twice, none is counted twice."""
        found = ask("worker-killed", tmp_path)
        assert found["killed"] == 3, "one in the batch job, one in each of two micro-batches"
        assert found["right"] == [True, True]
        assert found["counts"] == [40_000, 20_000, 20_000]
        assert any(name.endswith("-batch") for name in found["states"])
        left = [path.name for path in private_folder().iterdir() if path.name.startswith(f"{found['jvm']}.")]
        assert left == [], "shared memory that is nobody's"

    def test_a_driver_that_does_not_stop_its_session_ends_quietly(self, tmp_path):
        """Spark delivers events on a thread of its own: those of the last micro-batch find nobody any more."""
        found = ask("not-stopped", tmp_path)
        assert found["batches"] == 5
        assert "StreamingQueryListenerBus" not in found["said"], found["said"][-3000:]

    @pytest.mark.long
    def test_an_executor_that_is_killed_is_replaced_and_swept_after(self, tmp_path):
        """JVMs of their own: local-cluster. What the dead one shared goes when the next worker starts."""
        found = ask("cluster", tmp_path)
        assert set(found["right"]) == {True}
        assert found["counts"] == [40_000]
        assert (found["executors"], found["dead"], len(found["shared"])) == (2, 1, 2)
        assert found["left behind"] == []
        sweep()
