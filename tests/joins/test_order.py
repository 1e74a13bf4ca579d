"""Results in stream order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.joins import Settings

FIXED = [name for name in ss.ALGORITHMS if name != "auto"]


@pytest.mark.parametrize("algorithm", FIXED)
@given(drawn=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_results_leave_in_the_order_their_tuples_came(algorithm, drawn, tmp_path_factory):
    masters = drawn.draw(st.lists(st.integers(0, 30), max_size=100))
    keys = drawn.draw(st.lists(st.none() | st.integers(0, 40), max_size=120))
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    master = pa.table({"k": pa.array(masters, pa.int64()), "v": pa.array(range(len(masters)), pa.int64())})
    built = ss.build_master(master, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)
    stream = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(len(keys)), pa.int64())})
    joined = ss.join(
        pa.RecordBatchReader.from_batches(
            stream.schema, iter(stream.to_batches(max_chunksize=drawn.draw(st.integers(1, 50))))
        ),
        built,
        on="k",
        how=how,
        algorithm=algorithm,
        memory=300_000,
        order="stream",
        disk="buffered",
        settings=Settings(disk_buffer=8192, per_step=drawn.draw(st.sampled_from([None, 3]))),
    )
    assert joined.schema.names == ["k", "n", "v"]
    rows = [tuple(row.values()) for batch in joined for row in batch.to_pylist()]
    numbers = [n for _, n, _ in rows]
    assert numbers == sorted(numbers)
    want = []
    for n, k in enumerate(keys):
        found = sorted(v for v, m in enumerate(masters) if m == k and k is not None)
        want += [(k, n, v) for v in found] or ([(k, n, None)] if how == "left" else [])
    assert sorted(rows, key=lambda r: (r[1], r[2] or 0)) == want
    assert joined.stats.used_bytes <= joined.stats.budget_bytes


def test_what_is_held_back_is_bounded(tmp_path):
    """One tuple waits for a whole cycle while all others are answered at once: they may not pile up without end."""
    rows = 20_000
    built = ss.build_master(
        pa.table({"k": list(range(rows)), "v": list(range(rows))}), tmp_path / "s", key="k", page_bytes=4096
    )
    generator = np.random.default_rng(1)
    keys = np.where(generator.random(200_000) < 0.02, generator.integers(0, rows, 200_000), 5)
    joined = ss.join(
        pa.table({"k": keys, "n": np.arange(len(keys))}).to_batches(max_chunksize=2000),
        built,
        on="k",
        algorithm="cmeshjoin",
        memory=400_000,
        order="stream",
        disk="buffered",
    )
    most, numbers = 0, []
    for batch in joined:
        most = max(most, joined._driver.ordered.held_bytes + batch.nbytes)
        numbers.append(batch["n"].to_numpy())
    assert np.array_equal(np.concatenate(numbers), np.arange(len(keys)))
    assert most <= 100_000 + 2000 * 32, "a quarter of the budget, and what one batch may add"


def test_a_large_batch_is_no_reason_to_hold_all_its_output(tmp_path):
    """A table is one batch: what is answered of it leaves while the rest of it has not been offered."""
    rows = 5000
    built = ss.build_master(
        pa.table({"k": list(range(rows)), "v": ["x" * 100] * rows}), tmp_path / "s", key="k", page_bytes=4096
    )
    stream = pa.table({"k": np.random.default_rng(2).integers(0, rows, 100_000), "n": np.arange(100_000)})
    assert len(stream.to_batches()) == 1
    memory = 2_000_000
    joined = ss.join(
        stream, built, on="k", algorithm="chybridjoin", memory=memory, order="stream", disk="buffered"
    )
    most, numbers = 0, []
    for batch in joined:
        most = max(most, joined._driver.ordered.held_bytes + batch.nbytes)
        numbers += batch.column("n").to_pylist()
    assert numbers == list(range(100_000))
    assert most < memory, f"{most:,} bytes were held"
