"""enrich() on batch DataFrames: the rows of a join, the columns of a join, no shuffle and no job before its time.

tests/spark/test_both_pysparks.py runs this file and its two sisters under the other PySpark as well.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest
from enriching import MEMORY, expected, jobs_of, plan_of, rows_of, table
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import InvalidInputError, NotAStoreError, UnsupportedTypeError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


class TestRows:
    @pytest.mark.parametrize("how", ["inner", "left"])
    @pytest.mark.parametrize("algorithm", ss.ALGORITHMS)
    def test_every_algorithm(self, stream_df, shop, algorithm, how):
        stream, master, store = shop
        found = ss.enrich(stream_df, store, on="k", how=how, algorithm=algorithm, memory=MEMORY)
        assert rows_of(found.collect()) == expected(stream, master, {"k": "k"}, how)

    @pytest.mark.parametrize(
        ("layout", "algorithm"),
        [("heap", "auto"), ("frequency", "x-hybridjoin"), ("frequency", "chybridjoin")],
    )
    def test_every_layout(self, stream_df, shop, build, layout, algorithm):
        stream, master, _ = shop
        store = build(master, layout=layout)
        found = ss.enrich(stream_df, store, on="k", how="left", algorithm=algorithm, memory=MEMORY)
        assert rows_of(found.collect()) == expected(stream, master, {"k": "k"}, "left")

    def test_as_sparks_own_join(self, spark, stream_df, shop):
        """A second oracle, for what the first one's author might have misunderstood: nulls, repeated keys."""
        _, master, store = shop
        for how in ("inner", "left"):
            found = ss.enrich(stream_df, store, on="k", how=how, memory=MEMORY)
            wanted = stream_df.join(spark.createDataFrame(master), "k", how)
            assert rows_of(found.collect()) == rows_of(wanted.collect())
            assert found.columns == wanted.columns

    def test_a_master_given_by_its_path(self, stream_df, shop):
        stream, master, store = shop
        found = ss.enrich(stream_df, store.path, on="k", memory=MEMORY)
        assert rows_of(found.collect()) == expected(stream, master, {"k": "k"}, "inner")

    @pytest.mark.parametrize(
        ("key", "on"),
        [
            ("s", "s"),
            ("s", ["s"]),
            ("s", {"s": "s"}),
            (["s", "d"], ["s", "d"]),
            (["s", "d"], ["d", "s"]),
            (["s", "i"], {"i": "i", "s": "s"}),
            ("s", {"other": "s"}),
            (["i", "s"], {"other": "s", "i": "i"}),
        ],
    )
    def test_strings_and_several_columns_as_keys(self, spark, build, key, on):
        def side(count: int, step: int) -> dict[str, list]:
            at = [i * step for i in range(count)]
            return {
                "s": [None if i % 31 == 7 else ["", "é", "a\x00b", f"key {i % 40}"][i % 4] for i in at],
                "i": [None if i % 29 == 7 else i % 5 for i in at],
                "d": [dt.date(2020, 1, 1 + i % 4) for i in at],
            }

        master = table(**side(60, 3), v=[f"v{i}" for i in range(60)])
        stream = table(**side(200, 7), other=[f"key {i % 50}" for i in range(200)], n=range(200))
        store = build(master, key=key)
        pairs = (
            {on: on} if isinstance(on, str) else on if isinstance(on, dict) else {name: name for name in on}
        )
        wanted = [name for name in master.column_names if name not in store.key]
        found = ss.enrich(spark.createDataFrame(stream), store, on=on, how="left", memory=MEMORY)
        assert rows_of(found.collect()) == expected(stream, master, pairs, "left", wanted)

    def test_a_key_of_another_width_matches_by_value(self, spark, build):
        store = build(table(k=pa.array([1, 2, 127], pa.int8()), v=["one", "two", "top"]))
        df = spark.createDataFrame(table(k=[1, 127, 128, 2**40, -(2**40), None]))
        found = ss.enrich(df, store, on="k", how="left", memory=MEMORY)
        assert rows_of(found.collect()) == Counter(
            {
                (1, "one"): 1,
                (127, "top"): 1,
                (128, None): 1,
                (2**40, None): 1,
                (-(2**40), None): 1,
                (None, None): 1,
            }
        )

    def test_keys_that_are_times_match_by_instant(self, spark, build):
        """The session's zone is Berlin, the store's UTC."""
        at = [dt.datetime(2020, 6, 1, hour, 30, tzinfo=dt.UTC) for hour in range(5)]
        store = build(table(k=pa.array(at, pa.timestamp("us", tz="America/New_York")), v=range(5)))
        df = spark.sql("select timestamp'2020-06-01 04:30:00' as k")
        assert [row.v for row in ss.enrich(df, store, on="k", memory=MEMORY).collect()] == [2]

    def test_times_without_a_zone_are_refused_or_compared_as_spark_does(self, spark, build):
        """Spark takes them as the session's, which is Berlin's."""
        at = [dt.datetime(2020, 6, 1, hour, tzinfo=dt.UTC) for hour in range(24)]
        master = table(k=pa.array(at, pa.timestamp("us", tz="UTC")), v=range(24))
        df = spark.sql("select cast('2020-06-01 12:00:00' as timestamp_ntz) as k")
        wanted = df.join(
            spark.createDataFrame(master).withColumnRenamed("k", "key"), F.expr("k = key")
        ).select("v")
        assert [row.v for row in wanted.collect()] == [10]
        try:
            found = ss.enrich(df, build(master), on="k", memory=MEMORY).collect()
        except InvalidInputError:
            return
        assert [row.v for row in found] == [10]

    @pytest.mark.parametrize("how", ["inner", "left"])
    def test_nothing_on_either_side(self, spark, shop, build, how):
        stream, master, store = shop
        nobody = spark.createDataFrame([], "k long, n long")
        assert ss.enrich(nobody, store, on="k", how=how, memory=MEMORY).collect() == []
        empty = build(master.slice(0, 0))
        df = spark.createDataFrame(stream.slice(0, 100))
        found = ss.enrich(df, empty, on="k", how=how, memory=MEMORY)
        assert rows_of(found.collect()) == expected(stream.slice(0, 100), master.slice(0, 0), {"k": "k"}, how)

    def test_nobody_is_found(self, spark, shop):
        store = shop[2]
        df = spark.range(-500, -1).withColumnRenamed("id", "k")
        assert ss.enrich(df, store, on="k", memory=MEMORY).collect() == []
        left = ss.enrich(df, store, on="k", how="left", memory=MEMORY)
        assert left.where("v is null and w is null").count() == left.count() == 499

    @pytest.mark.parametrize("algorithm", ["auto", "hybridjoin", "cmeshjoin"])
    def test_a_long_string_after_short_ones(self, spark, shop, algorithm):
        """Within the budget, but longer than what the first tuples would make one expect."""
        df = spark.range(0, 70_000, 1, 1).selectExpr(
            "id % 400 as k", "case when id = 69999 then repeat('x', 1000000) else '' end as s"
        )
        found = ss.enrich(df, shop[2], on="k", how="left", columns=[], algorithm=algorithm, memory="8MB")
        counted = Counter(shop[1]["k"].to_pylist())
        assert found.selectExpr("sum(length(s))").first()[0] == 1_000_000 * max(counted[69_999 % 400], 1)

    def test_small_batches_of_sparks(self, spark, shop):
        """However few tuples Spark sends at a time."""
        stream, master, store = shop
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
        try:
            found = ss.enrich(spark.createDataFrame(stream), store, on="k", memory=MEMORY).collect()
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        assert rows_of(found) == expected(stream, master, {"k": "k"}, "inner")


class TestColumns:
    def test_those_asked_for_in_that_order(self, stream_df, shop):
        stream, master, store = shop
        found = ss.enrich(stream_df, store, on="k", columns=["w", "v"], memory=MEMORY)
        assert found.columns == ["k", "n", "w", "v"]
        assert rows_of(found.collect()) == expected(stream, master, {"k": "k"}, "inner", ["w", "v"])

    def test_none_at_all_leaves_the_multiplicity(self, stream_df, shop):
        stream, master, store = shop
        found = ss.enrich(stream_df, store, on="k", columns=[], memory=MEMORY)
        assert found.columns == ["k", "n"]
        assert rows_of(found.collect()) == expected(stream, master, {"k": "k"}, "inner", [])

    def test_the_masters_key_when_it_is_named(self, spark, build):
        store = build(table(id=[1, 2], v=["a", "b"]), key="id")
        df = spark.createDataFrame(table(k=[2, 3]))
        found = ss.enrich(df, store, on={"k": "id"}, how="left", columns=["id", "v"], memory=MEMORY)
        assert [tuple(row) for row in found.orderBy("k").collect()] == [(2, 2, "b"), (3, None, None)]

    @pytest.mark.parametrize(
        ("sensitive", "names"),
        [
            ("false", ["k", "v", "W", "v_master", "v_master_master", "V_master_master_master", "w_master"]),
            ("true", ["k", "v", "W", "v_master", "v_master_master", "V", "w"]),
        ],
    )
    def test_names_that_the_stream_has_get_a_suffix(self, spark, build, sensitive, names):
        """In whatever case, unless the session tells cases apart; a suffix may be taken too."""
        store = build(table(k=[1], v=["v"], V=["V"], w=["w"]))
        df = spark.createDataFrame([(1, "sv", "sw", "svm")], "k long, v string, W string, v_master string")
        spark.conf.set("spark.sql.caseSensitive", sensitive)
        try:
            found = ss.enrich(df, store, on="k", memory=MEMORY)
            assert found.columns == names
            assert [tuple(row) for row in found.collect()] == [(1, "sv", "sw", "svm", "v", "V", "w")]
            assert [tuple(row) for row in found.select(*reversed(names)).collect()] == [
                ("w", "V", "v", "svm", "sw", "sv", 1)
            ]
        finally:
            spark.conf.unset("spark.sql.caseSensitive")

    def test_a_stream_whose_names_differ_in_case_only(self, spark, build):
        store = build(table(k=[1, 2], v=["a", "b"]))
        df = spark.range(1, 3).selectExpr("id as x", "id + 10 as y").toDF("k", "K")
        found = ss.enrich(df, store, on="k", memory=MEMORY)
        assert rows_of(found.collect()) == Counter({(1, 11, "a"): 1, (2, 12, "b"): 1})

    def test_odd_names(self, spark, build):
        """Dots, backticks, blanks, other scripts, and the very names that columns have inside the job."""
        names = ["a.b", "`tick`", "with blank", "ключ", "c1", "c0", "semi;colon", "new\nline"]
        master = table(**{name: [f"{name} {i}" for i in range(5)] for name in names}, key=range(5))
        store = build(master, key="key")
        df = spark.range(5).toDF("x.y `z`").withColumn("c2", F.lit("mine"))
        found = ss.enrich(df, store, on={"x.y `z`": "key"}, memory=MEMORY)
        assert found.columns == ["x.y `z`", "c2", *names]
        assert rows_of(found.collect()) == Counter(
            (i, "mine", *(f"{name} {i}" for name in names)) for i in range(5)
        )
        again = ss.enrich(
            found, build(table(**{"a.b": ["a.b 3"], "z": [1]}), key="a.b"), on="a.b", memory=MEMORY
        )
        assert again.columns == [*found.columns, "z"]
        assert [row["x.y `z`"] for row in again.collect()] == [3]

    def test_a_stream_column_called_as_all_of_them(self, spark, build):
        found = ss.enrich(
            spark.range(3).toDF("*").withColumn("x", F.lit(1)),
            build(table(k=[1, 2], v=["a", "b"])),
            on={"*": "k"},
            memory=MEMORY,
        )
        assert found.columns == ["*", "x", "v"]
        assert rows_of(found.collect()) == Counter({(1, 1, "a"): 1, (2, 1, "b"): 1})

    @pytest.mark.parametrize(("name", "copies"), [("plain", 0), ("a.b", 1)])
    def test_rows_are_copied_to_be_named_only_where_they_must(self, spark, build, name, copies):
        """Spark's Project over the joined rows was a tenth of a micro-batch."""
        found = ss.enrich(
            spark.range(3).toDF(name), build(table(k=[1, 2], v=["a", "b"])), on={name: "k"}, memory=MEMORY
        )
        above, join, _ = found._jdf.queryExecution().optimizedPlan().toString().partition("MapInArrow")
        assert join
        assert above.count("Project") == copies

    def test_whether_a_column_may_be_null(self, spark, build):
        fields = [("k", False), ("sure", False), ("maybe", True)]
        schema = pa.schema([pa.field(name, pa.int64(), nullable) for name, nullable in fields])
        inside = pa.struct([pa.field("x", pa.int64(), nullable=False)])
        schema = schema.append(pa.field("s", inside, nullable=False))
        store = build(pa.table([[1, 2], [1, 2], [1, None], [{"x": 1}, {"x": 2}]], schema=schema))
        df = spark.range(4).selectExpr("id as k", "cast(null as int) as n")
        inner = ss.enrich(df, store, on="k", memory=MEMORY)
        left = ss.enrich(df, store, on="k", how="left", memory=MEMORY)
        assert [f.nullable for f in inner.schema] == [False, True, False, True, False]
        assert [f.nullable for f in left.schema] == [False, True, True, True, True]
        # Spark believes it: a wrong answer here would be a wrong answer there.
        assert inner.where("sure is null or s is null").count() == 0
        assert left.where("sure is null").count() == left.where("s is null").count() == 2
        assert left.where("s.x is null").count() == 2
        assert Counter(row.s for row in left.collect())[None] == 2

    def test_what_is_known_of_the_streams_columns_stays(self, spark, shop):
        df = spark.range(3).select(F.col("id").alias("k", metadata={"unit": "pieces"}), F.lit(1.5).alias("x"))
        found = ss.enrich(df, shop[2], on="k", memory=MEMORY)
        assert found.schema["k"].metadata == {"unit": "pieces"}
        assert found.schema["k"] == df.schema["k"]
        assert found.schema["x"] == df.schema["x"]

    def test_the_key_is_named_as_spark_names_columns(self, spark, build):
        store = build(table(k=[1, 2], j=[1, 1], v=["a", "b"]), key=["k", "j"])
        df = spark.createDataFrame([(2, 1), (3, 1)], "K long, J long")
        for on in (["k", "j"], {"k": "k", "J": "j"}, {"K": "k", "j": "j"}):
            found = ss.enrich(df, store, on=on, memory=MEMORY)
            assert found.columns == ["K", "J", "v"]
            assert [tuple(row) for row in found.collect()] == [(2, 1, "b")]
        spark.conf.set("spark.sql.caseSensitive", "true")
        try:
            with pytest.raises(InvalidInputError, match="'k' must be one of them"):
                ss.enrich(df, store, on=["k", "j"], memory=MEMORY)
        finally:
            spark.conf.unset("spark.sql.caseSensitive")


class TestPlanning:
    def test_no_job_runs_before_rows_are_wanted(self, spark, stream_df, shop):
        made = []

        def plan():
            made.append(ss.enrich(stream_df, shop[2], on="k", how="left", memory=MEMORY))
            assert made[0].schema.names == ["k", "n", "v", "w"]
            made.append(ss.enrich(made[0], shop[2], on={"n": "k"}, memory=MEMORY))
            assert made[1].columns == ["k", "n", "v", "w", "v_master", "w_master"]

        assert jobs_of(spark, "only planned", plan) == []
        assert jobs_of(spark, "run", made[0].count) != []

    def test_no_shuffle(self, spark, shop):
        df = spark.range(100).toDF("k")
        plan = plan_of(ss.enrich(df, shop[2], on="k", memory=MEMORY))
        assert "Exchange" not in plan
        assert plan.count("MapInArrow") == 1

    def test_the_session_is_as_it_was(self, spark, stream_df, shop):
        before = sorted(map(tuple, spark.sql("SET").collect()))
        ss.enrich(stream_df, shop[2], on="k", memory=MEMORY).count()
        assert sorted(map(tuple, spark.sql("SET").collect())) == before


class TestRefusals:
    """Everything that can be known when enrich() is called is said there, before any job."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"algorithm": "hybridjion"}, "Did you mean 'hybridjoin'"),
            ({"algorithm": "none"}, "no such algorithm"),
            ({"on": "nobody"}, "'nobody' must be one of them"),
            ({"on": {"n": "v"}}, "a master keyed by k"),
            ({"on": ["k", "n"]}, "a master keyed by k"),
            ({"on": {}}, "a master keyed by k"),
            ({"on": None}, "on"),
            ({"on": 3}, "on"),
            ({"how": "outer"}, "Choose 'inner' or 'left'"),
            ({"columns": ["v", "nothing"]}, "Leave out nothing"),
            ({"columns": "v"}, "no list of distinct names"),
            ({"columns": ["v", "v"]}, "no list of distinct names"),
            ({"memory": "5KB"}, "Raise memory= to at least"),
            ({"memory": "much"}, "memory"),
            ({"memory": -1}, "memory"),
            ({"versions": "oldest"}, "Choose 'newest' or 'pinned'"),
            ({"disk": "floppy"}, "floppy"),
        ],
        ids=str,
    )
    def test_arguments(self, spark, stream_df, shop, arguments, said):
        def refused():
            with pytest.raises(InvalidInputError, match=said) as raised:
                ss.enrich(stream_df, shop[2], **({"on": "k", "memory": MEMORY} | arguments))
            assert raised.value.hint

        assert jobs_of(spark, f"refused {arguments}", refused) == []

    def test_no_store(self, stream_df, tmp_path):
        with pytest.raises(NotAStoreError, match="found nothing"):
            ss.enrich(stream_df, tmp_path / "nowhere", on="k")

    def test_a_heap_cannot_be_looked_up(self, stream_df, shop, build):
        with pytest.raises(InvalidInputError, match='layout "heap", which has no index'):
            ss.enrich(stream_df, build(shop[1], layout="heap"), on="k", algorithm="inlj", memory=MEMORY)

    def test_keys_that_cannot_be_compared(self, spark, shop):
        df = spark.createDataFrame([], "k struct<x:bigint>")
        with pytest.raises(InvalidInputError, match="joining the stream's 'k' with a key of type int64"):
            ss.enrich(df, shop[2], on="k", memory=MEMORY)

    @pytest.mark.parametrize(
        "odd",
        [
            "'odd'",
            "cast('odd' as binary)",
            "1.5D",
            "1.25BD",
            "true",
            "timestamp_micros(1)",
            "make_dt_interval(0, 0, 0, 0.000001)",
        ],
    )
    def test_keys_of_another_kind_are_refused_or_match_nothing(self, spark, shop, odd):
        """One tuple whose key is no whole number must not end a query, nor an instant be taken for a number."""
        df = spark.range(1).selectExpr(f"{odd} as k")
        try:
            found = ss.enrich(df, shop[2], on="k", how="left", columns=["w"], memory=MEMORY)
        except (InvalidInputError, UnsupportedTypeError):
            return
        assert [row.w for row in found.collect()] == [None]

    def test_a_stream_with_a_name_twice(self, spark, shop):
        df = spark.range(3).selectExpr("id as k", "id as n", "id as n")
        with pytest.raises(InvalidInputError, match="distinct column names"):
            ss.enrich(df, shop[2], on="k", memory=MEMORY)
