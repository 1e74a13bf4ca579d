"""Dynamic tuning: a join that runs is tuned anew when its stream has become another, and loses nothing by it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from tests.cost.simulated import DISK, ON, master_of, stream_of

import semistream as ss
from semistream.cost import retuning
from semistream.joins.opening import Opening, open_join
from semistream.joins.planning import planned
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join
from semistream.shedding import Timed

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


@dataclass
class Phases:
    """So many tuples at so many a second, then others."""

    phases: tuple[tuple[int, float], ...]

    @property
    def rate(self):
        return sum(count for count, _ in self.phases) / sum(count / rate for count, rate in self.phases)

    def times(self, start, stop, *, seed):  # noqa: ARG002
        counts, rates = np.array(self.phases).T
        ends = np.concatenate([[0.0], np.cumsum(counts)])
        return np.interp(
            np.arange(start + 1.0, stop + 1.0), ends, np.concatenate([[0.0], np.cumsum(counts / rates)])
        )

    def arrived_by(self, seconds, *, seed):  # noqa: ARG002
        counts, rates = np.array(self.phases).T
        passed = np.concatenate([[0.0], np.cumsum(counts / rates)])
        return int(np.interp(seconds, passed, np.concatenate([[0.0], np.cumsum(counts)])))


@pytest.mark.parametrize("algorithm", ["meshjoin", "chybridjoin"])
def test_a_slow_stream_is_served_with_less_memory_and_a_fast_one_with_all(master, algorithm):
    """MESH 3.3: the rate of arrival is watched, and served with the least memory."""
    memory, disk = 600_000, "ssd-sata"
    best = ss.tune(algorithm, master, memory=memory * 7 // 8, skew=0.5, disk=disk).rate_per_s
    phases = Phases(((200_000, 0.7 * best), (200_000, 0.1 * best), (200_000, 0.7 * best)))
    tuples = sum(count for count, _ in phases.phases)
    some = pa.Table.from_batches(list(itertools.islice(stream_of(ROWS, 0.5), -(-tuples // 2048))))
    stream = some.slice(0, tuples).to_batches(max_chunksize=2048)
    stats, used = paced(stream, master, phases, algorithm=algorithm, disk=disk, memory=memory)
    first, slow, last = (
        max(taken for at, taken in used if low < at <= high)
        for low, high in ((100_000, 200_000), (330_000, 400_000), (530_000, 600_000))
    )
    assert slow < 0.6 * first
    assert last > 1.5 * slow
    assert 2 <= stats.retuned <= 4


def paced(stream, master, arriving, *, algorithm="chybridjoin", disk="ssd-sata", memory=600_000, how="inner"):
    """Run it at a constant rate, or in phases: the counts, and how much memory was in use after how many tuples."""
    tuples = sum(map(len, stream))
    joined = None
    phases = arriving if isinstance(arriving, Phases) else Phases(((tuples, arriving),))
    clock = Timed(phases, now=lambda: joined.stats.disk_seconds, rows=tuples)
    joined = ss.join(
        iter(stream),
        master,
        on=ON,
        how=how,
        memory=memory,
        disk=disk,
        algorithm=algorithm,
        arrivals=clock,
        tuning="dynamic",
    )
    keys, used = Counter(), []
    for batch in joined:
        keys.update(batch.column("product_id").to_pylist())
        used.append((joined.stats.tuples, joined.stats.used_bytes))
        assert joined.stats.used_bytes <= joined.stats.budget_bytes <= memory
    assert keys == Counter(pa.Table.from_batches(stream).column("product_id").to_pylist())
    return joined.stats, used


def test_a_skew_that_drifts_at_a_constant_rate_is_followed(master):
    """The least memory for a rate depends on the skew: a uniform stream needs more of it than a skewed one."""
    rate = 0.5 * ss.tune("chybridjoin", master, memory=525_000, skew=0.0, disk="ssd-sata").rate_per_s
    stream = [*batches(1.3, 140), *batches(0.0, 140), *batches(1.3, 140)]
    stats, used = paced(stream, master, rate)
    third = 140 * 2048
    skewed, uniform, again = (
        max(taken for at, taken in used if low < at <= high)
        for low, high in ((0.6 * third, third), (1.6 * third, 2 * third), (2.6 * third, 3 * third))
    )
    assert uniform > 1.3 * skewed
    assert again < uniform / 1.3
    assert 3 <= stats.retuned <= 5


def test_a_stream_that_stays_as_it_is_at_a_constant_rate_is_tuned_once(master):
    rate = 0.5 * ss.tune("chybridjoin", master, memory=525_000, skew=0.8, disk="ssd-sata").rate_per_s
    stats, _ = paced(batches(0.8, 200), master, rate)
    assert stats.retuned <= 1


def test_misses_that_begin_at_a_constant_rate_are_followed(master):
    rate = (
        0.5 * ss.tune("hybridjoin", master, memory=525_000, skew=0.5, misses=0.3, disk="ssd-sata").rate_per_s
    )
    unknown = [
        batch.set_column(
            batch.schema.get_field_index("product_id"),
            batch.schema.field("product_id"),
            pa.array(
                [key + ROWS * (i % 10 < 3) for i, key in enumerate(batch.column("product_id").to_pylist())]
            ),
        )
        for batch in batches(0.5, 100)
    ]
    stream = [*batches(0.5, 100), *unknown]
    stats, used = paced(stream, master, rate, algorithm="hybridjoin", how="left")
    half = 100 * 2048
    before, after = (
        max(taken for at, taken in used if low < at <= high)
        for low, high in ((0.6 * half, half), (1.6 * half, 2 * half))
    )
    assert after > 1.2 * before
    assert 2 <= stats.retuned <= 4


def test_a_steady_stream_is_left_alone(master):
    shape = shape_join(batches(0.0, 1)[0].schema, master, on=ON)
    opening = Opening("meshjoin", master, shape, 300_000, DISK, 0.0, Settings(parallel=1))
    opened = open_join(opening)
    try:
        retuner = retuning.RateRetuner(opening)
        # Of what it serves, so that less memory is enough. The join goes on with all of it: who looked again would say so again.
        seen = [retuner(opened, 40_000 * i, 8.0 * i) for i in range(3)]
        assert sum(each is not None for each in seen) == 1
        jumping = [40_000 * 3 + sum((44_000, 38_000)[j % 2] for j in range(i)) for i in range(20)]
        assert [retuner(opened, arrived, 24.0 + 8 * i) for i, arrived in enumerate(jumping)] == [None] * 20
    finally:
        opened.close()


def test_what_was_assumed_is_what_the_join_is_tuned_for(master):
    """A plan made of too few tuples to tell says Zipf 1: a stream that is uniform has drifted from the first look on."""
    shape = shape_join(batches(0.0, 1)[0].schema, master, on=ON)
    asked = Opening("auto", master, shape, 300_000, DISK, 0.0, Settings())
    opened = open_join(planned(asked, batches(0.0, 1)[0].slice(0, 50)))
    try:
        retuner = retuning.Retuner(asked)
        retuner._look(
            opened, shape.codes(pa.Table.from_batches(batches(0.0, 10)).combine_chunks().to_batches()[0])
        )
        assert retuner.skew == 1.0
        assert retuner.drifted == 1
    finally:
        opened.close()
