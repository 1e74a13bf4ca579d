"""enrich() on batch DataFrames: among other operations, several together, and what they count."""

from __future__ import annotations

import types
from collections import Counter

import pyarrow as pa
import pytest
from enriching import MEMORY, expected, many_to_many, plan_of, rows_of, table

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.spark import metrics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


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
