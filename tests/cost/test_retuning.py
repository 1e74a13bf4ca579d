"""Dynamic tuning: a join that runs is tuned anew when its stream has become another, and loses nothing by it."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest
from tests.cost.simulated import DISK, ON, master_of, stream_of

import semistream as ss
from semistream.cost import retuning
from semistream.joins.opening import Opening, open_join
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join

ROWS = 20_000


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", ROWS, "key", 1.0)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(retuning, "_LOOK_EVERY", 8_000)


def batches(skew, count):
    return list(itertools.islice(stream_of(ROWS, skew), count))


def test_a_stream_that_becomes_skewed_is_followed_without_a_lost_or_doubled_row(master):
    stream = [*batches(0.0, 20), *batches(1.3, 30)]
    joined = ss.join(iter(stream), master, on=ON, memory="300KB", disk=DISK, tuning="dynamic")
    first = next(joined)
    plan = joined.stats.plan
    out = pa.Table.from_batches([first, *joined])
    assert joined.stats.retuned >= 1
    assert joined.stats.plan != plan
    came = Counter(pa.Table.from_batches(stream).column("product_id").to_pylist())
    assert Counter(out.column("product_id").to_pylist()) == came, "every key is in the master once"
    assert out.column("v2").to_pylist() == [2 * key for key in out.column("product_id").to_pylist()]


def test_a_stream_that_stays_as_it_is_changes_nothing(master):
    joined = ss.join(iter(batches(1.0, 40)), master, on=ON, memory="300KB", disk=DISK, tuning="dynamic")
    assert sum(len(batch) for batch in joined) == 40 * 2048
    assert joined.stats.retuned == 0


def test_one_look_at_another_skew_is_not_enough(master):
    shape = shape_join(batches(0.0, 1)[0].schema, master, on=ON)
    opening = Opening("chybridjoin", master, shape, 300_000, DISK, 0.0, Settings(parallel=1))
    opened = open_join(opening)
    try:
        retuner = retuning.Retuner(opening)
        seen = [retuner(opened, batch) for batch in batches(0.0, 8)]
        seen += [retuner(opened, batch) for batch in batches(1.5, 4)]  # one look
        seen += [retuner(opened, batch) for batch in batches(0.0, 40)]
        assert seen == [None] * len(seen)
    finally:
        opened.close()
