"""Spark's batches are put together before a join, up to so many rows and bytes."""

from __future__ import annotations

from collections import deque
from itertools import chain

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from semistream.spark.worker import together

BATCHES = st.lists(st.lists(st.text("ab", max_size=20), max_size=9), max_size=12)


def batches_of(texts: list[list[str]]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"s": pa.array(some, pa.string())}) for some in texts]


@given(texts=BATCHES, most=st.integers(1, 20), most_bytes=st.none() | st.integers(1, 300))
def test_nothing_is_lost_and_nothing_grows_too_large(texts, most, most_bytes):
    given_batches = batches_of(texts)
    made = list(together(given_batches, most, most_bytes))

    assert [row for batch in made for row in batch["s"].to_pylist()] == list(chain.from_iterable(texts))
    limit = float("inf") if most_bytes is None else most_bytes
    coming = deque(batch for batch in given_batches if len(batch))
    for batch in made:
        parts = [coming.popleft()]
        while sum(map(len, parts)) < len(batch):
            parts.append(coming.popleft())
        rows, nbytes = len(batch), sum(part.nbytes for part in parts)
        assert rows == sum(map(len, parts)), "none is cut"
        assert len(parts) == 1 or (rows <= most and nbytes <= limit)
        if coming:
            assert rows + len(coming[0]) > most or nbytes + coming[0].nbytes > limit, "one more would fit"
