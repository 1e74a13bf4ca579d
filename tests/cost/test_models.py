"""Predicted against counted: the same setting in the model and in the simulator, where every operation is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cost.simulated import ON, SEED, case, counted, master_of, stream_of

from semistream.cost import case_of, costs_of, count, predict
from semistream.joins.opening import Opening
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join

ROWS = 40_000
WITHIN = 0.02
# What is counted is random. So every setting is counted several times, each on a stream of its own, until the standard error of
# the mean is far below what is asked. Where a join reads blocks of a master in another order than that of popularity, other keys
# are popular each time: which of them share a block is chance too.
#
# A window that was filled from nothing is read in step: popular blocks first, then the others, and again, once in two windows'
# worth of tuples. After four of them reads still come and go by 40 %, and a count that begins and ends anywhere in that is up to
# 3 % off, every time the same. So joins run for long before they are counted, and each run begins at another point of the cycle.
SURE = 0.005
LEAST_RUNS, MOST_RUNS = 4, 24
WARM, COUNTED = 8, 8  # windows' worth of tuples, where blocks are read
# Tuples that wait, and reads where each finishes another number of tuples, in one run.
WAITING, READS, SKEWED_READS = 10_000, 2_000, 4_000
BY_FREQUENCY = ("x-hybridjoin", "optimised-x-hybridjoin")
FRONTED = ("cinlj", "cmeshjoin", "chybridjoin")
# Blocks of one page and of several; a disk buffer that divides the master and one that does not.
SETTINGS = {
    "inlj": Settings(disk_buffer=8 * 4096, parallel=1),
    "meshjoin": Settings(disk_buffer=37 * 4096, parallel=1),
    "r-meshjoin": Settings(disk_buffer=37 * 4096, parallel=1),
    "hybridjoin": Settings(disk_buffer=4 * 4096, block_pages=4, parallel=1),
    "x-hybridjoin": Settings(disk_buffer=2 * 4096, block_pages=2, front_share=0.2, parallel=1),
    "optimised-x-hybridjoin": Settings(disk_buffer=2 * 4096, block_pages=2, front_share=0.2, parallel=1),
    "cinlj": Settings(disk_buffer=8 * 4096, front_share=0.5, parallel=1),
    "cmeshjoin": Settings(disk_buffer=37 * 4096, front_share=0.3, parallel=1),
    "chybridjoin": Settings(disk_buffer=2 * 4096, block_pages=2, front_share=0.3, parallel=1),
    "in-memory": Settings(),
}
GRID = [(0.05, 0.0), (0.1, 1.0)]  # memory as a share of the master, skew
WHOLE_GRID = [(memory, skew) for memory in (0.02, 0.05, 0.1) for skew in (0.0, 0.4, 0.8, 1.0, 1.2, 1.5)]


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    made = {}

    def master(rows, layout, skew):
        key = (rows, layout, skew if layout == "frequency" else 0.0)
        if key not in made:
            made[key] = master_of(tmp_path_factory.mktemp("master") / "m", rows, layout, skew)
        return made[key]

    return master


def deviation(masters, algorithm, rows, memory, skew, settings):
    """How far the predicted seconds of a tuple are from the counted ones, the standard error of these, and all of it in words."""
    master = masters(rows, "frequency" if algorithm in BY_FREQUENCY else "key", skew)
    memory_bytes = int(memory * 120 * rows) if algorithm != "in-memory" else 400 * rows
    settings = within(settings, memory_bytes)
    asked = case(algorithm, master, skew, memory_bytes, settings)
    loop = predict(asked)
    front, share = asked.division.front_rows, max(1 - loop.front_share, 0.01)
    settled, turn = 40 * front if algorithm in FRONTED else 0, asked.division.window_tuples / share
    warm = (WARM if "hybrid" in algorithm else 4) * turn + settled
    tuples = WAITING / share if algorithm != "in-memory" else 20_000
    if "hybrid" in algorithm:
        tuples = max(tuples, COUNTED * turn, (READS if skew <= 1.2 else SKEWED_READS) * loop.tuples)
    tuples = int(min(max(tuples, settled), 4_000_000))
    found = []
    while len(found) < LEAST_RUNS or (error_of(found) > SURE and len(found) < MOST_RUNS):
        run = len(found)
        again = {"start": run << 32} if algorithm in BY_FREQUENCY else {"seed": SEED + run}
        begin = int(warm + run % LEAST_RUNS * 2 * turn / LEAST_RUNS)
        one = counted(algorithm, master, skew, memory_bytes, settings, warm=begin, tuples=tuples, **again)
        found.append(one.seconds / one.stats.tuples)
    predicted_s, counted_s = loop.seconds(asked) / loop.tuples, float(np.mean(found))
    off, error = predicted_s / counted_s - 1, error_of(found)
    shown = f"{off:+.2%} ({error:.2%}): predicted {predicted_s:.3e} s a tuple, counted {counted_s:.3e} in {len(found)} runs of {tuples:,}"
    return off, error, shown


def within(settings, memory_bytes):
    """The same with a disk buffer of at most a third of the budget: 37 pages are more than 2 % of the smallest master."""
    pages = memory_bytes // 3 // 4096
    return replace(settings, disk_buffer=min(settings.disk_buffer or 0, pages * 4096) or None)


def error_of(found):
    """The standard error of the mean, as a share of it."""
    return float(np.std(found, ddof=1) / np.sqrt(len(found)) / np.mean(found)) if len(found) > 1 else 1.0


def compare(masters, algorithm, rows, memory, skew, settings=None):
    off, error, shown = deviation(masters, algorithm, rows, memory, skew, settings or SETTINGS[algorithm])
    assert error <= SURE, f"counted too little: {shown}"
    assert abs(off) <= WITHIN, shown


@pytest.mark.parametrize(("memory", "skew"), GRID)
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_predicted_and_counted_cost_agree(masters, algorithm, memory, skew):
    compare(masters, algorithm, ROWS, memory, skew)


@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("hybridjoin", Settings(disk_buffer=16 * 4096, block_pages=1, parallel=16)),
        ("hybridjoin", Settings(disk_buffer=16 * 4096, block_pages=4, parallel=4)),
        ("chybridjoin", Settings(disk_buffer=16 * 4096, block_pages=1, parallel=16, front_share=0.3)),
    ],
)
def test_predicted_and_counted_cost_agree_where_blocks_are_chosen_together(
    masters, algorithm, settings, skew
):
    compare(masters, algorithm, ROWS, 0.1, skew, settings)


def test_a_batch_that_ends_between_two_reads_is_part_of_the_model(masters):
    """About as many tuples come with a batch as between two reads: the recorder looks at its threshold after either."""
    compare(masters, "cmeshjoin", 50_000, 0.1, 1.5)


@pytest.mark.parametrize(
    ("algorithm", "disk"), [("hybridjoin", "ssd-sata"), ("meshjoin", "nvme"), ("inlj", "nvme")]
)
def test_predicted_and_counted_cost_agree_on_other_disks(masters, algorithm, disk):
    """Whose machine has a price for an iteration, too."""
    master = masters(5_000, "key", 1.0)
    shape = shape_join(next(stream_of(10, 0.0)).schema, master, on=ON)
    costs, settings, memory_bytes = costs_of(master, disk), SETTINGS[algorithm], 300_000
    asked = case_of(
        algorithm,
        master,
        shape,
        memory_bytes=memory_bytes,
        settings=settings,
        skew=1.0,
        disk_kind=disk,
        disk=costs.disk,
        prices=costs.prices,
    )
    opening = Opening(algorithm, master, shape, memory_bytes, disk, 0.0, settings)
    run = count(opening, stream_of(5_000, 1.0), warm=40_000, tuples=40_000, prices=costs.prices)
    assert predict(asked).rate_per_s(asked) == pytest.approx(run.rate_per_s, rel=0.05)


@pytest.mark.parametrize(("algorithm", "front"), [("x-hybridjoin", 0.5), ("optimised-x-hybridjoin", 0.5)])
def test_rows_in_memory_spare_reads_in_the_order_of_keys_too(masters, algorithm, front):
    master, memory_bytes = masters(ROWS, "key", 1.0), 500_000
    settings = replace(SETTINGS[algorithm], front_share=front)
    asked = case(algorithm, master, 1.0, memory_bytes, settings)
    loop = predict(asked)
    found = [
        counted(
            algorithm, master, 1.0, memory_bytes, settings, warm=60_000, tuples=60_000, seed=SEED + run
        ).rate_per_s
        for run in range(8)
    ]
    # Which keys are in memory is chance: the first one alone is a tenth of the stream.
    assert loop.rate_per_s(asked) == pytest.approx(np.mean(found), rel=0.15)


def test_where_every_row_is_in_memory_a_miss_is_the_only_read(masters):
    master = masters(5_000, "key", 1.0)
    settings = Settings(disk_buffer=8 * 4096, block_pages=1, front_share=0.9, parallel=1)
    asked = replace(case("chybridjoin", master, 1.0, 1_500_000, settings), misses=0.01)
    assert asked.division.front_rows >= 5_000
    assert predict(asked).tuples == pytest.approx(100.0)


@pytest.mark.long
@pytest.mark.parametrize("rows", [50_000, 400_000])
@pytest.mark.parametrize(("memory", "skew"), WHOLE_GRID)
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_predicted_and_counted_cost_agree_everywhere(masters, algorithm, rows, memory, skew):
    compare(masters, algorithm, rows, memory, skew)
