"""Who is shed when a micro-batch is too large, and who comes back: rations, files, and slots, without Spark."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from enriching import expected
from hypothesis import given
from hypothesis import strategies as st
from slots import STREAM, Held, hold_of

import semistream as ss
from semistream.pipeline.config import OverloadConfig
from semistream.pipeline.overload import Load, Overload, Ration, carry, come_back
from semistream.pipeline.spool import Written, read_parquet
from semistream.shedding import Shedding

ROWS = pa.table({"k": pa.array(range(1000), pa.int64()), "v": [f"{i} {'.' * 300}" for i in range(1000)]})


def overload(strategy: str = "upfront", *, limit: int = 0, seconds: float = 10.0) -> Overload:
    config = OverloadConfig(
        shedding=Shedding(strategy), batch_limit=limit, batch_time=timedelta(seconds=seconds)
    )
    return Overload(config)


class TestRations:
    def test_a_limit_is_kept_to_the_tuple(self):
        ration = overload(limit=100).ration(Load(), {0: 150, 2: 75}, batch=0, drain=False)
        assert ration.load.overloaded
        assert sum(ration.kept.values()) == 100
        assert ration.kept == {0: 66, 2: 34}
        assert (ration.of_slot(0), ration.of_slot(1), ration.room) == (66, 0, 0)

    def test_at_the_limit_nobody_is_shed(self):
        ration = overload(limit=100).ration(Load(), {0: 60, 1: 40}, batch=0, drain=False)
        assert not ration.load.overloaded
        assert (ration.kept, ration.room) == (None, 0)

    def test_shed_tuples_come_back_when_it_has_been_calm_for_two_micro_batches(self):
        found, load = [], Load()
        for arrived in (200, 40, 101, 40, 70, 0):
            ration = overload(limit=100).ration(load, {0: arrived}, batch=0, drain=False)
            load = ration.load
            found.append((load.overloaded, ration.room))
        assert found == [(True, 0), (True, 0), (True, 0), (True, 0), (False, 30), (False, 100)]
        assert load.overloads == 1

    def test_what_recent_micro_batches_served_is_the_measure(self):
        load = Load().served(1000, 5.0).served(3000, 10.0).served(0, 1.0)
        assert load.recent == ((1000, 5.0), (3000, 10.0))
        assert overload().capacity(load) == 3000  # 300 a second, for ten seconds
        calm = overload().ration(load, {0: 6000}, batch=0, drain=False)
        assert (calm.kept, calm.load.overloaded, calm.room) == (None, False, 0)
        more = overload().ration(load, {0: 6001}, batch=0, drain=False)
        assert (more.kept, more.load.overloaded) == ({0: 6000}, True)

    def test_a_quiet_stream_says_nothing_of_how_much_could_be_served(self):
        load = Load().served(3, 0.7)  # a query that has just begun
        burst = overload(seconds=1).ration(load, {0: 100_000}, batch=1, drain=False)
        assert (burst.kept, burst.load.overloaded, burst.room) == (None, False, 0)
        learnt = overload(seconds=1).ration(load.served(100_000, 2.0), {0: 200_000}, batch=2, drain=False)
        assert learnt.load.overloaded
        assert 50_000 <= sum(learnt.kept.values()) <= 150_000
        # Micro-batches of a stream that is overloaded are in time because others were shed.
        kept = learnt.load.served(50_000, 0.9)
        assert overload(seconds=1).ration(kept, {0: 200_000}, batch=3, drain=False).kept is not None

    def test_a_micro_batch_has_a_cost_of_its_own(self):
        load = Load().served(1000, 6.0).served(3000, 16.0)  # a second, and a second for 200 tuples
        assert overload(seconds=10).capacity(load) == 1800
        assert overload(seconds=2).capacity(load) == 200
        assert overload(seconds=0.5).capacity(load) == 200  # no fewer than take as long as that cost

    def test_fewer_tuples_that_take_as_long_are_no_reason_for_fewer_still(self):
        assert overload(seconds=1).capacity(Load().served(100, 3.0)) == 100
        assert overload(seconds=1).capacity(Load().served(100, 3.0).served(50, 3.1)) == 100

    def test_a_burst_long_ago_is_forgotten(self):
        load = Load().served(90_000, 1.0)
        for _ in range(8):
            load = load.served(10, 1.0)
        assert overload().capacity(load) == 100

    def test_before_anything_is_known_nobody_is_shed(self):
        ration = overload().ration(Load(), {0: 1 << 40}, batch=0, drain=False)
        assert (ration.kept, ration.room) == (None, None)

    def test_at_the_end_nobody_is_shed_and_others_come_back_whatever_arrives(self):
        load = Load(overloaded=True)
        ration = overload(limit=100).ration(load, {0: 500}, batch=0, drain=True)
        assert (ration.kept, ration.room) == (None, 100)

    def test_without_a_strategy_there_is_no_limit(self):
        ration = overload("none", limit=1).ration(Load(), {0: 500}, batch=0, drain=False)
        assert (ration.kept, ration.room, ration.strategy) == (None, None, "none")

    def test_a_sample_is_never_empty(self):
        ration = overload("random", limit=1).ration(Load(), {0: 1_000_000}, batch=0, drain=False)
        assert ration.share == 1 / 64
        assert overload("random", limit=250).ration(Load(), {0: 1000}, batch=0, drain=False).share == 0.25

    def test_it_survives_the_ledger(self):
        load = Load(True, 1, 3, ((5, 0.5),), {"scale_up": 2.0})
        assert Load.of_json(load.to_json()) == load


class TestFiles:
    def file(self, name: str, rows: int, since_us: int, skip: int = 0) -> Written:
        return Written("shed", 0, 0, f"shed/{name}", rows, since_us, since_us, skip)

    def test_the_oldest_come_back_first_and_a_file_in_parts(self):
        new, old = self.file("new", 10, 5), self.file("old", 10, 3, skip=2)
        back, stay = come_back([new, old], 14, Path("/ledger/7"))
        assert [(part.path, part.first, part.rows) for part in back] == [
            ("/ledger/7/shed/old", 2, 10),
            ("/ledger/7/shed/new", 0, 4),
        ]
        assert [(file.name, file.rows, file.skip) for file in stay] == [("shed/new", 6, 4)]

    @given(st.lists(st.integers(1, 9), max_size=6), st.lists(st.integers(0, 20), max_size=6))
    def test_everybody_comes_back_once(self, sizes, rooms):
        files = [self.file(str(i), rows, i) for i, rows in enumerate(sizes)]
        seen: Counter = Counter()
        for room in [*rooms, None]:
            back, files = come_back(files, room, Path("x"))
            seen.update((part.path, part.first + i) for part in back for i in range(part.rows))
            if room is not None:
                assert sum(part.rows for part in back) <= room
        assert not files
        assert seen == Counter((f"x/shed/{i}", row) for i, rows in enumerate(sizes) for row in range(rows))

    def test_who_stays_is_not_written_again(self, tmp_path):
        before, now = tmp_path / "6", tmp_path / "7"
        (before / "shed").mkdir(parents=True)
        (before / "shed" / "a").write_text("tuples")
        carry([self.file("a", 3, 1)], before, now)
        assert (before / "shed" / "a").samefile(now / "shed" / "a")

    @given(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 60)))
    def test_a_part_of_a_file(self, tmp_path_factory, first, count):
        path = tmp_path_factory.getbasetemp() / "groups.parquet"
        if not path.exists():
            pq.write_table(pa.table({"n": range(50)}), path, row_group_size=7)
        found = [n for batch in read_parquet(str(path), first, count) for n in batch["n"].to_pylist()]
        assert found == list(range(50))[first : None if count is None else first + count]


def stream(first: int, count: int, keys: list[int] | None = None) -> pa.Table:
    numbers = range(first, first + count)
    keys = [n * 7919 % 1000 for n in numbers] if keys is None else keys
    return pa.table([keys, list(numbers), ["x" * (n % 5) for n in numbers]], schema=STREAM)


@pytest.fixture
def master(tmp_path) -> ss.Master:
    return ss.build_master(ROWS, tmp_path / "master", key="k", page_bytes=4096)


def all_of(*parts: pa.Table) -> Counter:
    tuples = pa.concat_tables(parts).rename_columns(["k", "n", "text"])
    return expected(tuples, ROWS, {"k": "k"}, "left")


@pytest.mark.parametrize("strategy", ["considering", "upfront", "random"])
@pytest.mark.parametrize(
    ("algorithm", "slots"),
    [("chybridjoin", 1), ("chybridjoin", 3), ("cmeshjoin", 3), ("inlj", 1), ("in-memory", 3), ("auto", 3)],
)
def test_everybody_is_answered_in_the_end(tmp_path, master, algorithm, strategy, slots):
    held = Held(
        hold_of(master, algorithm), tmp_path / "ledger", slots, overload=overload(strategy, limit=200)
    )
    parts = [stream(0, 150), stream(150, 1500), stream(1650, 150), *(stream(1800 + i, 1) for i in range(12))]
    most = 0
    for part in parts:
        held.batch(part, master)
        most = max(most, held.shed)
        assert held.total.arrived == sum(held.answered.values()) + held.shed
        if held.last.arrived <= 200:
            assert held.last.answered <= 200
    assert most > 0
    assert held.shed == 0
    assert held.answered == all_of(*parts)


def test_upfront_sheds_the_last_to_arrive(tmp_path, master):
    held = Held(hold_of(master, "chybridjoin"), tmp_path / "ledger", overload=overload("upfront", limit=100))
    held.batch(stream(0, 300), master)
    assert held.answered == all_of(stream(0, 100))
    held.batch(stream(300, 10), master)
    held.batch(
        stream(310, 10), master
    )  # calm for the second time: the first of those who were shed come back
    assert held.answered == all_of(stream(0, 190), stream(300, 20))
    assert held.shed == 110


def test_considering_sheds_only_whom_reads_would_be_for(tmp_path, master):
    """The front stage has learnt the keys 0 to 4: their tuples are answered, however many there are."""
    held = Held(
        hold_of(master, "chybridjoin"), tmp_path / "ledger", overload=overload("considering", limit=500)
    )
    held.batch(stream(0, 500, [n % 5 for n in range(500)]), master)
    pages = held.total.pages
    popular = stream(500, 2000, [n % 5 for n in range(2000)])
    held.batch(popular, master)
    assert held.last.answered == 2000
    assert held.total.pages == pages
    mixed = stream(2500, 1000, [n % 5 if n < 900 else 900 for n in range(1000)])
    held.batch(mixed, master)
    assert (held.last.answered, held.shed) == (900, 100)
    assert held.answered == all_of(stream(0, 500, [n % 5 for n in range(500)]), popular, mixed.slice(0, 900))


def test_random_lets_everybody_in_alike(tmp_path, master):
    held = Held(hold_of(master, "chybridjoin"), tmp_path / "ledger", overload=overload("random", limit=2000))
    held.batch(stream(0, 8000), master)
    answered = np.array([row[1] for row in held.answered])
    assert abs(len(answered) - 2000) < 6 * np.sqrt(8000 * 0.25 * 0.75)
    assert abs(answered.mean() - 4000) < 6 * 8000 / np.sqrt(12 * 2000)
    assert held.shed == 8000 - len(answered)


def test_a_ration_of_nothing_sheds_everybody(tmp_path, master):
    held = Held(hold_of(master, "chybridjoin"), tmp_path / "ledger")
    held.batch(stream(0, 10), master, ration=Ration(strategy="considering", room=0, kept={}))
    assert (held.last.answered, held.shed) == (0, 10)
