"""Joins driven step by step: the declared bound, sizes that change in mid-flight, and reads counted by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import expected, multiset

import semistream as ss
from semistream.joins import Settings
from semistream.joins.opening import Opening, open_join
from semistream.joins.sides import shape_join

FIXED = [name for name in ss.ALGORITHMS if name != "auto"]


def opened(stream: pa.Schema, master: ss.Master, algorithm: str, *, memory: int = 300_000, **parameters):
    shape = shape_join(stream, master, on="k", how="left")
    return open_join(Opening(algorithm, master, shape, memory, "buffered", 0.0, Settings(**parameters)))


def offered(join, shape, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Offer all tuples of a batch, advancing where there is no room."""
    out: list[pa.RecordBatch] = []
    tuples, _ = shape.keyed(batch)
    while len(tuples):
        if join.room:
            answers, taken = join.offer(tuples)
            out += answers
            tuples = tuples.select(slice(taken, None))
            if taken:
                continue
        out += join.advance()
    return out


@pytest.mark.parametrize("algorithm", FIXED)
@given(drawn=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_pending_falls_to_zero_within_the_bound(algorithm, drawn, tmp_path_factory):
    keys = drawn.draw(st.lists(st.integers(0, 500), max_size=400))
    asked = drawn.draw(st.lists(st.integers(0, 600), min_size=1, max_size=200))
    master = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(range(len(keys)), pa.int64())})
    built = ss.build_master(master, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)
    stream = pa.record_batch({"k": pa.array(asked, pa.int64())})
    with_disks = opened(
        stream.schema, built, algorithm, disk_buffer=drawn.draw(st.sampled_from([4096, 12288])), parallel=3
    )
    join, shape = with_disks.join, with_disks.opening.shape
    out = offered(join, shape, stream)
    assert join.stats.used_bytes <= join.stats.budget_bytes
    bound, steps = join.bound, 0
    while join.pending:
        before = join.pending
        out += join.advance()
        assert join.pending <= before
        steps += 1
    assert steps <= bound
    with_disks.close()
    got: Counter = sum((multiset(pa.Table.from_batches([b])) for b in out), Counter())
    assert got == expected(pa.Table.from_batches([stream]), master, ["k"], "left")


@pytest.mark.parametrize("algorithm", ["hybridjoin", "x-hybridjoin", "chybridjoin"])
@given(drawn=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_read_ahead_may_turn_out_otherwise(algorithm, drawn, tmp_path_factory):
    """Tuples come, leave unanswered, have no row or many, while the next pages were chosen before they did."""
    generator = np.random.default_rng(drawn.draw(st.integers(0, 2**32)))
    rows, repeats = 4_000, drawn.draw(st.sampled_from([1, 3]))
    numbers = np.arange(rows)
    master = pa.table({"k": 2 * (numbers // repeats), "v": numbers})  # odd keys have no row
    built = ss.build_master(master, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)
    with_disks = opened(
        pa.schema({"k": pa.int64(), "n": pa.int64()}), built, algorithm, disk_buffer=8 * 4096, parallel=4
    )
    join, shape = with_disks.join, with_disks.opening.shape
    hybrid = getattr(join, "behind", getattr(join, "hybrid", join))
    out, stream, shed, ahead = [], [], [], 0
    for start in range(0, 1_200, 100):
        keys = generator.integers(-5, 2 * rows // repeats + 5, 100) | (generator.random(100) < 0.1)
        stream.append(pa.record_batch({"k": keys, "n": np.arange(start, start + 100)}))
        out += offered(join, shape, stream[-1])
        for _ in range(drawn.draw(st.integers(0, 4))):
            out += join.advance()
            ahead += hybrid.following is not None
        if drawn.draw(st.booleans()):
            shed.append(join.shed(int(generator.integers(0, 30))))
    bound, steps = join.bound, 0
    while join.pending:
        out += join.advance()
        ahead += hybrid.following is not None
        steps += 1
    assert steps <= bound
    assert ahead > 0
    with_disks.close()
    gone = {n for batch in shed for n in batch["n"].to_pylist()}
    arrived = pa.Table.from_batches(stream)
    kept = arrived.filter(pa.array([n not in gone for n in arrived["n"].to_pylist()]))
    got: Counter = sum((multiset(pa.Table.from_batches([b])) for b in out), Counter())
    assert got == expected(kept, master, ["k"], "left")


@pytest.mark.parametrize("algorithm", ["hybridjoin", "chybridjoin"])
@pytest.mark.parametrize("seed", range(4))
def test_many_tuples_of_one_key_that_is_before_all_pages(algorithm, seed, tmp_path):
    """As of "unknown": they leave together, wherever in the queue they are, also behind the last that chose."""
    generator = np.random.default_rng(seed)
    keys = np.arange(1, 20_001)
    master = pa.table({"k": keys, "v": keys * 3})
    built = ss.build_master(master, tmp_path / "s", key="k", page_bytes=4096)
    asked = generator.integers(1, 20_001, 6_000) * (generator.random(6_000) > 0.3)
    stream = pa.table({"k": asked, "n": np.arange(6_000)})
    out = ss.join(
        stream,
        built,
        on="k",
        how="left",
        algorithm=algorithm,
        memory=200_000,
        disk="buffered",
        settings=Settings(parallel=8, disk_buffer=16 * 4096),
    )
    got: Counter = sum((multiset(pa.Table.from_batches([b])) for b in out), Counter())
    assert got == expected(stream, master, ["k"], "left")


def test_a_key_over_the_edge_of_two_pages_is_not_passed_over_for_ever(tmp_path):
    """Whoever comes after it asks now for the one page, now for the other; what is read ahead never has both by itself."""
    rows = np.arange(7_000)
    built = ss.build_master(pa.table({"k": rows // 7, "v": rows}), tmp_path / "s", key="k", page_bytes=4096)
    pages = built.index.find(built.codec.encode([pa.array(range(1_000))]))
    over = int(np.flatnonzero(pages.last - pages.first == 1)[0])
    before, behind = over - 20, over + 20
    schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    with_disks = opened(schema, built, "hybridjoin", disk_buffer=8 * 4096, parallel=4)
    join, shape = with_disks.join, with_disks.opening.shape

    def offer(*keys):
        offered(join, shape, pa.record_batch({"k": list(keys), "n": [0] * len(keys)}, schema=schema))

    offer(*[before] * join.at_once, behind)  # one page is read, the other is to be read next
    list(join.advance())
    assert join.following is not None
    offer(over)
    for _ in range(50):
        offer(before, behind)
        if any(over in batch["k"].to_pylist() for batch in join.advance()):
            break
    else:
        pytest.fail("it waits for ever")
    with_disks.close()


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "cmeshjoin"])
@given(drawn=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_w_and_b_may_change_in_mid_flight(algorithm, drawn, tmp_path_factory):
    rows = drawn.draw(st.integers(0, 3000))
    numbers = np.arange(rows)
    master = pa.table({"k": numbers // 2, "v": numbers})
    built = ss.build_master(master, tmp_path_factory.mktemp("m") / "s", key="k", page_bytes=4096)
    schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    with_disks = opened(schema, built, algorithm, disk_buffer=8 * 4096, per_step=10)
    join, shape = with_disks.join, with_disks.opening.shape
    mesh = getattr(join, "behind", join)
    out: list[pa.RecordBatch] = []
    stream: list[pa.RecordBatch] = []
    for number in range(drawn.draw(st.integers(1, 12))):
        mesh.per_step = drawn.draw(st.sampled_from([None, 1, 3, 50]), label="w")
        mesh.step_pages = drawn.draw(st.sampled_from([None, 1, 2, 3, 7]), label="b")
        asked = drawn.draw(st.lists(st.integers(0, 1600), max_size=60))
        stream.append(pa.record_batch({"k": asked, "n": [number] * len(asked)}, schema=schema))
        out += offered(join, shape, stream[-1])
        for _ in range(drawn.draw(st.integers(0, 4))):
            out += join.advance()
    while join.pending:
        mesh.step_pages = drawn.draw(st.sampled_from([None, 1, 4]), label="b at the end")
        out += join.advance()
    with_disks.close()
    got: Counter = sum((multiset(pa.Table.from_batches([b])) for b in out), Counter())
    assert got == expected(pa.Table.from_batches(stream), master, ["k"], "left")


def five_pages(tmp_path, layout: str = "key") -> tuple[ss.Master, list[int]]:
    """A master of exactly five pages, and the first key of each."""
    keys = list(range(1000))
    built = ss.build_master(
        pa.table({"k": keys, "v": keys}), tmp_path / layout, key="k", layout=layout, page_bytes=4096
    )
    starts = np.cumsum([0, *built.data.load_table().rows])[:-1].tolist()
    assert len(starts) == built.pages == 5
    return built, starts


def reads(
    built: ss.Master, algorithm: str, batches: list[list[int]], **parameters
) -> tuple[list[list[int]], object]:
    """The pages of every disk access, in order."""
    seen: list[list[int]] = []
    with_disks = opened(pa.schema({"k": pa.int64()}), built, algorithm, **parameters)
    join, shape, reader = with_disks.join, with_disks.opening.shape, with_disks.reader
    load = reader.load
    reader.load = lambda pages, then=None: (then, seen.append(pages.tolist()), load(pages))[2]
    for keys in batches:
        offered(join, shape, pa.record_batch({"k": pa.array(keys, pa.int64())}))
        list(join.advance())
    while join.pending:
        list(join.advance())
    with_disks.close()
    assert join.stats.pages == sum(map(len, seen))
    assert join.stats.advances == len(seen)
    return seen, join.stats


def test_meshjoin_goes_round_and_each_tuple_meets_each_page_once(tmp_path):
    built, starts = five_pages(tmp_path)
    # b = 2 of 5 pages. The first tuple comes before page 0, the second before page 2: it leaves after page 1.
    seen, stats = reads(built, "meshjoin", [[starts[3]], [starts[0]]], disk_buffer=2 * 2 * 4096, per_step=9)
    assert seen == [[0, 1], [2, 3], [4], [0, 1]]
    assert stats.probes == 1000 + starts[2], "every row probes the window once per reading"


def test_hybridjoin_lets_the_oldest_choose_and_answers_who_is_on_the_same_page(tmp_path):
    built, starts = five_pages(tmp_path)
    keys = [[starts[3], starts[1], starts[3] + 1, starts[0], starts[1] + 5]]
    seen, _ = reads(built, "hybridjoin", keys, disk_buffer=4096, parallel=1)
    assert seen == [[3], [1], [0]]
    # Blocks of two pages: 2 and 3 come together, then 0 and 1.
    seen, _ = reads(built, "hybridjoin", keys, disk_buffer=2 * 4096, block_pages=2, parallel=1)
    assert seen == [[2, 3], [0, 1]]
    # A key that is nowhere costs the one page that could hold it, and is gone: no second look.
    seen, stats = reads(built, "hybridjoin", [[5000, 5000, starts[1]]], disk_buffer=4096, parallel=1)
    assert seen == [[4], [1]]
    assert stats.misses == 2


def test_inlj_looks_up_for_every_tuple(tmp_path):
    built, starts = five_pages(tmp_path)
    seen, _ = reads(built, "inlj", [[starts[3], starts[3], starts[0]]], disk_buffer=2 * 4096)
    assert seen == [[3, 3], [0]]


def test_x_hybridjoin_reads_no_page_for_what_is_pinned(tmp_path):
    built, starts = five_pages(tmp_path, "frequency")
    memory = 200_000
    share = 2.2 * 4096 / memory  # two pages
    seen, stats = reads(
        built,
        "x-hybridjoin",
        [[starts[0], starts[1] + 1, starts[3], starts[1]]],
        memory=memory,
        disk_buffer=4096,
        front_share=share,
        parallel=1,
    )
    assert seen == [[3]]
    assert stats.front_hits == 3


def test_optimised_x_hybridjoin_lets_no_pinned_tuple_wait(tmp_path):
    built, starts = five_pages(tmp_path, "frequency")
    seen, stats = reads(
        built,
        "optimised-x-hybridjoin",
        [[0, 1, 2, starts[4]]],
        disk_buffer=4096,
        front_share=0.02,
        parallel=1,
    )
    assert seen == [[4]]
    assert (stats.front_hits, stats.admitted) == (3, 1)
