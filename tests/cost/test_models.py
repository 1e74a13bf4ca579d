"""Predicted against counted: the same setting in the model and in the simulator, where every operation is counted."""

from __future__ import annotations

import pytest
from tests.cost.simulated import case, counted, master_of

from semistream.cost import predict
from semistream.joins.registry import Settings

ROWS = 40_000
WITHIN = 0.02
# Tuples that wait, and reads where each finishes another number of tuples: what is counted is random, and only with so many of
# them it is known to half a percent. The more skewed a stream, the more one read differs from another.
WAITING = 30_000
READS, SKEWED_READS = 3_000, 10_000
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


def deviation(masters, algorithm, rows, memory, skew):
    """How far the predicted seconds of a tuple are from the counted ones, and both."""
    master = masters(rows, "frequency" if algorithm in BY_FREQUENCY else "key", skew)
    settings = SETTINGS[algorithm]
    memory_bytes = int(memory * 120 * rows) if algorithm != "in-memory" else 400 * rows
    asked = case(algorithm, master, skew, memory_bytes, settings)
    loop = predict(asked)
    window, front = asked.division.window_tuples, asked.division.front_rows
    warm = int(4 * window / max(1 - loop.front_share, 0.01)) + (40 * front if algorithm in FRONTED else 0)
    tuples = WAITING / max(1 - loop.front_share, 0.01) if algorithm != "in-memory" else 20_000
    if "hybrid" in algorithm:
        tuples = max(tuples, (READS if skew <= 1.2 else SKEWED_READS) * loop.tuples)
    tuples = int(min(max(tuples, 40 * front if algorithm in FRONTED else 0), 8_000_000))
    found = counted(algorithm, master, skew, memory_bytes, settings, warm=warm, tuples=tuples)
    predicted_s = loop.seconds(asked) / loop.tuples
    counted_s = found.seconds / found.stats.tuples
    shown = f"predicted {predicted_s:.3e} s a tuple, front {loop.front_share:.3f}; counted {counted_s:.3e}, {found.front_share:.3f}"
    return predicted_s / counted_s - 1, shown


@pytest.mark.parametrize(("memory", "skew"), GRID)
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_predicted_and_counted_cost_agree(masters, algorithm, memory, skew):
    off, shown = deviation(masters, algorithm, ROWS, memory, skew)
    assert abs(off) <= WITHIN, f"{off:+.2%}: {shown}"


@pytest.mark.long
@pytest.mark.parametrize("rows", [50_000, 400_000])
@pytest.mark.parametrize(("memory", "skew"), WHOLE_GRID)
@pytest.mark.parametrize("algorithm", SETTINGS)
def test_predicted_and_counted_cost_agree_everywhere(masters, algorithm, rows, memory, skew):
    off, shown = deviation(masters, algorithm, rows, memory, skew)
    assert abs(off) <= WITHIN, f"{off:+.2%}: {shown}"
