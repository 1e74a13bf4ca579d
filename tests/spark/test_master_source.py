from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import semistream as ss
from semistream.errors import InvalidInputError, UnsupportedTypeError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ATOMIC = {
    "a_boolean": "id % 2 = 0",
    "a_byte": "cast(id % 100 as byte)",
    "a_short": "cast(id % 100 as short)",
    "an_int": "cast(id as int)",
    "a_long": "id",
    "a_float": "cast(id as float) / 3",
    "a_double": "cast(id as double) / 3",
    "a_decimal": "cast(id as decimal(38, 10)) / 7",
    "a_string": "repeat('é', cast(id % 50 as int))",
    "a_char": "cast('ab' as char(4))",
    "a_varchar": "cast('ab' as varchar(4))",
    "a_collated": "'Ab' collate UNICODE_CI",
    "a_binary": "cast(cast(id as string) as binary)",
    "a_date": "date_add(date'1900-01-01', cast(id as int))",
    "a_timestamp": "timestamp_millis(id * 1000001)",
    "a_timestamp_ntz": "cast('2020-01-01 01:02:03.456789' as timestamp_ntz)",
    "a_day_time_interval": "make_dt_interval(cast(id % 9 as int), 2, 3)",
    "a_year_month_interval": "make_ym_interval(1, cast(id % 12 as int))",
    "a_time": "time'12:34:56.789'",
    "a_variant": "parse_json(concat('{\"a\":', id, '}'))",
    "a_void": "null",
}


def test_every_atomic_type_comes_back_with_its_nulls(spark, tmp_path):
    columns = [
        f"{sql} as {name}" if name == "a_void" else f"case when id % 5 = 3 then null else {sql} end as {name}"
        for name, sql in ATOMIC.items()
    ]
    frame = spark.range(500).selectExpr("(id * 7919) % 500 as k", *columns)
    master = ss.build_master(frame, tmp_path / "store", key="k", page_bytes=4096)
    got = pa.Table.from_batches(master.scan())
    # The oracle takes another way out of Spark: rows converted by its JDBC-like text casts, not Arrow.
    textual = [c for c in ATOMIC if c not in ("a_variant", "a_void", "a_year_month_interval")]
    expected = {
        row.k: row
        for row in frame.select(
            "k",
            *[F.col(c).isNull().alias(f"{c}_null") for c in ATOMIC],
            F.expr("cast(cast(a_year_month_interval as interval month) as int)").alias("months"),
            F.col("a_variant").cast("string").alias("variant_text"),
            *[c for c in textual if c not in ("a_time", "a_day_time_interval")],
        ).collect()
    }
    assert got.num_rows == 500
    assert got.column("k").to_pylist() == sorted(expected)
    for name in ATOMIC:
        nulls = [expected[k][f"{name}_null"] for k in sorted(expected)]
        assert [v is None for v in got.column(name).to_pylist()] == nulls, name
    rows = got.to_pylist()
    for row in rows:
        want = expected[row["k"]]
        for name in (
            "a_boolean",
            "a_byte",
            "a_short",
            "an_int",
            "a_long",
            "a_decimal",
            "a_string",
            "a_date",
            "a_double",
        ):
            assert row[name] == want[name], name
        assert row["a_timestamp_ntz"] == want["a_timestamp_ntz"]
        if row["a_timestamp"] is not None:
            assert row["a_timestamp"].timestamp() == want["a_timestamp"].timestamp()
        assert row["a_year_month_interval"] == want["months"]
    assert master.schema.field("a_timestamp").type == pa.timestamp("us", tz="UTC")
    marked = master.schema.field("a_year_month_interval").metadata
    assert marked == {b"semistream.spark_type": b"interval year to month"}


@pytest.mark.parametrize(
    ("key", "expression"),
    [
        ("k", "cast(id * 7919 % 3001 - 1500 as int) as k"),
        ("k", "cast(id * 7919 % 3001 - 1500 as long) as k"),
        ("k", "concat('key-', id * 7919 % 3001) as k"),
        ("k", "cast(reverse(cast(id as string)) as binary) as k"),
        ("k", "date_add(date'2000-01-01', cast(id * 7919 % 3001 as int)) as k"),
        ("k", "timestamp_seconds(id * 7919 % 3001) as k"),
        ("k", "cast(id * 7919 % 3001 as decimal(38, 2)) as k"),
    ],
)
def test_rows_of_every_key_type_are_sorted_and_found(spark, tmp_path, key, expression):
    frame = spark.range(3000).selectExpr(expression, "id as v")
    master = ss.build_master(frame, tmp_path / "store", key=key, page_bytes=4096)
    got = pa.Table.from_batches(master.scan())
    keys = got.column(key).to_pylist()
    assert keys == sorted(keys)
    assert sorted(got.column("v").to_pylist()) == list(range(3000))
    codes = master.codec.encode([got.column(key).combine_chunks()])
    found = master.index.find(codes)
    page_of_row = np.repeat(np.arange(master.pages), master.data.load_table().rows)
    assert (found.first <= page_of_row).all()
    assert (page_of_row <= found.last).all()


def test_composite_keys_duplicates_and_null_keys(spark, tmp_path):
    frame = spark.range(4000).selectExpr(
        "case when id % 10 = 0 then null else concat('c', id % 7) end as country",
        "cast(id % 20 as int) as shop",
        "id as v",
    )
    master = ss.build_master(frame, tmp_path / "store", key=["country", "shop"], page_bytes=4096)
    assert master.rows == 3600
    assert master.statistics.null_keys == 400
    expected = [(f"c{i % 7}", i % 20) for i in range(4000) if i % 10]
    assert master.statistics.distinct_keys == len(set(expected))
    got = pa.Table.from_batches(master.scan())
    assert list(zip(got["country"].to_pylist(), got["shop"].to_pylist(), strict=True)) == sorted(expected)


def test_many_partitions_give_one_file_each_and_one_order(spark, tmp_path):
    frame = spark.range(10_000).selectExpr("(id * 7919) % 10000 as k")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        master = ss.build_master(frame, tmp_path / "store", key="k")
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    assert len(master.manifest.data.files) == 5
    assert pa.Table.from_batches(master.scan())["k"].to_pylist() == list(range(10_000))


@pytest.mark.parametrize("frequency", [None, "hits"])
def test_frequency_layout_keeps_or_makes_the_order(spark, tmp_path, frequency):
    frame = spark.range(5000).selectExpr("(id * 7919) % 5000 as k", "(id * 31) % 5000 as hits")
    master = ss.build_master(
        frame, tmp_path / "s", key="k", layout="frequency", frequency=frequency, page_bytes=4096
    )
    hits = pa.Table.from_batches(master.scan())["hits"].to_pylist()
    assert hits == (sorted(range(5000), reverse=True) if frequency else [i * 31 % 5000 for i in range(5000)])
    assert master.key_index.record.rows == 5000


def test_heap_layout_keeps_arrival_order(spark, tmp_path):
    frame = spark.range(5000).selectExpr("(id * 7919) % 5000 as k", "id as v")
    master = ss.build_master(frame, tmp_path / "store", key="k", layout="heap")
    assert pa.Table.from_batches(master.scan())["v"].to_pylist() == list(range(5000))


def test_changes_come_from_dataframes_too(spark, tmp_path):
    master = ss.build_master(
        spark.range(100).selectExpr("id as k", "'old' as v"), tmp_path / "store", key="k"
    )
    newer = master.upsert(spark.range(50, 150).selectExpr("id as k", "'new' as v"))
    newest = newer.delete(spark.range(0, 10).selectExpr("id as k"))
    got = pa.Table.from_batches(newest.scan()).to_pydict()
    assert got == {"k": list(range(10, 150)), "v": ["old"] * 40 + ["new"] * 100}


def test_an_empty_dataframe_gives_an_empty_master(spark, tmp_path):
    master = ss.build_master(spark.range(0).selectExpr("id as k"), tmp_path / "store", key="k")
    assert (master.rows, master.pages) == (0, 0)
    assert list(master.scan()) == []


def test_column_names_with_dots_and_backticks(spark, tmp_path):
    frame = spark.range(10).toDF("a.b`c")
    master = ss.build_master(frame, tmp_path / "store", key="a.b`c")
    assert master.rows == 10


def test_a_failing_task_leaves_nothing_behind(spark, tmp_path):
    frame = spark.range(1000).selectExpr("id as k", "raise_error('broken source') as v")
    with pytest.raises(Exception, match="broken source"):
        ss.build_master(frame, tmp_path / "store", key="k", layout="heap")
    assert not (tmp_path / "store").exists()


def test_files_of_a_task_that_ran_twice_are_removed(spark, tmp_path):
    """A task attempt that died after writing its file must not leave the file in the store."""
    marker = tmp_path / "failed-once"

    def fails_once(batches):
        yield from batches
        if not marker.exists():
            marker.touch()
            os._exit(1)

    frame = spark.range(1000).mapInArrow(fails_once, "id long")
    context = spark.sparkContext
    retrying = context._conf.get("spark.task.maxFailures", "1")
    if (
        retrying == "1"
    ):  # local mode never retries: the build fails as a whole and cleans up; building again works
        with pytest.raises(Exception, match=r"crashed|exited"):
            ss.build_master(frame, tmp_path / "store", key="id")
        assert not (tmp_path / "store").exists()
    master = ss.build_master(frame, tmp_path / "store", key="id")
    files = {
        p.relative_to(tmp_path / "store").as_posix()
        for p in Path(tmp_path / "store" / "pages").rglob("*.arrow")
    }
    assert files == master.manifest.files()


def test_a_streaming_dataframe_is_refused(spark, tmp_path):
    frame = spark.readStream.format("rate").load()
    with pytest.raises(UnsupportedTypeError, match="a streaming one"):
        ss.build_master(frame, tmp_path / "store", key="value")


def test_a_missing_key_column_is_said_before_any_job_runs(spark, tmp_path):
    frame = spark.range(10).selectExpr("id", "raise_error('must not run') as v")
    with pytest.raises(InvalidInputError, match="key='product': found columns id, v"):
        ss.build_master(frame, tmp_path / "store", key="product")
    assert not (tmp_path / "store").exists()


def test_the_session_configuration_is_untouched(spark, tmp_path):
    before = sorted(spark.sql("set").collect())
    ss.build_master(spark.range(10), tmp_path / "store", key="id")
    assert sorted(spark.sql("set").collect()) == before


def test_names_that_differ_in_case_only_are_two_columns(spark, tmp_path):
    frame = spark.range(3).toDF("id").selectExpr("id", "id + 10 as x").toDF("id", "ID")
    master = ss.build_master(frame, tmp_path / "store", key="ID")
    assert pa.Table.from_batches(master.scan()).to_pydict() == {"id": [0, 1, 2], "ID": [10, 11, 12]}
    with pytest.raises(InvalidInputError, match="'id' more than once"):
        ss.build_master(spark.range(3).selectExpr("id", "id"), tmp_path / "other", key="id")
