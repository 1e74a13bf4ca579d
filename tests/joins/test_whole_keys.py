"""A front stage that is exactly full takes a key that repeats in with all its rows or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.joins import Settings

KEYS = 3000


def test_a_full_front_stage_caches_whole_keys(tmp_path):
    """Each row of a key counts in the sketch: the last of them may be worthy where the first is not."""
    asked = np.random.default_rng(0).integers(0, KEYS, 40_000)
    rows = pa.table({"k": np.repeat(np.arange(KEYS), 2), "v": np.arange(2 * KEYS)})
    master = ss.build_master(rows, tmp_path / "m", key="k", page_bytes=4096)
    joined = ss.join(
        pa.table({"k": asked}).to_batches(max_chunksize=500),
        master,
        on="k",
        memory=160_160,  # here the stage is full at times when a key is looked at
        disk="buffered",
        settings=Settings(at_once=True, disk_buffer=65536),
    )
    found = pa.Table.from_batches(joined)
    assert np.array_equal(np.sort(found["v"].to_numpy()), np.sort(np.concatenate([2 * asked, 2 * asked + 1])))
