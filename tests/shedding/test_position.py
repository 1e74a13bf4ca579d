"""Where in the queue the tuple is that chooses the next page."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.joins import Settings
from semistream.joins.opening import Opening, open_join
from semistream.joins.sides import shape_join
from semistream.memory.budget import Budget
from semistream.memory.leaves import leaves_of, rows_of
from semistream.memory.window import Window


def window(capacity: int) -> Window:
    leaves = leaves_of(pa.schema({"n": pa.int64()}))
    return Window.allocate(Budget(1 << 20), Window.layout(leaves), capacity, 0.0, wide=False, who="test")


def admit(into: Window, numbers: list[int]) -> list[int]:
    batch = pa.record_batch({"n": pa.array(numbers, pa.int64())})
    rows = rows_of(batch, leaves_of(batch.schema))
    everything = np.arange(len(numbers), dtype=np.int64)
    return into.admit(rows, everything, np.array(numbers, dtype=np.uint64)).tolist()


def test_positions_of_a_queue_of_ten():
    queue = window(16)
    slots = admit(queue, list(range(10)))  # 0 is the oldest, 9 the newest

    def numbers(position: float, count: int) -> list[int]:
        return [slots.index(slot) for slot in queue.at(position, count)]

    assert numbers(0.0, 1) == [9]
    assert numbers(0.15, 1) == [8]  # one is newer: a tenth of the queue, with the next more than 15 %
    assert numbers(0.5, 3) == [4, 3, 2]
    assert numbers(1.0, 1) == [0]
    assert numbers(0.9, 4) == [3, 2, 1, 0]  # three are older than the one at 0.9 but one: the last four
    assert numbers(0.0, 99) == list(range(9, -1, -1))
    # 8 and 4 leave; of the eight that stay the one with two newer ones is 6.
    queue.release(np.array([slots[8], slots[4]], dtype=np.int64))
    assert numbers(0.25, 2) == [6, 5]
    # The one at the border leaves: it falls back to the next older one.
    queue.release(np.array([slots[6]], dtype=np.int64))
    assert numbers(0.3, 2) == [5, 3]
    newest = admit(queue, [10, 11])[-1]  # into slots that were left
    assert queue.at(0.0, 1).tolist() == [newest]


@given(drawn=st.data())
@settings(max_examples=200, deadline=None)
def test_the_border_is_where_a_list_says(drawn):
    queue, model, following = window(40), [], 0  # the model: (number, slot), oldest first
    for _ in range(drawn.draw(st.integers(1, 25))):
        what = drawn.draw(st.sampled_from(["admit", "release", "look", "mark"]))
        if what == "admit":
            count = min(drawn.draw(st.integers(0, 9)), queue.room)
            numbers = list(range(following, following + count))
            model += zip(numbers, admit(queue, numbers), strict=True)
            following += count
        elif what == "release" and model:
            gone = drawn.draw(st.sets(st.sampled_from(model)))
            queue.release(np.array([slot for _, slot in sorted(gone)], dtype=np.int64))
            model = [entry for entry in model if entry not in gone]
        elif what == "mark" and model:
            slot = np.array([drawn.draw(st.sampled_from(model))[1]])
            queue.mark(slot, np.array([True]))
            assert queue.matched(slot).all()
        else:
            position, count = drawn.draw(st.floats(0, 1)), drawn.draw(st.integers(1, 50))
            asked = min(count, len(model))
            newer = min(int(position * len(model)), len(model) - asked)
            want = [slot for _, slot in reversed(model)][newer : newer + asked]
            assert queue.at(position, count).tolist() == want
    assert queue.waiting == len(model)


@pytest.mark.parametrize(
    ("position", "order"),
    [(1.0, [0, 1, 2, 3]), (0.0, [3, 2, 1, 0]), (0.5, [1, 2, 0, 3])],
    ids=["the oldest", "the newest", "the middle"],
)
def test_the_tuple_at_the_position_chooses_the_page(position, order, tmp_path):
    """Four tuples of four pages, page 0's the oldest. In the middle: two of four are newer than 1; one of three than 2; ..."""
    table = pa.table({"k": list(range(4000)), "v": list(range(4000))})
    master = ss.build_master(table, tmp_path / "s", key="k", page_bytes=4096)
    first = np.cumsum(master.data.load_table().rows)[:3].tolist()
    keys = [0, *first]
    stream = pa.record_batch({"k": pa.array(keys, pa.int64())})
    shape = shape_join(stream.schema, master, on="k")
    opened = open_join(
        Opening("hybridjoin", master, shape, 300_000, "buffered", 0.0, Settings(parallel=1, disk_buffer=4096))
    )
    opened.look_up_at(position)
    opened.join.offer(shape.keyed(stream)[0])
    seen = []
    while opened.join.pending:
        seen += [keys.index(k) for batch in opened.join.advance() for k in batch["k"].to_pylist()]
    opened.close()
    assert seen == order
