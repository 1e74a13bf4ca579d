"""`auto`: as good as the best fixed, tuned algorithm, and it says what it took."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.cost.simulated import DISK, ON, master_of, stream_of

import semistream as ss
from semistream.cost import PRICES, choose, count
from semistream.cost.auto import _CANDIDATES, _can, _question
from semistream.cost.question import Point
from semistream.cost.tuner import best_rate
from semistream.joins.opening import Opening
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join
from semistream.shedding import Timed
from semistream.workload import Poisson

ROWS = 30_000
# What auto chooses from, and what it leaves out: they must not be better either.
OPPONENTS = (*_CANDIDATES, "cinlj", "inlj", "r-meshjoin")
GRID = [(0.0, 0.03), (1.0, 0.03), (1.2, 0.1)]
SKEWS = (0.0, 0.4, 0.8, 1.0, 1.2)
WHOLE_GRID = [(skew, memory) for skew in SKEWS for memory in (0.02, 0.05, 0.1)]
MORE_ROWS = 100_000  # of which 1 % is a few pages more than a join needs


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", ROWS, "key", 1.0)


@pytest.fixture(scope="module")
def larger_master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", MORE_ROWS, "key", 1.0)


def sample_of(skew, rows=20_000, keys=ROWS):
    return next(stream_of(keys, skew, rows))


def opening(master, skew, memory, disk=DISK):
    shape = shape_join(sample_of(skew, 10).schema, master, on=ON)
    return Opening("auto", master, shape, int(memory * 120 * master.rows), disk, 0.0, Settings())


@pytest.mark.parametrize(("skew", "memory"), GRID)
def test_within_ten_percent_of_the_best_fixed_algorithm_counted(master, skew, memory):
    compare(master, skew, memory)


@pytest.mark.long
@pytest.mark.parametrize(("skew", "memory"), WHOLE_GRID)
def test_within_ten_percent_of_the_best_fixed_algorithm_everywhere(master, skew, memory):
    compare(master, skew, memory)


@pytest.mark.long
@pytest.mark.parametrize("skew", SKEWS)
def test_within_ten_percent_of_the_best_fixed_algorithm_with_one_percent(larger_master, skew):
    compare(larger_master, skew, 0.01)


def compare(master, skew, memory):
    """Every candidate tuned for the true skew, run and counted; auto knows only a sample."""
    asked = opening(master, skew, memory)
    rates: dict[str, float] = {}
    tuned: dict[str, Point] = {}
    for name in OPPONENTS:
        if _can(name, asked):
            tuned[name] = best_rate(replace(_question(asked, skew), algorithm=name), asked.memory_bytes)
            fixed = Opening(name, master, asked.shape, asked.memory_bytes, DISK, 0.0, tuned[name].settings)
            rates[name] = run(fixed, skew)
    chosen = choose(asked, sample_of(skew, keys=master.rows))
    same = chosen.settings == tuned[chosen.algorithm].settings
    auto = rates[chosen.algorithm] if same else run(chosen, skew)
    assert auto >= 0.9 * max(rates.values()), f"{chosen.algorithm} {auto:,.0f} of {rates}"


def run(what, skew):
    """Tuples a second, counted; where each tuple is a read of its own, fewer of them tell as much."""
    tuples = 4_000 if what.name == "inlj" else 30_000
    warm = 4_000 if what.name == "inlj" else 100_000
    return count(
        what, stream_of(what.master.rows, skew), warm=warm, tuples=tuples, prices=PRICES[DISK]
    ).rate_per_s


def test_the_plan_says_what_was_taken_and_why(master):
    stream = pa.Table.from_batches(list(itertools.islice(stream_of(ROWS, 1.0, 20_000), 2)))
    joined = ss.join(stream, master, on=ON, memory="1MB", disk=DISK)
    rows = sum(len(batch) for batch in joined)
    assert rows == 40_000
    assert "join within 976.6 KiB: keys look like Zipf" in joined.stats.plan
    assert "would reach" in joined.stats.plan


def test_few_tuples_are_taken_for_usual_ones(master):
    joined = ss.join(pa.Table.from_batches([sample_of(0.0, 50)]), master, on=ON, memory="1MB", disk=DISK)
    assert sum(len(batch) for batch in joined) == 50
    assert "Zipf 1 assumed" in joined.stats.plan


def test_a_heap_and_a_condition_are_scanned(tmp_path):
    heap = master_of(tmp_path / "heap", 2_000, "heap", 1.0)
    stream = pa.Table.from_batches([next(stream_of(2_000, 1.0, 1_000))])
    joined = ss.join(stream, heap, on=ON, memory="1MB", disk=DISK)
    assert sum(len(batch) for batch in joined) == 1_000
    assert "meshjoin within" in joined.stats.plan


def test_too_little_memory_says_how_much_is_needed(master):
    with pytest.raises(ss.SemistreamError, match="Raise memory="):
        ss.join(pa.Table.from_batches([sample_of(1.0)]), master, on=ON, memory=3_000, disk=DISK)


def small_batches(skew, tuples, rows=64, keys=ROWS):
    return itertools.islice(stream_of(keys, skew, rows), tuples // rows)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_stream_of_small_batches_is_planned_once_more(master, how):
    """The first says nothing of the skew: 'Zipf 1 assumed' must not stay for ever, and nothing is lost by another plan."""
    stream = list(small_batches(0.0, 12_000))
    joined = ss.join(iter(stream), master, on=ON, memory="200KB", disk=DISK, how=how)
    assert "Zipf 1 assumed" in joined.stats.plan
    first = joined.stats.plan
    keys = pa.Table.from_batches(list(joined)).column("product_id").to_pylist()
    assert sorted(keys) == sorted(pa.Table.from_batches(stream).column("product_id").to_pylist())
    assert "assumed" not in joined.stats.plan
    assert "keys look like Zipf 0" in joined.stats.plan
    assert joined.stats.plan.split()[0] != first.split()[0], (
        "a uniform stream is scanned, one of Zipf 1 is not"
    )


def test_a_stream_of_small_batches_keeps_its_order(master):
    stream = list(small_batches(0.0, 12_000))
    joined = ss.join(iter(stream), master, on=ON, memory="1MB", disk=DISK, order="stream")
    keys = pa.Table.from_batches(list(joined)).column("product_id").to_pylist()
    assert keys == pa.Table.from_batches(stream).column("product_id").to_pylist()
    assert "assumed" not in joined.stats.plan


def test_a_stream_of_small_batches_answers_before_its_plan_is_sure(master):
    """Nothing is held back for a better plan: a stream may stop for hours after its first batches."""
    taken = []

    def live():
        for batch in small_batches(1.0, 200_000):
            taken.append(len(batch))
            yield batch

    joined = ss.join(live(), master, on=ON, memory="60KB", disk=DISK)
    next(joined)
    assert sum(taken) < 4_096


def test_a_plan_that_is_made_once_more_can_be_snapshotted(master):
    stream = list(small_batches(0.0, 12_000))
    source = iter(stream)
    joined = ss.join(source, master, on=ON, memory="200KB", disk=DISK)
    keys = []
    for batch in joined:
        keys += batch.column("product_id").to_pylist()
        keys += [key for more in joined.ready() for key in more.column("product_id").to_pylist()]
        if "assumed" not in joined.stats.plan:
            break
    left = joined.snapshot()
    for batch in ss.join(source, master, on=ON, memory="200KB", disk=DISK, resume=left):
        keys += batch.column("product_id").to_pylist()
    assert sorted(keys) == sorted(pa.Table.from_batches(stream).column("product_id").to_pylist())


def test_a_paced_stream_of_small_batches_is_planned_once_more(master):
    stream = list(small_batches(0.0, 12_000))
    joined = None
    clock = Timed(Poisson(2_000.0), now=lambda: joined.stats.disk_seconds, rows=sum(map(len, stream)))
    joined = ss.join(iter(stream), master, on=ON, memory="300KB", disk=DISK, arrivals=clock)
    assert "assumed" in joined.stats.plan
    keys = [key for batch in joined for key in batch.column("product_id").to_pylist()]
    assert sorted(keys) == sorted(pa.Table.from_batches(stream).column("product_id").to_pylist())
    assert "keys look like Zipf 0" in joined.stats.plan
