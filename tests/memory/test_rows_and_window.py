from __future__ import annotations

import datetime as dt
from collections import defaultdict, deque

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidInputError, UnsupportedTypeError
from semistream.memory import window as windows
from semistream.memory.assembly import Assembled, ColumnSource, column_builders
from semistream.memory.budget import Budget
from semistream.memory.leaves import leaves_of, rows_of
from semistream.memory.rowstore import RecordLayout, RowStore
from semistream.memory.table import Probes
from semistream.memory.window import Window

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("d", pa.decimal128(20, 3)),
        pa.field("h", pa.int16()),
        pa.field("t", pa.timestamp("us", tz="UTC")),
        pa.field("n", pa.null()),
        pa.field("x", pa.binary()),
        pa.field("st", pa.struct([pa.field("v", pa.binary()), pa.field("k", pa.int32())])),
        pa.field("f3", pa.binary(3)),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "s": st.none() | st.text(max_size=12),
            "b": st.none() | st.booleans(),
            "d": st.none() | st.decimals(-(10**9), 10**9, places=3),
            "h": st.none() | st.integers(-(2**15), 2**15 - 1),
            "t": st.none()
            | st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1)).map(
                lambda d: d.replace(tzinfo=dt.UTC)
            ),
            "n": st.none(),
            "x": st.none() | st.binary(max_size=30),
            "st": st.none()
            | st.fixed_dictionaries(
                {"v": st.none() | st.binary(max_size=4), "k": st.none() | st.integers(0, 9)}
            ),
            "f3": st.none() | st.binary(min_size=3, max_size=3),
        }
    ),
    max_size=30,
)


def batch_of(made: Assembled, leaves: tuple, schema: pa.Schema) -> pa.RecordBatch:
    assert made.leaves == leaves
    return pa.RecordBatch.from_arrays(made.columns(column_builders(schema)), schema=schema)


def batch(rows: list[dict]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@given(rows=ROWS, start=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_leaves_give_back_the_batch(rows, start):
    given_batch = batch(rows).slice(start)
    leaves = leaves_of(SCHEMA)
    taken = ColumnSource(leaves).take(rows_of(given_batch, leaves), np.arange(len(given_batch)))
    again = ColumnSource(leaves).take(taken.rows(), np.arange(len(given_batch)))
    for made in (taken, again):
        back = batch_of(made, leaves, SCHEMA)
        back.validate(full=True)
        assert back.to_pylist() == given_batch.to_pylist()


@given(rows=ROWS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_rows_come_back_from_any_slots(rows, data):
    leaves = leaves_of(SCHEMA)
    layout = RecordLayout.of(leaves)
    store = RowStore.allocate(Budget(10**6), "rows", layout, 64, 156, who="test")
    store.records.fill(255)  # what was in a slot before must not shine through
    slots = np.array(data.draw(st.permutations(range(64)))[: len(rows)], dtype=np.int64)
    at = np.arange(len(rows), dtype=np.int64)
    store.put(rows_of(batch(rows), leaves), at, slots)
    back = batch_of(store.get(slots[::-1]), leaves, SCHEMA)
    assert back.to_pylist() == rows[::-1]


def test_the_heap_is_compacted_and_never_overfilled():
    schema = pa.schema([pa.field("s", pa.string())])
    leaves = leaves_of(schema)
    store = RowStore.allocate(Budget(10**6), "rows", RecordLayout.of(leaves), 50, 6.4, who="test")
    kept: dict[int, str] = {}
    generator = np.random.default_rng(5)
    for step in range(2000):
        slot = int(generator.integers(50))
        if slot in kept:
            store.free(np.array([slot]))
            del kept[slot]
        text = "abcdefghij"[: generator.integers(0, 11)] * int(generator.integers(1, 3)) + str(step)
        if len(text) > store.heap_room:
            continue
        rows = rows_of(pa.record_batch({"s": [text]}, schema=schema), leaves)
        store.put(rows, np.array([0]), np.array([slot]))
        kept[slot] = text
        slots = np.array(sorted(kept), dtype=np.int64)
        assert batch_of(store.get(slots), leaves, schema)["s"].to_pylist() == [
            kept[s] for s in slots.tolist()
        ]
    assert store.heap_live == sum(map(len, kept.values()))


def test_a_heap_of_one_long_text_and_many_short_ones_is_compacted():
    schema = pa.schema([pa.field("s", pa.string())])
    leaves = leaves_of(schema)
    slots = 400
    texts = [str(slot) for slot in range(slots)]
    texts[7] = "long" * 40_000
    heap_bytes = (sum(map(len, texts)) + 500) / 1.25 / slots  # hardly more than they take
    store = RowStore.allocate(Budget(10**6), "rows", RecordLayout.of(leaves), slots, heap_bytes, who="test")
    order = np.random.default_rng(6).permutation(slots)
    rows = rows_of(pa.record_batch({"s": texts}, schema=schema), leaves)
    store.put(rows, order, order)
    full = store.heap_live
    freed = 0
    for round_ in range(40):
        some = np.flatnonzero(np.arange(slots) % 3 == round_ % 3)
        some = some[some != 7]  # all the others are in one small part of the heap
        store.free(some)
        freed += full - store.heap_live
        store.put(rows, some, some)
        at = np.arange(slots, dtype=np.int64)
        assert batch_of(store.get(at), leaves, schema)["s"].to_pylist() == texts
    assert store.heap_live == full
    assert freed > 2 * (len(store.heap) - full), "the slack was never used up"


def test_unsupported_payloads_are_named():
    with pytest.raises(UnsupportedTypeError, match="column 'tags' in a join: found type list"):
        leaves_of(pa.schema([pa.field("tags", pa.list_(pa.int32()))]))


def test_a_budget_says_what_is_missing():
    budget = Budget(1000)
    budget.array("index", 600, "u1", who="meshjoin")
    with pytest.raises(
        InvalidInputError, match=r"meshjoin within 1000 B: found that window needs 800 B of the 400 B left"
    ):
        budget.array("window", 100, "i8", who="meshjoin")
    assert budget.used_bytes == 600


class Model:
    """The window as plain Python."""

    def __init__(self) -> None:
        self.queue: deque[tuple[int, bytes]] = deque()

    def of_key(self, key: bytes) -> list[int]:
        return [number for number, k in self.queue if k == key]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_window_is_a_queue_that_can_be_searched(wide, seed, monkeypatch):
    """Random admissions, matches and removals against plain lists; wide keys share codes, so only bytes tell."""
    if seed % 2:  # as a large window does, with fewer places left than are known one by one, and with more
        monkeypatch.setattr(windows, "_SPARE_FROM", 0)
        monkeypatch.setattr(windows, "_SPARE", 5)
    generator = np.random.default_rng(seed)
    schema = pa.schema(([pa.field("key", pa.binary())] if wide else []) + [pa.field("number", pa.int64())])
    leaves = leaves_of(schema)
    layout = Window.layout(leaves)
    capacity = int(generator.integers(1, 60))
    nbytes = Window.bytes_for(layout, capacity, 8.0)
    budget = Budget(nbytes)
    window = Window.allocate(budget, layout, capacity, 8.0, wide=wide, who="test")
    assert budget.left_bytes == 0, "the formula and the allocation agree to the byte"
    assert Window.capacity_for(layout, nbytes, 8.0) == capacity
    model = Model()
    numbers = iter(range(10**6))

    def code(key: bytes) -> int:
        return len(key) % 3 if wide else int.from_bytes(key, "little")

    def key() -> bytes:
        value = int(generator.integers(0, 12))
        return b"k" * value if wide else value.to_bytes(8, "little")

    for _ in range(400):
        keys = [key() for _ in range(int(generator.integers(0, 8)))]
        batch_ = pa.record_batch(
            ([pa.array(keys, pa.binary())] if wide else [])
            + [pa.array([next(numbers) for _ in keys], pa.int64())],
            schema=schema,
        )
        rows = rows_of(batch_, leaves)
        at = np.arange(len(keys), dtype=np.int64)
        count = window.fits(rows, at)
        assert count <= window.room
        codes = np.array([code(k) for k in keys[:count]], dtype=np.uint64)
        window.admit(rows, at[:count], codes)
        model.queue.extend(zip(batch_["number"].to_pylist()[:count], keys[:count], strict=True))

        probes = [key() for _ in range(3)]
        lengths = np.cumsum([0] + [len(p) for p in probes])
        found_slots, found_rows = (
            np.empty(capacity * 3, dtype=np.int64),
            np.empty(capacity * 3, dtype=np.int64),
        )
        asked = Probes(
            np.array([code(p) for p in probes], dtype=np.uint64),
            lengths.astype(np.int64),
            np.frombuffer(b"".join(probes), dtype=np.uint8),
        )
        pieces, following = [], (0, 0)
        while following[0] < len(probes):
            slots_, rows_, following = window.match(asked, following)
            pieces.append((slots_.copy(), rows_.copy()))
        found_slots, found_rows = (np.concatenate(part) for part in zip(*pieces, strict=True))
        got = defaultdict(list)
        names = batch_of(window.store.get(found_slots), leaves, schema)["number"].to_pylist()
        for row, number in zip(found_rows.tolist(), names, strict=True):
            got[row].append(number)
        assert [got[i] for i in range(len(probes))] == [model.of_key(p) for p in probes]

        action = generator.integers(4)
        if action == 0:
            window.release(found_slots)
            model.queue = deque(t for t in model.queue if t[1] not in probes)
        elif action == 1:
            gone = window.oldest(int(generator.integers(1, 5)))
            window.release(gone)
            for _ in range(len(gone)):
                model.queue.popleft()
        waiting = batch_of(window.store.get(window.oldest(capacity)), leaves, schema)["number"].to_pylist()
        assert waiting == [number for number, _ in model.queue]
        assert window.waiting + window.room == capacity


def test_a_match_stops_when_the_pairs_are_full_and_goes_on():
    schema = pa.schema([pa.field("number", pa.int64())])
    leaves = leaves_of(schema)
    window = Window.allocate(Budget(10**6), Window.layout(leaves), 10, 0.0, wide=False, who="test")
    rows = rows_of(pa.record_batch({"number": list(range(10))}), leaves)
    window.admit(rows, np.arange(10), np.array([1, 2] * 5, dtype=np.uint64))
    probes = Probes(
        np.array([2, 7, 1, 2], dtype=np.uint64), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    )
    window.pair_slots, window.pair_rows = window.pair_slots[:7], window.pair_rows[:7]
    first, found, following = window.match(probes, (0, 0))
    assert (found.tolist(), following) == ([0] * 5 + [2] * 2, (2, 2))
    slots = first.tolist()
    second, found, following = window.match(probes, following)
    assert (found.tolist(), following) == ([2] * 3 + [3] * 4, (3, 4))
    slots += second.tolist()
    third, found, following = window.match(probes, following)
    assert (found.tolist(), following) == ([3], (4, 0))
    got = batch_of(window.store.get(np.array(slots + third.tolist())), leaves, schema)["number"].to_pylist()
    assert got == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
