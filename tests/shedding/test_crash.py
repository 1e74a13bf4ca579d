"""A join that sheds may die at any moment: from its last snapshot and its store nothing is lost and nothing doubled."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracle import expected, multiset

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.joins import Settings
from semistream.shedding import Shedding, Timed
from semistream.shedding import store as stores
from semistream.workload.arrivals import Constant

ALGORITHMS = ["hybridjoin", "chybridjoin", "cmeshjoin", "inlj"]


TUPLES = 2500
SCHEMA = pa.schema({"k": pa.int64(), "n": pa.int64()})


class Died(BaseException):
    """No handler runs when a process is killed."""


class Run:
    """A join over what is left of a stream, and how much of it was handed over."""

    def __init__(self, built, batches, clock_rate: float, folder, strategy: str, algorithm: str, resume=None):
        self.pulled = 0

        def source():
            for batch in batches:
                self.pulled += 1
                yield batch

        clock = Timed(Constant(clock_rate), now=lambda: self.joined.stats.disk_seconds)
        self.joined = ss.join(
            pa.RecordBatchReader.from_batches(SCHEMA, source()),
            built,
            on="k",
            how="left",
            algorithm=algorithm,
            memory=80_000,
            disk="hdd-2007",
            settings=Settings(disk_buffer=4096, parallel=1),
            shedding=Shedding(strategy, calm_after=2),
            shed_to=folder,
            arrivals=clock,
            resume=resume,
        )
        self.out: Counter = Counter()

    def step(self) -> bool:
        answers = next(self.joined._steps, None)
        for batch in answers or ():
            self.out += multiset(pa.Table.from_batches([batch]))
        stats = self.joined.stats
        assert stats.tuples == stats.answered + stats.waiting + stats.shed + stats.dropped
        return answers is not None


def through_a_file(batch: pa.RecordBatch) -> pa.RecordBatch:
    file = io.BytesIO()
    with pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.ipc.open_file(io.BytesIO(file.getvalue())) as reader:
        return reader.get_batch(0)


def data(folder, seed: int, *, skewed: bool = True) -> tuple[ss.Master, pa.Table, pa.Table]:
    generator = np.random.default_rng(seed)
    master = pa.table({"k": np.arange(5000), "v": np.arange(5000)})
    keys = np.minimum(generator.zipf(1.2, TUPLES), 5200) if skewed else generator.integers(0, 5200, TUPLES)
    stream = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(TUPLES), pa.int64())})
    return ss.build_master(master, folder / "m", key="k", page_bytes=4096), master, stream


@pytest.mark.parametrize("strategy", ["considering", "upfront", "random"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(drawn=st.data())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_from_any_step_through_any_number_of_crashes(algorithm, strategy, drawn, tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    built, master, stream = data(folder, drawn.draw(st.integers(0, 99)))
    left = stream.to_batches(max_chunksize=drawn.draw(st.sampled_from([50, 500])))
    safe: Counter = Counter()  # what was put out before the last snapshot
    kept = None
    for _ in range(3):
        run = Run(built, left, 1e4, folder / "shed", strategy, algorithm, kept)
        for _ in range(drawn.draw(st.integers(1, 150))):
            if not run.step():
                break
        kept = through_a_file(run.joined.snapshot())
        safe += run.out
        left = left[run.pulled :]
        # It goes on for a while, sheds, fetches and answers, and dies: all that is forgotten.
        for _ in range(drawn.draw(st.integers(0, 150))):
            if not run.step():
                break
        run.joined._steps.close()
    run = Run(built, left, 1e4, folder / "shed", strategy, algorithm, kept)
    while run.step():
        pass
    assert safe + run.out == expected(stream, master, ["k"], "left")
    stats = run.joined.stats
    assert (stats.waiting, stats.shed) == (0, 0)


@pytest.mark.parametrize("strategy", ["considering", "upfront"])
def test_death_while_a_file_is_written(strategy, tmp_path, monkeypatch):
    built, master, stream = data(tmp_path, 1, skewed=False)
    left = stream.to_batches(max_chunksize=100)
    synced = 0

    def sync(descriptor: int) -> None:
        nonlocal synced
        synced += 1
        if synced == 3:  # the second file is being written: the first has synced it and its directory
            raise Died

    monkeypatch.setattr(stores.os, "fsync", sync)
    run = Run(built, left, 1e5, tmp_path / "shed", strategy, "hybridjoin")
    saved = []

    def until_death() -> None:
        while run.step():
            if run.joined.stats.advances % 5 == 0:
                saved.append((through_a_file(run.joined.snapshot()), run.out.copy(), run.pulled))

    with pytest.raises(Died):
        until_death()
    monkeypatch.undo()
    kept, safe, pulled = saved[-1]
    names = sorted(file.name for file in (tmp_path / "shed").iterdir())
    assert names == ["shed-000000000000.arrow", "shed-000000000001.arrow.part"]
    run = Run(built, left[pulled:], 1e4, tmp_path / "shed", strategy, "hybridjoin", kept)
    while run.step():
        pass
    assert safe + run.out == expected(stream, master, ["k"], "left")
    assert not list(tmp_path.glob("shed/*.part"))


def test_a_snapshot_of_shed_tuples_needs_their_directory(tmp_path):
    built, _, stream = data(tmp_path, 1)
    run = Run(built, stream.to_batches(max_chunksize=100), 1e4, tmp_path / "shed", "upfront", "hybridjoin")
    while not run.joined.stats.shedding.files:
        run.step()
    kept = run.joined.snapshot()
    with pytest.raises(InvalidInputError, match="Pass the shed_to= and shedding= that it had"):
        ss.join(stream, built, on="k", algorithm="hybridjoin", resume=kept, disk="buffered")
