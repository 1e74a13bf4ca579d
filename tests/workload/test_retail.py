from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.workload import EveryKey, Poisson, Zipf, retail


def test_products_are_about_120_bytes_with_every_kind_of_column():
    table = retail.products(20_000, seed=1).read_all()
    assert 110 <= table.nbytes / table.num_rows <= 130
    assert table.schema == retail.PRODUCTS
    assert table["product_id"].to_pylist() == list(range(20_000))
    table.validate(full=True)
    assert table.select(["name", "price"]).slice(0, 1).to_pylist()[0]["name"].count(" ") == 3


def test_values_are_plausible():
    table = retail.products(50_000, seed=1).read_all()
    prices = table["price"].to_pylist()
    assert Decimal("0.99") <= min(prices) < Decimal("2")
    assert Decimal("900") < max(prices) <= Decimal("999.99")
    assert all(str(p).endswith("9") for p in prices[:1000])
    assert {len(b) for b in table["barcode"].to_pylist()} == {13}
    assert pc.all(pc.utf8_is_digit(table["barcode"])).as_py()
    assert set(table["category"].unique().to_pylist()) == set(retail.CATEGORIES.to_pylist())
    assert (
        2015
        <= pc.min(pc.year(table["listed_on"])).as_py()
        <= pc.max(pc.year(table["listed_on"])).as_py()
        <= 2023
    )
    assert table["name"].null_count == 0
    assert pc.count_distinct(table["name"]).as_py() > 10_000 * 0.9  # of 12,000 names


@given(cuts=st.lists(st.integers(0, 5000), min_size=3, max_size=3), seed=st.integers(0, 2))
@settings(deadline=None, max_examples=20)
def test_a_row_depends_on_its_number_only(cuts, seed):
    a, b, c = sorted(cuts)
    for keys in (None, EveryKey(1000, 5), Zipf(100)):
        products = retail.Products(5000, seed, keys=keys)
        parts = pa.Table.from_batches([products.slice(a, b), products.slice(b, c)]).combine_chunks()
        assert parts.equals(pa.Table.from_batches([products.slice(a, c)]))


def test_a_row_does_not_depend_on_how_many_there_are():
    assert retail.Products(1000).slice(0, 10).equals(retail.Products(10**9).slice(0, 10))
    assert retail.Products(10**9).slice(10**9 - 3, 10**9)["product_id"].to_pylist() == [
        10**9 - 3,
        10**9 - 2,
        10**9 - 1,
    ]


def test_another_seed_gives_other_products():
    one, other = (retail.products(100, seed=s).read_all() for s in (1, 2))
    assert one["product_id"].equals(other["product_id"])
    assert all(not one[c].equals(other[c]) for c in one.column_names[1:])


def test_keys_can_repeat_and_be_shuffled():
    keys = retail.products(3000, keys=EveryKey(1000, 3)).read_all()["product_id"].to_numpy()
    assert np.array_equal(np.bincount(keys), np.full(1000, 3))
    assert not np.array_equal(keys, np.sort(keys))


def test_keys_can_be_skewed():
    keys = (
        retail.products(20_000, keys=Zipf(100, 1.0, popularity="in-order"))
        .read_all()["product_id"]
        .to_numpy()
    )
    counts = np.bincount(keys, minlength=100)
    assert 1.8 < counts[0] / counts[1] < 2.2


def test_master_rows_do_not_follow_the_popularity_of_the_stream():
    # With the same seed on both sides, an unsorted master must not come out in order of frequency.
    popular = set(Zipf(10_000).popular(100, seed=0).tolist())
    first = retail.Products(10_000, keys=EveryKey(10_000)).slice(0, 100)["product_id"].to_pylist()
    assert len(popular.intersection(first)) < 10


def test_the_reader_feeds_a_parquet_writer_batch_by_batch(tmp_path):
    reader = retail.products(10_000, batch_rows=1_000)
    with pq.ParquetWriter(tmp_path / "products.parquet", reader.schema) as writer:
        for batch in reader:
            assert batch.num_rows == 1_000
            writer.write_batch(batch)
    assert pq.read_table(tmp_path / "products.parquet").equals(retail.products(10_000).read_all())


def test_sales_ask_for_the_products():
    sales = retail.sales(1000, 5000, arrivals=Poisson(1e4), seed=3)
    assert sales.tuple_bytes == 20
    ids = sales.slice(0, 5000)["product_id"].to_numpy()
    assert ids.min() >= 0
    assert ids.max() < 1000


@pytest.mark.parametrize("rows", [0, -1, 10**9 + 1])
def test_refuses_a_size_it_cannot_have(rows):
    with pytest.raises(InvalidInputError, match="rows="):
        retail.products(rows)
