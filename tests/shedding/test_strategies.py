"""Every strategy over every join: all tuples answered once, counted at every step, in bounded memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import expected, multiset
from pacing import Script, paced

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.joins import Settings
from semistream.joins.paced import PacedDriver
from semistream.shedding import STRATEGIES, WEIGHT_COLUMN, Shedding, Timed
from semistream.workload.arrivals import Constant, Poisson

FIXED = [name for name in ss.ALGORITHMS if name != "auto"]


def check_counts(stats) -> None:
    assert stats.tuples == stats.answered + stats.waiting + stats.shed + stats.dropped
    assert stats.used_bytes <= stats.budget_bytes
    assert stats.shedding.buffer_bytes_most <= stats.used["stream buffer"]


def drive(joined) -> tuple[Counter, object]:
    """Take everything, and count after every step."""
    out: Counter = Counter()
    for answers in joined._steps:
        for batch in answers:
            out += multiset(pa.Table.from_batches([batch]))
        check_counts(joined.stats)
    return out, joined.stats


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("algorithm", FIXED)
@given(drawn=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_tuple_is_answered_once_however_fast_it_came(algorithm, strategy, drawn, tmp_path_factory):
    generator = np.random.default_rng(drawn.draw(st.integers(0, 2**32)))
    most = 1000 if algorithm == "in-memory" else 2000  # its master must fit the smaller budget
    rows, tuples = drawn.draw(st.integers(1, most)), drawn.draw(st.integers(1, 800))
    how = drawn.draw(st.sampled_from(["inner", "left"]))
    repeated = drawn.draw(st.booleans())
    master = pa.table(
        {"k": generator.integers(0, rows, rows) if repeated else np.arange(rows), "v": np.arange(rows)}
    )
    keys = np.minimum(generator.zipf(1.3, tuples), rows + rows // 10)
    null = generator.random(tuples) < 0.05
    stream = pa.table({"k": pa.array(keys, pa.int64(), mask=null), "n": pa.array(range(tuples), pa.int64())})
    folder = tmp_path_factory.mktemp("m")
    built = ss.build_master(master, folder / "s", key="k", page_bytes=4096)
    arriving = drawn.draw(st.sampled_from([Constant, Poisson]))
    joined = paced(
        stream,
        built,
        arriving(drawn.draw(st.sampled_from([1e3, 1e4, 1e5, 1e8]))),
        shedding=Shedding(
            strategy,
            position=drawn.draw(st.sampled_from([0.0, 0.15, 1.0])),
            calm_after=drawn.draw(st.sampled_from([1, 8])),
        ),
        shed_to=None if strategy == "none" else folder / "shed",
        rows=drawn.draw(st.sampled_from([1, 70, 5000])),
        how=how,
        on="k",
        algorithm=algorithm,
        memory=drawn.draw(st.sampled_from([60_000, 130_000])),
        settings=Settings(disk_buffer=4096, parallel=drawn.draw(st.sampled_from([1, 16]))),
    )
    out, stats = drive(joined)
    assert out == expected(stream, master, ["k"], how)
    assert stats.tuples == stats.answered == tuples
    assert (stats.waiting, stats.shed, stats.dropped) == (0, 0, 0)
    assert not (folder / "shed").exists()


@pytest.mark.parametrize("strategy", ["considering", "upfront", "random"])
@pytest.mark.parametrize("algorithm", ["hybridjoin", "chybridjoin", "cmeshjoin"])
def test_what_is_dropped_is_counted_and_nothing_else_is_missing(strategy, algorithm, tmp_path):
    built, stream = skewed(tmp_path)
    joined = paced(
        stream,
        built,
        Constant(1e5),
        shedding=Shedding(strategy, fate="dropped"),
        on="k",
        algorithm=algorithm,
        memory=150_000,
    )
    out, stats = drive(joined)
    assert stats.shedding.overloads >= 1
    assert stats.dropped > 1000
    assert stats.dropped == stats.shedding.shed_in_all
    assert stats.answered + stats.dropped == stats.tuples == len(stream)
    assert out.total() == stats.answered  # each key is in the master once
    assert Counter(row[:2] for row in out.elements()) <= multiset(stream)


def skewed(tmp_path, *, tuples: int = 20_000, rows: int = 20_000) -> tuple[ss.Master, pa.Table]:
    generator = np.random.default_rng(4)
    master = pa.table({"k": np.arange(rows), "v": generator.random(rows) * 10})
    keys = np.minimum(generator.zipf(1.2, tuples), rows) - 1
    built = ss.build_master(master, tmp_path / "m", key="k", page_bytes=4096)
    return built, pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(tuples), pa.int64())})


def shed_numbers(folder) -> list[int]:
    """What is in the store's files."""
    out: list[int] = []
    for file in sorted(folder.iterdir()):
        with pa.ipc.open_file(file) as reader:
            out += reader.read_all()["n"].to_pylist()
    return out


class Scripted:
    """HYBRIDJOIN whose window holds about ten tuples, each of a page of its own, with arrivals as a script says."""

    def __init__(self, tmp_path, strategy: str, looks: list[int]) -> None:
        rows = 40_000
        table = pa.table({"k": range(rows), "v": range(rows)})
        master = ss.build_master(table, tmp_path / "m", key="k", page_bytes=4096)
        starts = np.concatenate([[0], np.cumsum(master.data.load_table().rows)])[:-1]
        self.stream = pa.table({"k": starts[: looks[-1]], "n": list(range(looks[-1]))})
        self.folder = tmp_path / "shed"
        self.joined = ss.join(
            self.stream.to_batches(max_chunksize=7),
            master,
            on="k",
            algorithm="hybridjoin",
            memory=16_000,
            disk="buffered",
            settings=Settings(disk_buffer=4096, parallel=1),
            shedding=Shedding(strategy, position=0.15),
            shed_to=self.folder,
            arrivals=Script(looks),
        )
        self.room = self.joined._driver.join.room
        self.answered: list[int] = []

    def iterations(self, advances: int) -> None:
        """Go on until so many pages were read."""
        for answers in self.joined._steps:
            self.answered += [n for batch in answers for n in batch["n"].to_pylist()]
            if self.joined.stats.advances == advances:
                return

    def shed(self) -> list[int]:
        self.joined._driver.store.flush()
        return shed_numbers(self.folder)


def test_upfront_sheds_those_that_came_last(tmp_path):
    """The window is filled by the first; then each iteration finishes one, and leaves two of those that arrive."""
    first = Scripted(tmp_path / "probe", "upfront", [1]).room
    scripted = Scripted(tmp_path, "upfront", [first, first + 10, first + 10])
    scripted.iterations(1)
    assert scripted.answered == [0]
    scripted.iterations(2)
    # Ten have arrived and one place is free: two may stay (one goes in, one waits), eight are shed, the newest.
    assert scripted.answered == [0, 1]
    assert scripted.shed() == list(range(first + 2, first + 10))


def test_considering_sheds_those_that_waited_longest(tmp_path):
    first = Scripted(tmp_path / "probe", "considering", [1]).room
    scripted = Scripted(tmp_path, "considering", [first, first + 10, first + 10])
    scripted.iterations(1)
    assert scripted.answered == [0]
    scripted.iterations(2)
    # Two of the ten may stay outside; one of the others finds the free place, seven those of the oldest: 1 to 7.
    assert scripted.shed() == [1, 2, 3, 4, 5, 6, 7]
    # And the tuple that chose was at 15 % of the queue, counted from the newest: all that wait are first + 1 .. first + 7 and 8 ...
    waiting = list(range(8, first + 8))
    assert scripted.answered == [0, list(reversed(waiting))[int(0.15 * len(waiting))]]


def test_what_the_front_stage_knows_is_answered_although_the_queue_cannot_shed(tmp_path):
    """CMESHJOIN's waiting tuples have met a part of the master: the front stage is what it can consider tuples with."""
    built, stream = skewed(tmp_path, tuples=5000, rows=5000)
    rates = {}
    for strategy in ("considering", "upfront"):
        joined = paced(
            stream,
            built,
            Constant(2e4),
            shedding=Shedding(strategy, fate="dropped"),
            on="k",
            algorithm="cmeshjoin",
            memory=150_000,
        )
        _, stats = drive(joined)
        rates[strategy] = stats.answered
    assert rates["considering"] > 1.5 * rates["upfront"]


def test_a_sample_estimates_the_whole_within_its_bounds(tmp_path):
    built, stream = skewed(tmp_path)
    price = dict(zip(range(20_000), pa.Table.from_batches(built.scan())["v"].to_pylist(), strict=True))
    truth = sum(price[k] for k in stream["k"].to_pylist())
    inside = 0
    for seed in range(10):
        shedding = Shedding("random", fate="dropped", sum_of="v", seed=seed)
        joined = paced(
            stream, built, Constant(5e4), shedding=shedding, on="k", algorithm="chybridjoin", memory=150_000
        )
        table = pa.Table.from_batches(joined)
        seen = joined.stats.shedding
        assert seen.scale_up > 1.5
        assert seen.count.value == pytest.approx(len(stream))  # each tuple has its row, so the count is known
        weighed = np.dot(table[WEIGHT_COLUMN].to_numpy(), table["v"].to_numpy())
        assert seen.sums["v"].value == pytest.approx(
            weighed * len(stream) / table[WEIGHT_COLUMN].to_numpy().sum()
        )
        assert 0 < seen.sums["v"].error < 0.1 * truth
        inside += abs(seen.sums["v"].value - truth) <= seen.sums["v"].error
    assert inside >= 7  # of ten at 95 %; fewer happen once in a thousand


@pytest.mark.parametrize("strategy", ["considering", "upfront"])
def test_no_more_than_twice_what_is_finished_stays_in_the_backlog(strategy, tmp_path, monkeypatch):
    built, stream = skewed(tmp_path)
    seen = []

    def advance(driver) -> object:
        # After the shedding and the offering of an iteration.
        seen.append((driver.unoffered, int(2 * driver.most), driver.detector.overloaded))
        return original(driver)

    original = PacedDriver._advance
    monkeypatch.setattr(PacedDriver, "_advance", advance)
    shedding = Shedding(strategy, fate="dropped")
    drive(
        paced(stream, built, Constant(1e5), shedding=shedding, on="k", algorithm="hybridjoin", memory=150_000)
    )
    overloaded = [(left, most) for left, most, over in seen if over]
    assert len(overloaded) > 20
    assert all(left <= most for left, most in overloaded)


def arrival_clock() -> Timed:
    return Timed(Constant(10.0), now=lambda: 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shedding": "considering"}, "no arrivals="),
        ({"shedding": "oldest", "arrivals": arrival_clock()}, "Choose one of 'considering'"),
        ({"shedding": "upfront", "arrivals": arrival_clock()}, "Name a directory"),
        (
            {"shedding": Shedding(fate="dropped"), "arrivals": arrival_clock(), "shed_to": "x"},
            "Leave it out",
        ),
        ({"shed_to": "x"}, "Choose one of considering, upfront, random"),
        ({"arrivals": arrival_clock(), "order": "stream"}, 'Use order="any"'),
        ({"arrivals": arrival_clock(), "versions": "newest"}, 'Use versions="pinned"'),
        (
            {"shedding": Shedding("random", fate="dropped", sum_of="w"), "arrivals": arrival_clock()},
            "no numbers called 'w'",
        ),
    ],
)
def test_what_cannot_be_done_together_is_refused(options, message, tmp_path):
    master = ss.build_master(pa.table({"k": [1], "v": [2]}), tmp_path / "s", key="k")
    with pytest.raises(InvalidInputError, match=message):
        ss.join(pa.table({"k": [1]}), master, on="k", algorithm="hybridjoin", disk="buffered", **options)
