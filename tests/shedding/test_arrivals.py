"""The clock that tuples arrive by."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError
from semistream.shedding import Backlog, Timed
from semistream.workload.arrivals import Constant, Poisson


def test_virtual_time_is_what_the_join_was_busy_and_what_it_waited():
    busy = 0.0
    clock = Timed(Constant(10.0), now=lambda: busy, rows=25)
    assert clock.arrived() == 0
    busy = 0.5
    assert clock.arrived() == 5
    clock.wait_for(8)
    assert clock.idle_s == pytest.approx(0.3)
    assert clock.arrived() == 8
    busy = 9.0
    assert clock.arrived() == 25
    clock.wait_for(26)  # never comes
    assert clock.idle_s == pytest.approx(0.3)


def test_real_time_is_waited_for():
    waited = []
    clock = Timed(Constant(4.0), now=lambda: 1.0, wait=waited.append)
    clock.wait_for(3)
    clock.wait_for(6)
    assert waited == [pytest.approx(0.5)]
    assert clock.idle_s == 0.0


def backlog(batches: list[list[int]], arrived: list[int], limit: int = 10_000) -> Backlog:
    class Clock:
        def arrived(self) -> int:
            return arrived[0]

        def wait_for(self, count: int) -> None:
            arrived[0] = max(arrived[0], count)

    source = iter([pa.record_batch({"n": pa.array(numbers, pa.int64())}) for numbers in batches])
    return Backlog(source, Clock(), limit)


def numbers(batch) -> list[int]:
    return batch["n"].to_pylist()


def test_only_what_has_arrived_is_taken():
    arrived = [0]
    waiting = backlog([[0, 1, 2], [], [3, 4, 5, 6]], arrived)
    arrived[0] = 2
    waiting.look()
    waiting.fill(lambda batch: batch)
    assert (waiting.held_rows, waiting.due, waiting.taken) == (2, 0, 2)
    arrived[0] = 6
    waiting.look()
    assert waiting.due == 4
    waiting.fill(lambda batch: batch)
    assert numbers(waiting.give(1)) == [0, 1]
    assert [numbers(batch) for batch in waiting.cut(2)] == [[4, 5]]
    assert numbers(waiting.give(1)) == [2]
    assert numbers(waiting.give(1)) == [3]
    assert waiting.give(1) is None
    waiting.wait()
    waiting.fill(lambda batch: batch)
    assert numbers(waiting.give(1)) == [6]
    waiting.wait()
    assert waiting.ended


def test_memory_is_bounded_and_the_rest_stays_at_the_source():
    waiting = backlog([list(range(100))], [100], limit=40 * 8)
    waiting.look()
    waiting.fill(lambda batch: batch)
    assert waiting.nbytes <= 320
    assert waiting.held_rows + waiting.due == 100
    assert waiting.held_rows == 40
    assert [n for batch in waiting.cut(80) for n in numbers(batch)] == list(range(20, 100))
    assert waiting.held_rows == 20


def test_a_tuple_that_never_fits_is_an_error():
    waiting = backlog([[1]], [1], limit=4)
    waiting.look()
    with pytest.raises(InvalidInputError, match="Raise memory="):
        waiting.fill(lambda batch: batch)


@settings(deadline=None)
@given(st.floats(0.1, 1e6), st.integers(1, 10_000), st.integers(0, 99))
def test_whoever_waits_for_a_tuple_gets_it(rate, count, seed):
    waiting = Backlog(
        iter([pa.record_batch({"n": range(count)})]),
        Timed(Poisson(rate), now=lambda: 0.0, seed=seed),
        1 << 20,
    )
    waiting.taken, waiting.arrived = 0, 0
    waiting.wait()
    assert waiting.due >= 1
