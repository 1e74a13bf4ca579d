from __future__ import annotations

import subprocess
import sys

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from semistream.errors import InvalidInputError, MissingDependencyError, StoreError
from semistream.workload import Constant, tpch


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return tpch.generate(tmp_path_factory.mktemp("tpch"), 0.01, parts=2)


def test_the_tables_have_the_sizes_of_the_specification(tables):
    assert sum(pq.read_metadata(f).num_rows for f in tables.customer) == 1_500
    assert sum(pq.read_metadata(f).num_rows for f in tables.orders) == 15_000
    assert len(tables.customer) == len(tables.orders) == 2


def test_every_order_has_a_customer(tables):
    stream = tables.stream(arrivals=Constant(1000.0))
    assert stream.total_rows == 15_000
    assert stream.arrived_by(2.0) == 2000
    asked = stream.slice(0, 15_000)["o_custkey"]
    keys = (
        pq.read_table(tables.customer[0])["c_custkey"].to_pylist()
        + pq.read_table(tables.customer[1])["c_custkey"].to_pylist()
    )
    assert sorted(keys) == list(range(1, 1_501))
    assert set(asked.to_pylist()) <= set(keys)
    # dbgen gives no orders to every third customer.
    assert pc.sum(pc.equal(pc.subtract(asked, pc.multiply(pc.divide(asked, 3), 3)), 0)).as_py() == 0


def test_orders_come_in_the_order_of_their_parts(tables):
    keys = tables.stream().slice(0, 15_000)["o_orderkey"].to_pylist()
    assert keys == sorted(keys)


def test_what_is_there_is_kept(tables, monkeypatch):
    def fail(*_args, **_kwargs):
        raise AssertionError("generated again")

    monkeypatch.setattr(subprocess, "run", fail)
    directory = tables.customer[0].parents[2]
    assert tpch.generate(directory, 0.01, parts=2) == tables


def test_a_missing_generator_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError, match=r"pip install 'semistream\[tpch\]'"):
        tpch.generate(tmp_path, 0.01)


def test_a_generator_that_fails_is_reported_and_tried_again(tmp_path):
    (tmp_path / "scale-0.01-parts-1").touch()  # a file where the folder must go
    with pytest.raises(StoreError, match="tpchgen-cli"):
        tpch.generate(tmp_path, 0.01)
    (tmp_path / "scale-0.01-parts-1").unlink()
    assert pq.read_metadata(tpch.generate(tmp_path, 0.01).orders[0]).num_rows == 15_000


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"scale": -1.0}, {"scale": 1.0, "parts": 0}])
def test_refuses_a_size_it_cannot_have(tmp_path, options):
    with pytest.raises(InvalidInputError):
        tpch.generate(tmp_path, **options)
