"""enrich() on batch DataFrames: the rows of a join, the columns of a join, no shuffle and no job before its time.

tests/spark/test_both_pysparks.py runs this file under the other PySpark as well.
"""

from __future__ import annotations

import datetime as dt
import types
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from enriching import expected, many_to_many, rows_of, table
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import InvalidInputError, NotAStoreError, UnsupportedTypeError
from semistream.spark import metrics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

MEMORY = "2MB"


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Make a store in a place of its own."""

    def build(source, key="k", **options) -> ss.Master:
        path = tmp_path_factory.mktemp("stores") / "master"
        return ss.build_master(source, path, key=key, page_bytes=4096, **options)

    return build


@pytest.fixture(scope="module")
def shop(build):
    """A stream, a master table, and the store of it."""
    stream, master = many_to_many()
    return stream, master, build(master)


@pytest.fixture(scope="module")
def stream_df(spark, shop):
    return spark.createDataFrame(shop[0]).repartition(3)


def jobs_of(spark, group: str, run) -> list[int]:
    """The jobs that Spark started meanwhile."""
    spark.sparkContext.setJobGroup(group, group)
    try:
        run()
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            spark.sparkContext.setLocalProperty(name, None)
    return list(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def plan_of(df) -> str:
    return df._jdf.queryExecution().executedPlan().toString()


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


# A column of every kind, of Spark's own making.
FROM_SPARK = {
    "a_boolean": "id % 2 = 0",
    "a_byte": "cast(id as byte)",
    "a_short": "cast(id * 300 as short)",
    "an_int": "cast(id * 100000 as int)",
    "a_long": "id * 10000000000",
    "a_float": "cast(id as float) / 3",
    "a_double": "cast(id as double) / 3",
    "a_small_decimal": "cast(id as decimal(9, 2)) / 7",
    "a_large_decimal": "cast(id as decimal(38, 10)) / 7",
    "a_string": "repeat('é', cast(id as int))",
    "a_varchar": "cast('ab' as varchar(4))",
    "a_binary": "cast(cast(id as string) as binary)",
    "a_date": "date_add(date'1900-01-01', cast(id * 4000 as int))",
    "a_timestamp": "timestamp_millis(id * 1000001 - 5000000)",
    "a_timestamp_ntz": "cast('2020-01-01 01:02:03.456789' as timestamp_ntz) + make_dt_interval(cast(id as int))",
    "a_day_time_interval": "make_dt_interval(cast(id as int), 2, 3, -4.5)",
    "a_year_month_interval": "make_ym_interval(1, cast(id as int))",
    "years": "cast(make_ym_interval(cast(id as int), 0) as interval year)",
    "a_struct": "named_struct('x', id, 'y', cast(id as string), 'z', named_struct('w', date'2020-02-02'))",
    "a_time": "time'01:02:03.456'",
    "a_void": "null",
}


class TestTypes:
    @pytest.mark.parametrize("how", ["inner", "left"])
    def test_every_type_that_spark_has(self, spark, build, how):
        """Against Spark's own join of the frame that the master was built from: values, types, nullability."""
        columns = [
            f"case when id % 5 = 3 then null else {sql} end as {name}" for name, sql in FROM_SPARK.items()
        ]
        frame = spark.range(20).selectExpr("id as k", *columns)
        store = build(frame)
        df = spark.range(15, 25).toDF("k")
        found = ss.enrich(df, store, on="k", how=how, memory=MEMORY)
        wanted = df.join(frame, "k", how)
        assert [(f.name, f.dataType.simpleString(), f.nullable) for f in found.schema] == [
            (f.name, f.dataType.simpleString(), f.nullable) for f in wanted.schema
        ]
        # PySpark cannot collect intervals of years: as text they can be compared.
        texts = [F.col(name).cast("string").alias(name) for name in ("a_year_month_interval", "years")]
        others = [name for name in found.columns if name not in ("a_year_month_interval", "years")]
        got, want = (rows_of(df.select(*others, *texts).collect()) for df in (found, wanted))
        assert got == want
        assert len(got) == (5 if how == "inner" else 10)

    def test_every_type_that_only_arrow_has(self, spark, build):
        day = dt.date(2020, 2, 29)
        instant = dt.datetime(2020, 2, 29, 1, 2, 3, 456789)
        cases = {
            "u8": (pa.uint8(), [255, 0], "smallint", [255, 0]),
            "u16": (pa.uint16(), [65535, 0], "int", [65535, 0]),
            "u32": (pa.uint32(), [2**32 - 1, 0], "bigint", [2**32 - 1, 0]),
            "u64": (pa.uint64(), [2**64 - 1, 0], "decimal(20,0)", [Decimal(2**64 - 1), Decimal(0)]),
            "half": (pa.float16(), [0.5, -2.0], "float", [0.5, -2.0]),
            "date64": (pa.date64(), [day, dt.date(1969, 12, 31)], "date", [day, dt.date(1969, 12, 31)]),
            "seconds": (
                pa.timestamp("s"),
                [1, -1],
                "timestamp_ntz",
                [dt.datetime(1970, 1, 1, 0, 0, 1), None],
            ),
            "nanos": (
                pa.timestamp("ns"),
                [1_500, None],
                "timestamp_ntz",
                [dt.datetime(1970, 1, 1, 0, 0, 0, 1), None],
            ),
            "zoned": (
                pa.timestamp("ns", tz="Asia/Tokyo"),
                [1582938123456789123, None],
                "timestamp",
                [instant.replace(tzinfo=dt.UTC), None],
            ),
            "short_time": (pa.time32("s"), [3723, None], "time(6)", [dt.time(1, 2, 3), None]),
            "duration": (
                pa.duration("ns"),
                [1_500_000, None],
                "interval day to second",
                [dt.timedelta(microseconds=1500), None],
            ),
            "fixed": (pa.binary(3), [b"abc", None], "binary", [b"abc", None]),
            "large": (pa.large_string(), ["é", None], "string", ["é", None]),
            "view": (pa.string_view(), ["a view of a string", None], "string", ["a view of a string", None]),
            "coded": (pa.dictionary(pa.int8(), pa.string()), ["x", None], "string", ["x", None]),
            "wide": (
                pa.decimal256(38, 3),
                [Decimal("1.234"), None],
                "decimal(38,3)",
                [Decimal("1.234"), None],
            ),
            "inside": (
                pa.struct([("u", pa.uint64()), ("t", pa.timestamp("ns"))]),
                [{"u": 2**64 - 1, "t": 2_000}, None],
                "struct<u:decimal(20,0),t:timestamp_ntz>",
                [(Decimal(2**64 - 1), dt.datetime(1970, 1, 1, 0, 0, 0, 2)), None],
            ),
        }
        cases["seconds"][3][1] = dt.datetime(1969, 12, 31, 23, 59, 59)
        arrays = {name: pa.array(values, kind) for name, (kind, values, _, _) in cases.items()}
        store = build(table(k=[0, 1], **arrays))
        df = spark.range(3).toDF("k")
        found = ss.enrich(df, store, on="k", how="left", memory=MEMORY)
        assert {name: kind for name, kind in found.dtypes if name != "k"} == {
            name: kind for name, (_, _, kind, _) in cases.items()
        }
        rows = found.orderBy("k").toArrow().to_pylist()  # with zones, which collect() drops
        for name, (_, _, _, wanted) in cases.items():
            got = [row[name] for row in rows]
            got = [tuple(value.values()) if isinstance(value, dict) else value for value in got]
            assert got == [*wanted, None], name

    def test_times_before_1970_are_cut_downwards(self, spark, build):
        store = build(table(k=[0], t=pa.array([-1], pa.timestamp("ns"))))
        found = ss.enrich(spark.range(1).toDF("k"), store, on="k", memory=MEMORY)
        assert found.first().t == dt.datetime(1969, 12, 31, 23, 59, 59, 999999)

    @pytest.mark.parametrize(
        "kind",
        [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.struct([("x", pa.list_(pa.int8()))])],
    )
    def test_lists_and_maps_are_refused_unless_left_out(self, spark, build, kind):
        store = build(table(k=[1, 2], v=pa.nulls(2, kind), w=["a", "b"]))
        df = spark.range(3).toDF("k")
        with pytest.raises(UnsupportedTypeError, match=r"column 'v' in a join: found type .*Leave it out"):
            ss.enrich(df, store, on="k", memory=MEMORY)
        assert ss.enrich(df, store, on="k", columns=["w"], memory=MEMORY).count() == 2

    def test_streams_have_no_lists_either(self, spark, shop):
        df = spark.range(3).selectExpr("id as k", "array(id) as xs")
        with pytest.raises(UnsupportedTypeError, match="column 'xs' in a join: found type list"):
            ss.enrich(df, shop[2], on="k", memory=MEMORY)

    @pytest.mark.parametrize(
        ("kind", "said"),
        [(pa.month_day_nano_interval(), "month_day_nano"), (pa.decimal256(50, 2), "at most 38 digits")],
    )
    def test_what_spark_has_no_type_for(self, spark, build, kind, said):
        store = build(table(k=[1, 2], v=pa.nulls(2, kind), w=["a", "b"]))
        df = spark.range(3).toDF("k")
        with pytest.raises(UnsupportedTypeError, match=rf"column 'v' on Spark: .*{said}.*columns="):
            ss.enrich(df, store, on="k", memory=MEMORY)
        assert ss.enrich(df, store, on="k", columns=["w"], memory=MEMORY).count() == 2

    def test_a_stream_column_that_arrow_has_no_form_for(self, spark, shop):
        df = spark.range(3).selectExpr("id as k", "make_ym_interval(1, 2) as m")
        with pytest.raises(UnsupportedTypeError, match=r"interval year to month.*Cast or drop"):
            ss.enrich(df, shop[2], on="k", memory=MEMORY)

    @pytest.mark.parametrize("kind", ["a variant", "a time"])
    def test_streams_may_have_the_newer_types(self, spark, shop, kind):
        sql = {"a variant": "parse_json('{\"a\": 1}')", "a time": "time'01:02:03'"}[kind]
        df = spark.range(1, 3).selectExpr("id as k", f"{sql} as x")
        found = (
            ss.enrich(df, shop[2], on="k", columns=[], memory=MEMORY).distinct if kind == "a time" else None
        )
        rows = (
            ss.enrich(df, shop[2], on="k", columns=[], memory=MEMORY)
            .selectExpr("cast(x as string)")
            .collect()
        )
        assert {row.x for row in rows} == {'{"a":1}' if kind == "a variant" else "01:02:03"}
        assert found is None or found().count() == 2

    @pytest.mark.parametrize(
        "sql",
        [
            "'x'",
            "cast('x' as binary)",
            "named_struct('x', 'x')",
        ],
    )
    def test_large_strings_on_the_way_to_the_worker(self, spark, build, sql):
        store = build(table(k=[1, 2], v=["a", None], b=[b"a", None]))
        df = spark.range(1, 4).selectExpr("id as k", f"{sql} as s")
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
        try:
            found = ss.enrich(df, store, on="k", how="left", memory=MEMORY)
            assert rows_of(found.select("k", "v", "b").collect()) == Counter(
                [(1, "a", b"a"), (2, None, None), (3, None, None)]
            )
            assert rows_of(found.select("s").collect()) == rows_of(df.select("s").collect())
        finally:
            spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


@pytest.fixture(scope="module")
def wanted(shop) -> Counter:
    stream, master, _ = shop
    return expected(stream, master, {"k": "k"}, "inner")


class TestAmongOtherOperations:
    @pytest.mark.parametrize(
        "before",
        [
            lambda df: df.where("n >= 0"),
            lambda df: df.repartition(5),
            lambda df: df.coalesce(1),
            lambda df: df.where("n < 700").union(df.where("n >= 700")),
            lambda df: df.orderBy("n"),
            lambda df: df.mapInArrow(lambda batches: batches, df.schema),
        ],
        ids=["filter", "repartition", "coalesce", "union", "sort", "mapInArrow"],
    )
    def test_whatever_comes_before(self, stream_df, shop, wanted, before):
        found = ss.enrich(before(stream_df), shop[2], on="k", memory=MEMORY)
        assert rows_of(found.collect()) == wanted

    def test_whatever_comes_after(self, spark, stream_df, shop, wanted):
        found = ss.enrich(stream_df, shop[2], on="k", memory=MEMORY)
        groups = Counter()
        for (k, _, _, _), times in wanted.items():
            groups[k] += times
        assert {row.k: row["count"] for row in found.groupBy("k").count().collect()} == groups
        assert rows_of(found.select("w").collect()) == rows_of((row[3],) for row in wanted.elements())
        assert rows_of(found.where("v is null").collect()) == Counter(
            {row: times for row, times in wanted.items() if row[2] is None}
        )
        names = spark.createDataFrame([(k, f"name {k}") for k in range(0, 400, 2)], "k long, name string")
        assert rows_of(found.join(names, "k").collect()) == Counter(
            {(*row, f"name {row[0]}"): times for row, times in wanted.items() if row[0] % 2 == 0}
        )
        assert found.union(found).count() == 2 * wanted.total()

    @pytest.mark.parametrize("algorithm", ["auto", "meshjoin", "in-memory"])
    def test_a_generator_that_was_stopped_early_leaves_nothing_behind(self, spark, shop, algorithm):
        """Tuples may wait inside a join when Spark wants no more; whoever runs next must not meet them."""
        store = shop[2]
        df = spark.range(0, 60_000, 1, 1).selectExpr("id % 400 as k", "id as n")
        found = ss.enrich(df, store, on="k", algorithm=algorithm, memory=MEMORY)
        counted = Counter(shop[1]["k"].to_pylist())
        wanted = 150 * sum(counted[k] for k in range(400))
        for _ in range(2):
            some = found.limit(3).collect()
            assert len(some) == 3
            assert all(row.k == row.n % 400 for row in some)
            assert found.count() == wanted
        assert len(found.take(5)) == 5
        assert found.selectExpr("sum(n)").first()[0] == sum(n * counted[n % 400] for n in range(60_000))

    def test_a_cached_frame_is_not_computed_again(self, stream_df, shop, wanted):
        found = ss.enrich(stream_df, shop[2], on="k", memory=MEMORY).cache()
        try:
            assert rows_of(found.collect()) == wanted
            assert rows_of(found.collect()) == wanted
        finally:
            found.unpersist()

    def test_an_enrichment_of_a_cached_frame_reads_the_cache(self, stream_df, shop):
        found = ss.enrich(stream_df, shop[2], on="k", memory=MEMORY).cache()
        try:
            assert "InMemoryTableScan" in plan_of(ss.enrich(found, shop[2], on={"n": "k"}, memory=MEMORY))
        finally:
            found.unpersist()

    def test_the_master_of_a_batch_is_the_version_it_was_opened_at(self, spark, build):
        first = build(table(k=[1], v=["old"]))
        df = spark.range(1, 2).toDF("k")
        found = ss.enrich(df, first, on="k", memory=MEMORY)
        first.upsert(table(k=[1], v=["new"]))
        assert [row.v for row in found.collect()] == ["old"]
        assert [row.v for row in ss.enrich(df, first.path, on="k", memory=MEMORY).collect()] == ["new"]
        assert [row.v for row in ss.enrich(df, first, on="k", memory=MEMORY).collect()] == ["old"]


@pytest.fixture(scope="module")
def masters(build):
    """Tables, their stores and their keys: each finds the key of the next."""
    products = table(product=range(50), shop=[i % 7 for i in range(50)], price=[i * 1.5 for i in range(50)])
    shops = table(shop=range(6), city=[f"city {i}" for i in range(6)])
    cities = table(city=[f"city {i}" for i in range(0, 6, 2)], country=["A", "B", "C"])
    return [
        (products, build(products, key="product"), "product"),
        (shops, build(shops, key="shop"), "shop"),
        (cities, build(cities, key="city"), "city"),
    ]


@pytest.fixture(scope="module")
def sales() -> pa.Table:
    return table(sale=range(1000), product=[i * 7 % 60 for i in range(1000)])


def one_after_the_other(stream, masters, how) -> Counter:
    for master, _, key in masters:
        rows = expected(stream, master, {key: key}, how)
        names = [*stream.column_names, *(name for name in master.column_names if name != key)]
        columns = zip(*rows.elements(), strict=True)
        stream = pa.table(dict(zip(names, map(list, columns), strict=True)))
    return rows


class TestStar:
    @pytest.mark.parametrize("how", ["inner", "left"])
    def test_three_masters_are_one_pass(self, spark, masters, sales, how):
        found = spark.createDataFrame(sales).repartition(3)
        for number, (_, store, key) in enumerate(masters):
            found = ss.enrich(found, store, on=key, how=how, memory=MEMORY, label=f"m{number}")
        assert plan_of(found).count("MapInArrow") == 1
        wanted = one_after_the_other(sales, masters, how)
        assert rows_of(found.collect()) == wanted
        counts = ss.metrics_of(found)
        assert list(counts) == ["m0", "m1", "m2"]
        assert counts["m0"].tuples == 1000
        assert counts["m1"].tuples == counts["m0"].rows
        assert counts["m2"].tuples == counts["m1"].rows
        assert counts["m2"].rows == wanted.total()

    def test_an_operation_in_between_makes_two(self, spark, masters, sales):
        (_, products, _), (_, shops, _), _ = masters
        df = spark.createDataFrame(sales)
        found = ss.enrich(df, products, on="product", memory=MEMORY).where("price > 9")
        found = ss.enrich(found, shops, on="shop", memory=MEMORY)
        assert plan_of(found).count("MapInArrow") == 2
        wanted = one_after_the_other(sales, masters[:2], "inner")
        assert rows_of(found.collect()) == Counter({row: n for row, n in wanted.items() if row[3] > 9})

    def test_each_step_is_still_there_for_itself(self, spark, masters, sales):
        """What is put together is not changed by it."""
        (_, products, _), (_, shops, _), _ = masters
        one = ss.enrich(spark.createDataFrame(sales), products, on="product", memory=MEMORY)
        two = ss.enrich(one, shops, on="shop", memory=MEMORY)
        other = ss.enrich(one, shops, on="shop", how="left", columns=[], memory=MEMORY)
        for _ in range(2):
            assert rows_of(two.collect()) == one_after_the_other(sales, masters[:2], "inner")
            assert rows_of(one.collect()) == one_after_the_other(sales, masters[:1], "inner")
            assert rows_of(other.collect()) == rows_of(one.collect())

    def test_one_master_twice(self, spark, build):
        """Say, the country of departure and the country of arrival."""
        store = build(table(code=["a", "b"], name=["Austria", "Belgium"]), key="code")
        df = spark.createDataFrame([("a", "b"), ("b", "a"), ("a", "x")], "origin string, target string")
        found = ss.enrich(df, store, on={"origin": "code"}, memory=MEMORY)
        found = ss.enrich(found, store, on={"target": "code"}, how="left", memory=MEMORY)
        assert found.columns == ["origin", "target", "name", "name_master"]
        assert rows_of(found.collect()) == Counter(
            {
                ("a", "b", "Austria", "Belgium"): 1,
                ("b", "a", "Belgium", "Austria"): 1,
                ("a", "x", "Austria", None): 1,
            }
        )
        assert list(ss.metrics_of(found)) == ["master", "master-2"]

    def test_a_key_found_in_the_first_master_opens_the_second(self, spark, masters, sales):
        """And a miss there is a null here, which matches nothing."""
        (_, products, _), (_, shops, _), _ = masters
        df = spark.createDataFrame(sales).where("product >= 50")
        found = ss.enrich(df, products, on="product", how="left", memory=MEMORY)
        assert ss.enrich(found, shops, on="shop", memory=MEMORY).count() == 0
        found = ss.enrich(found, shops, on="shop", how="left", memory=MEMORY)
        assert found.where("city is null").count() == df.count() > 0


class TestMetrics:
    def test_they_add_up(self, stream_df, build):
        stream, master = many_to_many()
        found = ss.enrich(stream_df, build(master), on="k", how="left", memory=MEMORY, label="alone")
        rows = found.collect()
        counts = ss.metrics_of(found)["alone"]
        met = {k for k in master["k"].to_pylist() if k is not None}
        matches = sum(k in met for k in stream["k"].to_pylist())
        assert (counts.tuples, counts.matches, counts.misses) == (3000, matches, 3000 - matches)
        assert counts.rows == len(rows)
        assert counts.version == 1
        assert counts.budget_bytes == 2_000_000
        assert 0 < counts.used_bytes <= counts.budget_bytes

    def test_running_again_counts_anew(self, stream_df, build):
        found = ss.enrich(stream_df, build(many_to_many()[1]), on="k", memory=MEMORY, label="twice")
        for _ in range(2):
            found.count()
            assert ss.metrics_of(found)["twice"].tuples == 3000

    def test_another_frame_with_the_same_master_does_not_count_here(self, spark, stream_df, shop):
        ss.enrich(stream_df.repartition(4), shop[2], on="k", memory=MEMORY, label="shared").count()
        few = ss.enrich(spark.range(0, 10, 1, 1).toDF("k"), shop[2], on="k", memory=MEMORY, label="shared")
        few.count()
        assert ss.metrics_of(few)["shared"].tuples == 10

    @pytest.mark.parametrize("labels", [("one", "two"), ("same", "same")])
    def test_two_enrichments_of_one_query_do_not_overwrite_each_other(self, spark, shop, labels):
        """Both sides of a join: two stages with the same numbers of partitions. What is the same is counted together."""
        one, two = (
            ss.enrich(
                spark.range(0, n, 1, 2).toDF("k"), shop[2], on="k", columns=[], memory=MEMORY, label=label
            )
            for n, label in zip((100, 300), labels, strict=True)
        )
        one.hint("merge").join(two, "k").collect()
        counted = [ss.metrics_of(df)[label].tuples for df, label in zip((one, two), labels, strict=True)]
        assert counted == ([100, 300] if labels[0] != labels[1] else [400, 400])

    def test_a_run_over_fewer_tuples_counts_no_more_than_those(self, spark, shop, tmp_path):
        spark.range(0, 100, 1, 4).toDF("k").write.parquet(str(tmp_path / "in"))
        df = spark.read.parquet(str(tmp_path / "in"))
        found = ss.enrich(df, shop[2], on="k", memory=MEMORY, label="fewer")
        found.count()
        assert ss.metrics_of(found)["fewer"].tuples == 100
        found = ss.enrich(df.where("k < 10"), shop[2], on="k", memory=MEMORY, label="fewer")
        found.count()
        assert ss.metrics_of(found)["fewer"].tuples == 10

    def test_a_session_that_was_stopped_does_not_count(self, stream_df, shop, monkeypatch):
        """The same enrichment has the same name in the next session of a process."""
        found = ss.enrich(stream_df, shop[2], on="k", memory=MEMORY, label="sessions")
        found.count()
        (uid,) = [step.uid for step in vars(found)["_semistream_plan"].steps]
        old = {
            (metrics.BatchId(), uid): metrics.Counted.at(
                metrics.Place(9), "sessions", metrics.Counts(tuples=7)
            )
        }
        before = {"stopped": types.SimpleNamespace(value=old)}
        monkeypatch.setattr(metrics, "_accumulators", before | metrics._accumulators)
        assert ss.metrics_of(found)["sessions"].tuples == 3000

    def test_a_micro_batch_that_was_replayed_is_told_once(self, monkeypatch):
        """By another enrichment of the same name: the query was changed before it was started again."""
        batch, counted = metrics.BatchId("query", 3), metrics.Counted.at
        known = {
            (batch, "old"): counted(metrics.Place(run=4), "m", metrics.Counts(tuples=7)),
            (batch, "new"): counted(metrics.Place(run=9), "m", metrics.Counts(tuples=8)),
        }
        monkeypatch.setattr(metrics, "_accumulators", {"app": types.SimpleNamespace(value=known)})
        assert {label: counts.tuples for label, counts in metrics.counts_of(batch).items()} == {"m": 8}

    def test_a_frame_that_enrich_did_not_make_has_none(self, stream_df):
        with pytest.raises(InvalidInputError, match=r"metrics_of\(df\): found a DataFrame that enrich"):
            ss.metrics_of(stream_df)


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
