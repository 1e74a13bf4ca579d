"""enrich() over Spark Connect: the client has no JVM, no SparkContext and no accumulators."""

from __future__ import annotations

import importlib.util

import pytest
from enriching import ask

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpcio"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    return ask("connected", tmp_path_factory.mktemp("connect"))


def test_it_is_connect(found):
    assert found["client"] == "pyspark.sql.connect.session"


def test_the_columns(found):
    assert found["columns"] == [["k", "bigint", True], ["n", "bigint", True], ["v", "string", True]]


@pytest.mark.parametrize("what", ["batch", "arrow", "star", "again"])
def test_the_rows(found, what):
    assert found[what] is True


def test_some_rows(found):
    assert found["limit"] == 3


def test_masters_are_put_together_here_too(found):
    assert found["plans"] == 1


def test_streaming_with_versions_that_move(found):
    """Every run sees the master as it is when its micro-batch begins."""
    first = [[0, "value 1"], [1, "value 2"], [2, None]]
    assert found["streaming"] == [
        first,
        [*first, [10, "after 0"]],
        [*first, [10, "after 0"], [11, "after 1"]],
    ]


def test_errors_are_told_as_what_they_are(found):
    planned, ran, hint, cause = found["errors"]
    assert planned == ran == "InvalidInputError"
    assert hint.startswith("Raise memory= to at least")
    assert hint.endswith("KiB.")
    assert cause != "NoneType"


def test_there_are_no_metrics_without_a_context(found):
    assert found["metrics"] == []


def test_the_session_is_as_it_was(found):
    assert found["settings"] == {}
