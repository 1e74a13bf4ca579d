"""The tuner against exhaustive search, and what it says to bad questions."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tests.cost.simulated import DISK, SEED, Described, counted, master_of, stream_of

import semistream as ss
from semistream.cost.question import ask
from semistream.cost.tuner import best_rate
from semistream.errors import InvalidInputError
from semistream.joins.registry import Settings

ROWS = 100_000
TUNED = (
    "inlj",
    "meshjoin",
    "hybridjoin",
    "x-hybridjoin",
    "optimised-x-hybridjoin",
    "cinlj",
    "cmeshjoin",
    "chybridjoin",
)
FRONTED = ("x-hybridjoin", "optimised-x-hybridjoin", "cinlj", "cmeshjoin", "chybridjoin")


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", ROWS, "frequency", 1.0)


def question(name, master, skew, disk=DISK):
    return ask(name, master, skew=skew, sample=None, on=None, columns=None, disk=disk, parallel=None)


def exhaustive(asked, memory_bytes):
    """The best rate of a fine grid over all parameters."""
    most = int(0.8 * memory_bytes) // asked.master.page_bytes
    pages = sorted({max(1, round(x)) for x in np.geomspace(1, max(most, 2), 20)})
    return best_of(asked, memory_bytes, pages, np.linspace(0.02, 0.94, 10))


def best_of(asked, memory_bytes, pages, shares):
    """The best rate of so many pages with such shares for hot rows."""
    best = 0.0
    for b, share in itertools.product(pages, shares):
        settings = Settings(disk_buffer=b * asked.master.page_bytes, front_share=float(share), parallel=1)
        if "hybrid" in asked.algorithm:
            settings = replace(settings, block_pages=b)
        found = asked.point(memory_bytes, settings)
        best = max(best, found.rate_per_s if found is not None else 0.0)
    return best


@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize("memory_bytes", [500_000, 1_200_000])
@pytest.mark.parametrize("name", [name for name in TUNED if not name.startswith("c")])
def test_the_choice_is_within_three_percent_of_the_best(master, name, memory_bytes, skew):
    asked = question(name, master, skew)
    best = asked.point(memory_bytes, best_rate(asked, memory_bytes).settings)
    assert best.rate_per_s >= 0.97 * exhaustive(asked, memory_bytes)


@pytest.mark.parametrize("name", ["cinlj", "cmeshjoin", "chybridjoin"])
def test_the_choice_with_a_front_stage_is_within_three_percent_of_the_best(master, name):
    asked = question(name, master, 0.9)
    best = asked.point(1_000_000, best_rate(asked, 1_000_000).settings)
    found = best_of(asked, 1_000_000, [1, 2, 4, 8, 16, 32, 64], [0.1, 0.3, 0.5, 0.7, 0.85])
    assert best.rate_per_s >= 0.97 * found


def test_the_choice_is_within_three_percent_of_the_best_on_a_narrow_ridge(tmp_path):
    """Where larger blocks need more hot rows, and a rough instance cannot tell how many."""
    asked = question("chybridjoin", master_of(tmp_path / "m", ROWS, "frequency", 1.3), 1.3)
    best = asked.point(1_000_000, best_rate(asked, 1_000_000).settings)
    assert best.rate_per_s >= 0.97 * best_of(asked, 1_000_000, [50, 57, 64, 72, 80], [0.3, 0.35, 0.4])


LARGE_BUDGETS = [(100_000_000, 256_000_000), (100_000_000, 1_200_000_000), (10_000_000, 60_000_000)]


@pytest.mark.parametrize("skew", [0.5, 1.0])
@pytest.mark.parametrize(("rows", "memory_bytes"), LARGE_BUDGETS)
@pytest.mark.parametrize("layout", ["frequency", "key"])
def test_the_choice_for_a_large_master_is_within_three_percent_of_the_best(
    tmp_path, layout, rows, memory_bytes, skew
):
    """Where windows have millions of places, which the search follows in small."""
    asked = question("chybridjoin", Described(master_of(tmp_path / "m", ROWS, layout, skew), rows), skew)
    best = asked.point(memory_bytes, best_rate(asked, memory_bytes).settings)
    most = 0.6 * memory_bytes / asked.master.page_bytes
    pages = [round(most**part) for part in (0.5, 0.6, 0.7, 0.8)]
    assert best.rate_per_s >= 0.97 * best_of(asked, memory_bytes, pages, [0.02, 0.1, 0.2, 0.35])


@pytest.mark.parametrize(
    "name",
    ["meshjoin", "hybridjoin", "x-hybridjoin", "cmeshjoin"],
)
def test_least_memory_for_a_rate_reaches_it_and_less_does_not(master, name):
    wanted = ss.tune(name, master, memory=900_000, skew=1.0, disk=DISK).rate_per_s
    found = ss.tune(name, master, rate=wanted, skew=1.0, disk=DISK)
    assert found.rate_per_s >= wanted
    assert found.memory_bytes == pytest.approx(900_000, rel=0.1)
    less = ss.tune(name, master, memory=int(0.8 * found.memory_bytes), skew=1.0, disk=DISK)
    assert less.rate_per_s < wanted


@pytest.mark.parametrize("rows", [None, 100_000_000])
@pytest.mark.parametrize("name", TUNED)
def test_an_answer_takes_less_than_two_seconds_for_any_master(master, name, rows):
    ss.tune(name, master, memory=1_000_000, skew=0.77, disk=DISK)  # kernels are compiled
    asked, memory = (Described(master, rows), 256_000_000) if rows else (master, 1_000_000)
    found, for_memory = timed(lambda skew: ss.tune(name, asked, memory=memory, skew=skew, disk=DISK))
    _, for_rate = timed(lambda skew: ss.tune(name, asked, rate=0.9 * found.rate_per_s, skew=skew, disk=DISK))
    assert for_memory < 2.0
    assert for_rate < 2.0


def timed(answer):
    """The answer, and the processor time of the quickest of three: a core's other thread may be somebody else's."""
    took = []
    for skew in (1.01, 1.02, 1.03):  # different questions, so that nothing is remembered
        began = time.process_time()
        found = answer(skew)
        took.append(time.process_time() - began)
    return found, min(took)


FINALISTS, RUNS = 3, 3
SEARCHED = [("meshjoin", 1.0), ("hybridjoin", 1.0)]
SEARCHED_LONG = [(name, skew) for name in TUNED for skew in (0.5, 1.0, 1.2)]


@pytest.mark.parametrize(("name", "skew"), SEARCHED)
def test_the_choice_is_within_three_percent_of_the_best_that_was_run(tmp_path, name, skew):
    compare_counted(tmp_path, name, skew)


@pytest.mark.long
@pytest.mark.parametrize(("name", "skew"), SEARCHED_LONG)
def test_the_choice_is_within_three_percent_of_the_best_that_was_run_everywhere(tmp_path, name, skew):
    compare_counted(tmp_path, name, skew)


def compare_counted(folder, name, skew):
    """The tuner's choice and a grid around all it may choose, each run and counted.

    The best of many counts is the luckiest too, so those that looked best are counted again beside the choice, on other streams.
    """
    chosen, grid, rate = searched(folder, name, skew)
    looked = {settings: rate(settings, 0) for settings in grid}
    best = sorted(looked, key=lambda settings: -looked[settings])[:FINALISTS]
    found = {s: np.mean([rate(s, run) for run in range(1, 1 + RUNS)]) for s in dict.fromkeys((chosen, *best))}
    assert found[chosen] >= 0.97 * max(found.values()), f"{chosen}: {found[chosen]:,.0f} of {found}"


def searched(folder, name, skew):
    """The choice, the settings to hold it against, and what one of them reaches in a run."""
    memory_bytes = 400_000
    layout = "frequency" if name in ("x-hybridjoin", "optimised-x-hybridjoin") else "key"
    master = master_of(folder / "m", 30_000, layout, skew)
    asked = ask(name, master, skew=skew, sample=None, on=None, columns=None, disk=DISK, parallel=None)
    chosen = best_rate(asked, memory_bytes).settings
    grid = []
    pages = (2, 8, 32) if "inlj" in name else (4, 10, 20, 30, 45)
    for b, share in itertools.product(pages, (0.1, 0.25, 0.5, 0.9) if name in FRONTED else (None,)):
        settings = Settings(disk_buffer=b * 4096, front_share=share, parallel=1)
        grid.append(replace(settings, block_pages=b) if "hybrid" in name else settings)

    def rate(settings, run):
        """Blocks are read in step for many windows (test_models.py): so long ones, each begun at another point."""
        again = {"start": run << 32} if layout == "frequency" else {"seed": SEED + run}
        point = asked.point(memory_bytes, settings)
        window = asked.case(memory_bytes, settings).division.window_tuples
        turn = window / max(1 - point.front_share, 0.02)
        tuples = (
            int(max(8 * turn, 40_000)) if name != "inlj" else 4_000
        )  # there each costs what the others do
        warm = tuples + int(run * turn / 2)
        return counted(
            name, master, skew, memory_bytes, settings, warm=warm, tuples=tuples, **again
        ).rate_per_s

    return chosen, [s for s in grid if asked.point(memory_bytes, s) is not None], rate


def test_the_curve_falls_on_both_sides_of_the_optimum(master):
    found = ss.tune("meshjoin", master, memory=1_000_000, skew=1.0, disk=DISK)
    buffers = [point for point in found.curve if point.settings.front_share is None]
    assert max(point.rate_per_s for point in buffers) <= 1.005 * found.rate_per_s
    assert buffers[0].rate_per_s < found.rate_per_s > buffers[-1].rate_per_s


@pytest.mark.parametrize("name", ["meshjoin", "hybridjoin", "cmeshjoin"])
def test_the_curve_for_a_rate_is_the_least_memory_for_it(master, name):
    """MESH, figure 5(a): with a disk buffer far too small or far too large the same rate takes more memory."""
    rate = 0.9 * ss.tune(name, master, memory=900_000, skew=1.0, disk=DISK).rate_per_s
    found = ss.tune(name, master, rate=rate, skew=1.0, disk=DISK)
    asked = question(name, master, 1.0)
    assert len(found.curve) >= 5
    for point in found.curve:
        assert point.rate_per_s >= rate
        less = asked.point(int(0.94 * point.memory_bytes), point.settings)
        assert less is None or less.rate_per_s < rate * (1.0 if name != "cmeshjoin" else 1.03)
    by_buffer = [p.memory_bytes for p in found.curve if p.settings.front_share == found.settings.front_share]
    assert by_buffer[0] > 1.02 * found.memory_bytes < by_buffer[-1]
    assert min(by_buffer) >= 0.95 * found.memory_bytes


def test_an_answer_says_how_the_memory_is_divided(master):
    found = ss.tune("chybridjoin", master, memory=1_000_000, skew=1.0, disk=DISK)
    assert set(found.memory) == {"disk buffer", "hot rows", "window", "index"}
    assert 0.97 * 1_000_000 < sum(found.memory.values()) <= 1_000_000
    assert found.settings.disk_buffer == found.block_pages * found.parallel * master.page_bytes
    for word in (*found.memory, f"{found.window_tuples:,} tuples", f"1 x {found.block_pages} pages"):
        assert word in str(found)
    scan = ss.tune("meshjoin", master, memory=1_000_000, skew=1.0, disk=DISK)
    assert (scan.block_pages, scan.parallel) == (0, 1)
    assert "pages" not in str(scan)


def test_an_answer_says_where_its_factors_come_from(master, tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path))
    assert ss.tune("meshjoin", master, memory="1MB", skew=1.0, disk=DISK).origin == DISK
    assert ss.tune("meshjoin", master, memory="1MB", skew=1.0).origin.startswith("defaults")


def test_blocks_are_chosen_one_at_a_time_where_a_disk_has_one_arm(master):
    assert ss.tune("hybridjoin", master, memory=1_000_000, skew=1.0, disk=DISK).parallel == 1


@pytest.mark.parametrize("name", ["hybridjoin", "chybridjoin"])
@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize("disk", ["ssd-sata", "nvme", "object-store"])
def test_blocks_are_chosen_together_where_a_disk_has_a_queue_and_that_is_faster(master, disk, skew, name):
    found = ss.tune(name, master, memory=500_000, skew=skew, disk=disk)
    for parallel in (1, Settings().parallel):
        fixed = ss.tune(name, master, memory=500_000, skew=skew, disk=disk, parallel=parallel)
        assert found.rate_per_s >= 0.97 * fixed.rate_per_s
    plain = question(name, master, skew, disk).point(
        500_000, Settings()
    )  # as a join has it that nobody tunes
    assert found.rate_per_s >= 0.97 * plain.rate_per_s


def test_skew_is_taken_from_a_sample(master):
    sample = pa.Table.from_batches(list(itertools.islice(stream_of(ROWS, 1.2), 20)))
    found = ss.tune("meshjoin", master, memory="1MB", sample=sample, on={"product_id": "id"}, disk=DISK)
    assert found.skew == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 2_000, "skew": 1.0}, "Raise memory="),
        ({"rate": 1e12, "skew": 1.0}, "at most"),
        ({"rate": -1.0, "skew": 1.0}, "more than 0"),
        ({"memory": "1MB", "skew": -1.0}, "between 0 and 2"),
        ({"memory": "1MB", "skew": 99.0}, "between 0 and 2"),
        ({"memory": "1MB"}, "skew= or sample="),
        ({"skew": 1.0}, "memory= for the best rate"),
        ({"memory": "1MB", "rate": 5.0, "skew": 1.0}, "memory= for the best rate"),
    ],
)
def test_bad_questions(master, options, message):
    with pytest.raises(InvalidInputError, match=message):
        ss.tune("meshjoin", master, disk=DISK, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("meshjoin", {"disk": "floppy"}, "no such disk"),
        ("hybridjoin", {"parallel": -3}, "no number of blocks"),
        ("in-memory", {"memory": "10KB"}, "do not fit"),
    ],
)
def test_what_a_join_would_refuse_is_refused(master, name, options, message):
    with pytest.raises(InvalidInputError, match=message):
        ss.tune(name, master, **{"memory": "1MB", "skew": 1.0, "disk": DISK, **options})


def test_looking_up_in_a_heap_is_refused(tmp_path):
    heap = master_of(tmp_path / "heap", 2_000, "heap", 1.0)
    with pytest.raises(InvalidInputError, match="no index"):
        ss.tune("hybridjoin", heap, memory="1MB", skew=1.0, disk=DISK)


def test_in_memory_takes_what_the_join_takes(tmp_path):
    small = master_of(tmp_path / "m", 2_000, "key", 1.0)
    least = ss.tune("in-memory", small, rate=1_000, skew=1.0, disk=DISK).memory_bytes
    stream = pa.Table.from_batches([next(stream_of(2_000, 1.0))])
    asked = {"on": {"product_id": "id"}, "algorithm": "in-memory", "disk": DISK}
    assert sum(map(len, ss.join(stream, small, memory=least, **asked))) == len(stream)
    with pytest.raises(InvalidInputError, match="Raise memory="):
        list(ss.join(stream, small, memory=int(0.95 * least), **asked))


def test_a_rate_that_a_memory_gives_is_not_refused(tmp_path):
    tiny = master_of(tmp_path / "m", 50, "key", 1.0)
    reached = ss.tune("meshjoin", tiny, memory="64MB", skew=1.0, disk=DISK).rate_per_s
    assert ss.tune("meshjoin", tiny, rate=0.8 * reached, skew=1.0, disk=DISK).rate_per_s >= 0.8 * reached


def test_without_a_sample_the_stream_has_the_names_that_were_given(master):
    found = ss.tune("meshjoin", master, memory="1MB", skew=1.0, on={"product_id": "id"}, disk=DISK)
    assert found.settings == ss.tune("meshjoin", master, memory="1MB", skew=1.0, disk=DISK).settings


def test_samples_that_a_join_takes(tmp_path):
    keys = [f"product {i:05d}" for i in range(3_000)]
    master = ss.build_master(pa.table({"id": keys, "v": range(3_000)}), tmp_path / "m", key="id")
    ids = pa.array([keys[i] for i in next(stream_of(3_000, 1.0)).column("product_id").to_pylist()])
    known = ss.tune("meshjoin", master, memory="60KB", sample=pa.table({"id": ids}), disk=DISK)
    for kind in (ids.cast(pa.large_string()), ids.cast(pa.string_view()), ids.dictionary_encode()):
        found = ss.tune("meshjoin", master, memory="60KB", sample=pa.table({"id": kind}), disk=DISK)
        assert found.settings == known.settings
    empty = pa.table({"id": ids}).slice(0, 0)
    shown = ss.tune("meshjoin", master, memory="60KB", sample=empty, skew=1.0, on="id", disk=DISK)
    assert shown.window_tuples > 0
    # Nobody has shown a tuple: its key takes what the master's do.
    guessed = ss.tune("meshjoin", master, memory="60KB", skew=known.skew, disk=DISK)
    assert guessed.window_tuples == pytest.approx(known.window_tuples, rel=0.2)


def test_an_empty_master_and_auto_cannot_be_tuned(tmp_path, master):
    empty = ss.build_master(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty", key="id")
    with pytest.raises(InvalidInputError, match="empty master"):
        ss.tune("meshjoin", empty, memory="1MB", skew=1.0, disk=DISK)
    with pytest.raises(InvalidInputError, match="auto"):
        ss.tune("auto", master, memory="1MB", skew=1.0, disk=DISK)
