"""An enrichment that lets tuples wait across micro-batches: every tuple answered once, whatever happens in between."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from enriching import expected, rows_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slots import STREAM, Held, hold_of

import semistream as ss
from semistream.joins.registry import SCANNING
from semistream.pipeline.routing import Route

ALGORITHMS = [name for name in ss.ALGORITHMS if name != "auto"]
LOOKING_UP = [name for name in ALGORITHMS if name not in (*SCANNING, "in-memory")]
PAGE = 4096
PADDING = "." * 300  # a dozen rows a page


def stream(first: int, count: int, keys: int) -> pa.Table:
    """Tuples of which some have no key, and some one that the master has not."""
    numbers = range(first, first + count)
    return pa.table(
        [
            [None if n % 37 == 0 else (n * 7919) % (keys + keys // 5) for n in numbers],
            list(numbers),
            ["x" * (n % 13) for n in numbers],
        ],
        schema=STREAM,
    )


def rows(keys: int, *, text: str = "value", first: int = 0) -> pa.Table:
    """Every third key twice."""
    numbers = [k for k in range(first, keys) for _ in range(2 if k % 3 == 0 else 1)]
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "v": [f"{text} {k} {i} {PADDING}" for i, k in enumerate(numbers)],
        }
    )


def master_of(path, table: pa.Table, layout: str = "key") -> ss.Master:
    options = {"frequency": "f"} if layout == "frequency" else {}
    if layout == "frequency":
        table = table.append_column("f", pa.array([i % 7 for i in range(len(table))], pa.int64()))
    return ss.build_master(table, path, key="k", layout=layout, page_bytes=PAGE, **options)


def wanted(tuples: pa.Table, table: pa.Table, how: str = "left") -> Counter:
    return expected(tuples.rename_columns(["k", "n", "text"]), table, {"k": "k"}, how)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_tuple_is_answered_once(tmp_path, algorithm, how, slots):
    table = rows(2000)
    master = master_of(tmp_path / "master", table)
    held = Held(hold_of(master, algorithm, how=how, delay_s=4, cycles=4, memory=3_000_000), tmp_path, slots)
    parts = [stream(i * 500, 500, 2000) for i in range(6)]
    waited = 0
    for part in parts:
        held.batch(part, master)
        waited = max(waited, held.waiting)
    assert waited or algorithm == "in-memory"
    nothing = STREAM.empty_table()
    for _ in range(5):
        held.batch(nothing, master)
    assert held.waiting == 0
    assert held.answered == wanted(pa.concat_tables(parts), table, how)
    assert (held.total.arrived, held.total.answered) == (3000, 3000)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("cycles", [3, 8])
def test_a_scan_reads_its_share_and_no_more(tmp_path, slots, cycles):
    """Per micro-batch 1 / cycles of the master, counted where it is read, over all slots together."""
    table = rows(3000)
    master = master_of(tmp_path / "master", table)
    held = Held(hold_of(master, "meshjoin", delay_s=100, cycles=cycles), tmp_path, slots)
    bytes_of_all = master.pages * PAGE
    for number in range(3 * cycles):
        tally = held.batch(stream(number * 200, 200, 3000), master)
        assert 0 < tally.pages <= 1.05 * master.pages / cycles
        assert 0 < tally.bytes <= 1.05 * bytes_of_all / cycles
        # Who came in micro-batch i has met all pages after i + cycles - 1.
        assert held.total.answered == max(0, number + 2 - cycles) * 200 + sum(
            n % 37 == 0 for n in range(max(0, number + 2 - cycles) * 200, (number + 1) * 200)
        )


def test_who_is_due_is_finished_whatever_it_costs(tmp_path):
    table = rows(1000)
    master = master_of(tmp_path / "master", table)
    held = Held(hold_of(master, "meshjoin", delay_s=10, cycles=100), tmp_path)
    part = stream(0, 300, 1000)
    held.batch(part, master)
    held.batch(STREAM.empty_table(), master, after_s=9.0)
    assert held.waiting > 0
    tally = held.batch(STREAM.empty_table(), master, after_s=1.0)
    assert held.waiting == 0
    assert tally.pages > 0.9 * master.pages
    assert held.answered == wanted(part, table)


def test_drained_at_once(tmp_path):
    table = rows(1000)
    master = master_of(tmp_path / "master", table)
    for algorithm in ("meshjoin", "hybridjoin"):
        held = Held(hold_of(master, algorithm, delay_s=1000, cycles=100), tmp_path / algorithm)
        held.batch(stream(0, 300, 1000), master)
        assert held.waiting > 0
        held.batch(stream(300, 300, 1000), master, drain=True)
        assert held.waiting == 0
        assert held.answered == wanted(stream(0, 600, 1000), table)


def test_look_ups_wait_so_that_reads_are_shared(tmp_path):
    """Tuples of the same pages, in ten micro-batches: read once when they are due, not ten times."""
    table = rows(2000)
    master = master_of(tmp_path / "master", table)

    def pages(delay_s: float) -> int:
        held = Held(hold_of(master, "hybridjoin", delay_s=delay_s, parallel=1), tmp_path / str(delay_s))
        for number in range(10):
            held.batch(
                stream(number * 10, 10, 2000).set_column(0, "c0", pa.array([700] * 10, pa.int64())), master
            )
        held.batch(STREAM.empty_table(), master, after_s=100)
        assert held.waiting == 0
        assert held.total.answered == 100
        return held.total.pages

    assert pages(0) == 10 * pages(50)


@pytest.mark.parametrize("algorithm", ["meshjoin", "cmeshjoin", "hybridjoin", "chybridjoin"])
def test_a_window_that_is_too_small_lets_the_rest_wait_outside(tmp_path, algorithm):
    table = rows(600)
    master = master_of(tmp_path / "master", table)
    held = Held(hold_of(master, algorithm, delay_s=5, cycles=5, memory=40_000), tmp_path)
    parts = [stream(i * 4000, 4000, 600) for i in range(3)]
    for part in parts:
        held.batch(part, master)
    for _ in range(8):
        held.batch(STREAM.empty_table(), master)
    assert held.waiting == 0
    assert held.answered == wanted(pa.concat_tables(parts), table)


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "chybridjoin", "cmeshjoin"])
def test_a_master_that_changes_while_tuples_wait(tmp_path, algorithm, slots):
    """Who has begun with a version is finished with it; nobody meets half of one and half of another."""
    tables = [rows(1500, text=f"version {i}") for i in range(4)]
    master = master_of(tmp_path / "master", tables[0])
    held = Held(hold_of(master, algorithm, delay_s=6, cycles=3), tmp_path, slots)
    parts = [stream(i * 300, 300, 1500) for i in range(8)]
    for number, part in enumerate(parts):
        if number % 2:
            master = ss.build_master(
                tables[number // 2], master.path, key="k", page_bytes=PAGE, if_exists="replace"
            )
        held.batch(part, master)
    for _ in range(7):
        held.batch(STREAM.empty_table(), master)
    assert held.waiting == 0
    by_tuple: dict[int, Counter] = {}
    for row, count in held.answered.items():
        by_tuple.setdefault(row[1], Counter())[row] += count
    every = pa.concat_tables(parts)
    allowed = [wanted(every, table) for table in tables]
    by_version: list[dict[int, Counter]] = []
    for rows_ in allowed:
        found: dict[int, Counter] = {}
        for row, count in rows_.items():
            found.setdefault(row[1], Counter())[row] += count
        by_version.append(found)
    assert by_tuple.keys() == by_version[0].keys()
    for number, found in by_tuple.items():
        assert found in [version[number] for version in by_version]


@pytest.mark.parametrize("delay_s", [0, 3])
@pytest.mark.parametrize("algorithm", ["auto", "meshjoin", "chybridjoin", "in-memory"])
def test_missing_rows_are_tried_again_then_buried(tmp_path, algorithm, delay_s):
    """Keys 0 .. 99 are there at first, 100 .. 199 come later, 200 .. 239 never do."""
    every = rows(200)
    master = master_of(tmp_path / "master", rows(100))
    held = Held(hold_of(master, algorithm, delay_s=delay_s, retry_s=10, cycles=3 if delay_s else 0), tmp_path)
    part = stream(1, 1000, 200)
    keys = part["c0"].to_pylist()
    held.batch(part, master)
    for _ in range(4):
        held.batch(STREAM.empty_table(), master)
    read = held.batch(STREAM.empty_table(), master)
    assert read.pages == 0  # nothing has changed, so nothing can have come
    assert held.waiting == sum(k is not None and k >= 100 for k in keys)
    assert len(held.dead) == keys.count(None)
    master = master.append(every.slice(rows(100).num_rows))
    for _ in range(12):
        held.batch(STREAM.empty_table(), master)
    assert held.waiting == 0
    assert held.answered == wanted(part, every, "inner")
    assert Counter(row["n"] for row in held.dead) == Counter(
        n for k, n in zip(keys, part["c1"].to_pylist(), strict=True) if k is None or k >= 200
    )
    reasons = Counter(row["semistream_reason"] for row in held.dead)
    assert reasons == {
        "a key that no master row can have": keys.count(None),
        "no master row within retry_for": sum(k is not None and k >= 200 for k in keys),
    }
    assert held.total.arrived == held.total.answered + held.total.dead == 1000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_comes(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("held")
    layout = data.draw(st.sampled_from(["key", "key", "heap", "frequency"]), "layout")
    names = [*SCANNING] if layout == "heap" else ALGORITHMS
    algorithm = data.draw(st.sampled_from(names), "algorithm")
    how = data.draw(st.sampled_from(["inner", "left"]), "how")
    keys = data.draw(st.integers(1, 1500), "keys")
    memory = data.draw(st.sampled_from([120_000, 200_000, 1_000_000]), "memory")
    if algorithm == "in-memory":
        memory = 5_000_000
    table = rows(keys)
    master = master_of(folder / "master", table, layout)
    hold = hold_of(
        master,
        algorithm,
        how=how,
        delay_s=data.draw(st.sampled_from([0.5, 2, 5, 20]), "delay"),
        cycles=data.draw(st.integers(0, 6), "cycles"),
        memory=memory,
        parallel=data.draw(st.sampled_from([1, 256]), "parallel"),
    )
    held = Held(hold, folder, data.draw(st.integers(1, 3), "slots"))
    at, parts = 0, [STREAM.empty_table()]
    for _ in range(data.draw(st.integers(1, 6), "batches")):
        count = data.draw(st.integers(0, 400), "arrived")
        parts.append(stream(at, count, keys))
        held.batch(parts[-1], master, after_s=data.draw(st.sampled_from([0.1, 1, 4]), "after"))
        at += count
        if data.draw(st.booleans(), "other slots"):
            held.slots = data.draw(st.integers(1, 3), "slots")
    held.batch(STREAM.empty_table(), master, drain=True)
    assert held.waiting == 0
    whole = table if layout != "frequency" else None
    if whole is None:
        whole = rows_of_master(master)
    assert held.answered == wanted(pa.concat_tables(parts), whole, how)


def rows_of_master(master: ss.Master) -> pa.Table:
    return master.to_reader().read_all()


def test_no_cut_goes_through_a_key(tmp_path):
    """A key whose rows fill many pages is in one slot, wherever the cut would have been."""
    table = pa.table({"k": pa.array([5] * 1600 + list(range(6, 1500)), pa.int64()), "v": [PADDING] * 3094})
    master = ss.build_master(table, tmp_path / "master", key="k", page_bytes=PAGE)
    hold = hold_of(master, "meshjoin", delay_s=1)
    route = Route.to(hold.step, hold.form.aged, master, most=4, scan_share=1.0)
    assert route.slots > 1
    assert all(not master.index.goes_on(first) for first, _ in route.parts)
    held = Held(hold, tmp_path, 4)
    part = pa.table([[5, 6, 1499, 4], [0, 1, 2, 3], ["", "a", "b", "c"]], schema=STREAM)
    held.batch(part, master, drain=True)
    assert held.answered == wanted(part, table)
    assert rows_of(table).total() == 3094
