"""Options together that were wrong together: another version of the master, another tuning, an order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.cost import retuning
from semistream.errors import InvalidInputError
from semistream.joins import Settings
from semistream.joins.transformations import mark_duplicates

KEYS, TUPLES = 20_000, 4_000


@pytest.fixture
def often(monkeypatch):
    """Look at the stream often, and change for nothing."""
    monkeypatch.setattr(retuning, "_LOOK_EVERY", 2_000)
    monkeypatch.setattr(retuning, "_GAIN", 0.0)
    monkeypatch.setattr(retuning, "_TWICE", 1)


@pytest.mark.parametrize("algorithm", ["auto", "hybridjoin", "chybridjoin", "meshjoin", "cmeshjoin"])
def test_a_join_that_is_tuned_anew_stays_with_the_newest_version(tmp_path, often, algorithm):
    rows = pa.table({"k": np.arange(KEYS), "v": np.zeros(KEYS, dtype=np.int64)})
    master = ss.build_master(rows, tmp_path / "m", key="k", page_bytes=4096)
    dice = np.random.default_rng(1)

    def source():
        for _ in range(2):
            yield pa.record_batch({"k": dice.integers(0, KEYS, TUPLES)})
        master.upsert(pa.table({"k": np.arange(KEYS), "v": np.ones(KEYS, dtype=np.int64)}))
        for _ in range(6):
            yield pa.record_batch({"k": np.minimum(dice.zipf(2.0, TUPLES), KEYS - 1)})

    joined = ss.join(
        source(), master, on="k", algorithm=algorithm, memory=1_500_000, versions="newest", tuning="dynamic"
    )
    found = np.concatenate([batch.column("v").to_numpy() for batch in joined])
    assert joined.stats.retuned > 0
    assert (np.count_nonzero(found == 0), np.count_nonzero(found == 1)) == (2 * TUPLES, 6 * TUPLES)


def test_a_join_in_order_can_be_tuned_anew(tmp_path, often):
    rows = pa.table({"k": np.arange(KEYS), "v": np.arange(KEYS)})
    master = ss.build_master(rows, tmp_path / "m", key="k", page_bytes=4096)
    dice = np.random.default_rng(2)
    asked = [
        dice.integers(0, KEYS, TUPLES),
        *(np.minimum(dice.zipf(2.0, TUPLES), KEYS - 1) for _ in range(4)),
    ]
    joined = ss.join(
        [pa.record_batch({"k": keys}) for keys in asked],
        master,
        on="k",
        algorithm="chybridjoin",
        memory=1_500_000,
        order="stream",
        tuning="dynamic",
    )
    assert np.array_equal(
        np.concatenate([batch.column("v").to_numpy() for batch in joined]), np.concatenate(asked)
    )
    assert joined.stats.retuned > 0


@pytest.mark.parametrize("rows", [3, 20_000])
def test_auto_on_layout_frequency_where_tuples_miss(tmp_path, rows):
    table = pa.table({"k": np.arange(rows), "v": np.arange(rows)})
    master = ss.build_master(table, tmp_path / "m", key="k", layout="frequency")
    joined = ss.join(pa.table({"k": [1, rows + 9]}), master, on="k", memory="16MB")
    assert sum(map(len, joined)) == 1


def test_a_version_that_does_not_fit_says_so_and_loses_nothing(tmp_path):
    table = pa.table({"k": list(range(5000)), "v": ["x" * 20] * 5000})
    master = ss.build_master(table, tmp_path / "m", key="k", page_bytes=4096)
    batch = pa.record_batch({"k": pa.array(range(100))})

    def source():
        yield batch
        master.append(pa.table({"k": list(range(5000, 60_000)), "v": ["x" * 20] * 55_000}))
        yield batch

    joined = ss.join(source(), master, on="k", algorithm="in-memory", memory="1MB", versions="newest")
    with pytest.raises(InvalidInputError, match="Raise memory="):
        list(joined)
    assert joined.stats.answered == 100
    kept = joined.snapshot()
    assert len(kept) == 100
    resumed = ss.join([batch.slice(0, 0)], master.refresh(), on="k", resume=kept)
    assert sum(map(len, resumed)) == 100


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "cmeshjoin"])
def test_a_scan_that_was_tuned_anew_is_resumed_with_what_it_was_asked_with(
    tmp_path, often, monkeypatch, algorithm
):
    small = Settings(disk_buffer=40_000)
    monkeypatch.setattr(
        retuning, "best_for", lambda asked, *_: replace(asked, algorithm=algorithm, settings=small)
    )
    rows = pa.table({"k": np.arange(KEYS), "v": np.arange(KEYS)})
    master = ss.build_master(rows, tmp_path / "m", key="k", page_bytes=4096)
    dice = np.random.default_rng(3)
    asked = [dice.integers(0, KEYS, TUPLES) for _ in range(2)]
    asked += [np.minimum(dice.zipf(2.0, TUPLES), KEYS - 1) for _ in range(3)]
    asked += [dice.integers(0, KEYS, 80_000)]
    options = {
        "on": "k",
        "algorithm": algorithm,
        "memory": 1_000_000,
        "tuning": "dynamic",
        "settings": Settings(disk_buffer=400_000),
    }
    nothing = pa.record_batch({"k": asked[0][:0]})
    source = iter([pa.record_batch({"k": keys}) for keys in asked] + [nothing])
    joined = ss.join(source, master, **options)
    found = []
    for answers in joined._steps:
        found += [batch.column("v").to_numpy() for batch in answers]
        waiting = joined._driver.opened.join.snapshot()
        if waiting.begun == len(waiting.tuples) > 7_000:  # more than the larger disk buffer leaves room for
            break
    else:
        pytest.fail("never so many waited")
    assert joined.stats.retuned > 0
    resumed = ss.join(source, master, resume=joined.snapshot(), **options)
    found += [batch.column("v").to_numpy() for batch in resumed]
    assert np.array_equal(np.sort(np.concatenate(found)), np.sort(np.concatenate(asked)))


def test_duplicates_among_nothing(tmp_path):
    master = ss.build_master(pa.table({"k": [1, 1, 2], "v": [1, 2, 3]}), tmp_path / "m", key="k")
    nothing = pa.RecordBatch.from_pylist([], schema=pa.schema({"k": pa.int64()}))
    assert sum(map(len, mark_duplicates([nothing], master, on="k"))) == 0


def test_keys_of_half_precision(tmp_path):
    master = ss.build_master(pa.table({"k": [1, 2], "v": [10, 20]}), tmp_path / "m", key="k")
    joined = ss.join(
        pa.table({"k": pa.array(np.array([1, 1.5, 7], np.float16))}), master, on="k", memory="4MB"
    )
    assert [row["v"] for batch in joined for row in batch.to_pylist()] == [10]
