"""Output in flight is bounded: by pairs, and by bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream import ranges
from semistream.joins import Settings, met

WAITING = ["inlj", "meshjoin", "hybridjoin", "x-hybridjoin", "cmeshjoin", "chybridjoin", "in-memory"]
LONG = 50_000


@pytest.mark.parametrize("order", ["any", "stream"])
@pytest.mark.parametrize("algorithm", [*WAITING, "auto"])
@pytest.mark.parametrize("side", ["stream", "master"])
def test_a_batch_of_long_strings_is_small(tmp_path, algorithm, side, order):
    text = {"t": [f"{i:0{LONG}d}" for i in range(20)]}
    stream = pa.table({"k": [1] * 20, "s": range(20), **(text if side == "stream" else {})})
    rows = pa.table({"k": [1] * 40, "v": range(40), **({"t": text["t"] * 2} if side == "master" else {})})
    master = ss.build_master(rows, tmp_path / "m", key="k", page_bytes=1 << 17)
    settings = Settings(at_once=True) if algorithm == "auto" else None
    joined = ss.join(
        stream, master, on="k", algorithm=algorithm, memory="8MB", order=order, settings=settings
    )
    found = []
    for batch in joined:
        assert batch.nbytes < 6 << 20
        texts = batch.column("t").to_pylist()
        whose = (
            batch.column("s").to_pylist()
            if side == "stream"
            else [v % 20 for v in batch.column("v").to_pylist()]
        )
        assert [int(each[-9:]) for each in texts] == whose
        found += zip(batch.column("s").to_pylist(), batch.column("v").to_pylist(), strict=True)
    assert sorted(found) == [(s, v) for s in range(20) for v in range(40)]


@pytest.mark.parametrize("algorithm", [*WAITING, "auto"])
def test_pairs_beyond_those_that_are_remembered(tmp_path, monkeypatch, algorithm):
    """Every tuple of a key meets every row of it, in parts that fit, and leaves once."""
    for module in (ranges, met, ss.joins.lookup, ss.memory.rowtable):
        monkeypatch.setattr(module, "MOST_PAIRS", 50)
    dice = np.random.default_rng(4)
    stream = pa.table({"k": dice.integers(0, 12, 300), "s": range(300)})
    rows = pa.table({"k": dice.integers(0, 10, 400), "v": range(400)})
    master = ss.build_master(rows, tmp_path / "m", key="k", page_bytes=4096)
    settings = Settings(at_once=True) if algorithm == "auto" else None
    joined = ss.join(stream, master, on="k", algorithm=algorithm, memory="4MB", settings=settings)
    answers = pa.Table.from_batches(joined)
    found = sorted(zip(answers["s"].to_pylist(), answers["v"].to_pylist(), strict=True))
    keys, theirs = stream["k"].to_pylist(), rows["k"].to_pylist()
    assert found == [(s, v) for s in range(300) for v in range(400) if keys[s] == theirs[v]]
    assert joined.stats.answered == 300


def test_what_is_remembered_of_pairs(monkeypatch):
    monkeypatch.setattr(met, "MOST_PAIRS", 8)
    tuples, rows = met.MetTuples(), met.MetRows()
    slots = np.array([5, 3, 9, 3, 5])
    for row in range(20):
        tuples.add(slots)
        rows.add(np.full(5, row))
    assert tuples.slots()[:3].tolist() == [5, 3, 9]
    assert set(tuples.slots().tolist()) == {3, 5, 9}
    assert len(tuples.slots()) < 20
    assert np.unique(rows.rows()).tolist() == list(range(20))
    few = met.MetRows()
    few.add(np.array([4, 4, 7]))
    assert few.rows().tolist() == [4, 4, 7]
