"""Streams as they come: in every form that Arrow has for strings, with batches of nothing, with fields of nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from oracle import expected, multiset

import semistream as ss

FORMS = [
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()),
]


@pytest.mark.parametrize("algorithm", ["auto", "meshjoin", "chybridjoin", "in-memory"])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_strings_of_every_form(tmp_path, form, algorithm):
    words = [f"w{i}" for i in range(50)]
    rows = pa.table({"k": words, "v": list(range(50))})
    master = ss.build_master(rows, tmp_path / "m", key="k")
    stream = pa.table({"k": [*words[:30], "none", None], "n": [f"n{i}" for i in range(31)] + [None]})
    asked = pa.table(
        {"k": pa.array(stream["k"].to_pylist()).cast(form), "n": pa.array(stream["n"].to_pylist()).cast(form)}
    )
    joined = ss.join(asked, master, on="k", how="left", algorithm=algorithm, memory="4MB", disk="buffered")
    assert joined.schema.field("n").type == pa.string()
    assert multiset(pa.Table.from_batches(joined, joined.schema)) == expected(stream, rows, ["k"], "left")


@pytest.mark.parametrize("wrap", [lambda batches: batches, lambda batches: pa.Table.from_batches(batches)])
def test_a_stream_of_empty_batches_has_an_empty_answer(tmp_path, wrap):
    master = ss.build_master(pa.table({"k": [1], "v": [2]}), tmp_path / "m", key="k")
    nothing = pa.record_batch({"k": pa.array([], pa.int64()), "s": pa.array([], pa.large_string())})
    joined = ss.join(wrap([nothing, nothing]), master, on="k", memory="4MB")
    assert joined.schema.names == ["k", "s", "v"]
    assert sum(map(len, joined)) == 0


@pytest.mark.parametrize("side", ["stream", "master"])
def test_a_struct_that_ends_in_a_field_of_nulls(tmp_path, side):
    kind = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.null())])
    values = [{"a": 1, "b": "x", "c": None}, None, {"a": None, "b": None, "c": None}]
    nested = pa.table({"k": [1, 2, 3], "s": pa.array(values, kind)})
    flat = pa.table({"k": [3, 2, 1], "v": [30, 20, 10]})
    stream, rows = (nested, flat) if side == "stream" else (flat, nested)
    master = ss.build_master(rows, tmp_path / "m", key="k")
    for algorithm in ss.ALGORITHMS:
        joined = ss.join(stream, master, on="k", algorithm=algorithm, memory="4MB", disk="buffered")
        found = {row["k"]: row["s"] for batch in joined for row in batch.to_pylist()}
        assert found == dict(zip([1, 2, 3], values, strict=True)), algorithm
