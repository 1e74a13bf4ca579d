"""What the tests of enrich() share: fixtures, and modules that are importable by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import semistream as ss

sys.path.insert(0, str(Path(__file__).parent))

from enriching import many_to_many


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
