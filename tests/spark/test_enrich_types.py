"""enrich() on batch DataFrames: columns of every type that Spark or Arrow has."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from enriching import MEMORY, rows_of, table
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import UnsupportedTypeError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


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
