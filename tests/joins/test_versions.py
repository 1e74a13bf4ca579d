"""The master changes while a join runs (claim C15)."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.joins import Settings
from semistream.joins.reader import index_bytes

FIXED = [name for name in ss.ALGORITHMS if name != "auto"]


def current(master: ss.Master) -> dict[int, list[int]]:
    rows: dict[int, list[int]] = {}
    for batch in master.refresh().scan():
        for row in batch.to_pylist():
            rows.setdefault(row["k"], []).append(row["v"])
    return rows


@pytest.mark.parametrize("layout", ["key", "frequency", "heap"])
@pytest.mark.parametrize("algorithm", FIXED)
@given(drawn=st.data())
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_tuple_is_answered_from_the_version_of_its_arrival(algorithm, layout, drawn, tmp_path_factory):
    if layout == "heap" and algorithm not in ("meshjoin", "r-meshjoin", "cmeshjoin", "in-memory"):
        return
    unique = drawn.draw(st.booleans())
    keys = drawn.draw(st.lists(st.integers(0, 300), min_size=1, max_size=250, unique=unique))
    built = ss.build_master(
        pa.table({"k": keys, "v": list(range(len(keys)))}),
        tmp_path_factory.mktemp("m") / "s",
        key="k",
        layout=layout,
        page_bytes=4096,
    )
    want: Counter = Counter()
    numbers = iter(range(10_000, 99_999))

    def arrivals():
        for number in range(12):
            if number and drawn.draw(st.booleans(), label="change"):
                some = drawn.draw(st.lists(st.integers(0, 310), min_size=1, max_size=20, unique=True))
                change = drawn.draw(st.sampled_from(["append", "upsert", "delete"]))
                table = pa.table({"k": some, "v": [next(numbers) for _ in some]})
                if change == "delete":
                    built.delete(table.select(["k"]))
                else:
                    getattr(built, change)(table)
            asked = drawn.draw(st.lists(st.integers(0, 20) | st.integers(0, 310), max_size=40))
            rows = current(built)
            for k in asked:
                for v in rows.get(k, [None]):
                    want[(k, v)] += 1
            yield pa.record_batch({"k": pa.array(asked, pa.int64())})

    joined = ss.join(
        pa.RecordBatchReader.from_batches(pa.schema({"k": pa.int64()}), arrivals()),
        built,
        on="k",
        how="left",
        algorithm=algorithm,
        memory=400_000,
        versions="newest",
        disk="buffered",
        settings=Settings(disk_buffer=8192),
    )
    got = Counter(tuple(row.values()) for batch in joined for row in batch.to_pylist())
    assert got == want
    assert joined.stats.used_bytes <= joined.stats.budget_bytes


def streamed(built, changes, keys):
    for change in changes:
        change()
        yield pa.record_batch({"k": keys})


@pytest.mark.parametrize("algorithm", ["cinlj", "chybridjoin", "cmeshjoin"])
def test_a_master_whose_index_fills_half_the_memory_is_followed_too(algorithm, tmp_path):
    """There is no room for two indexes: the join lets go of one version before it opens the next."""
    rows = 8_000
    table = pa.table({"k": range(rows), "v": range(rows), "wide": ["." * 1000] * rows})
    built = ss.build_master(table, tmp_path / "s", key="k", page_bytes=4096)
    memory = 2 * index_bytes(built)
    joined = ss.join(
        pa.RecordBatchReader.from_batches(
            pa.schema({"k": pa.int64()}),
            streamed(
                built,
                [
                    lambda: None,
                    lambda: built.upsert(pa.table({"k": [5], "v": [-5], "wide": [""]})),
                    lambda: None,
                ],
                pa.array([5, 7, rows], pa.int64()),
            ),
        ),
        built,
        on="k",
        columns=["v"],
        algorithm=algorithm,
        memory=memory,
        versions="newest",
        settings=Settings(disk_buffer=4096),
    )
    got = Counter(tuple(row.values()) for batch in joined for row in batch.to_pylist())
    assert got == Counter({(5, 5): 1, (5, -5): 2, (7, 7): 3})
    assert joined.stats.versions == 1
    assert joined.stats.used_bytes <= memory


def test_only_stale_rows_leave_the_front_stage(tmp_path):
    rows = 4000
    built = ss.build_master(
        pa.table({"k": list(range(rows)), "v": list(range(rows))}), tmp_path / "s", key="k", page_bytes=4096
    )
    hot = list(range(0, rows, 40)) * 5
    changes = [
        lambda: None,
        lambda: None,
        lambda: built.upsert(pa.table({"k": [40], "v": [-1]})),
        lambda: None,
    ]
    joined = ss.join(
        streamed(built, changes, hot),
        built,
        on="k",
        algorithm="chybridjoin",
        memory=400_000,
        versions="newest",
        disk="buffered",
        settings=Settings(disk_buffer=8192, parallel=1),
    )
    got = Counter(row["v"] for batch in joined for row in batch.to_pylist())
    assert (got[40], got[-1]) == (10, 10), "two batches of five before the change, and two after it"
    assert joined.stats.versions == 1
    page = int(built.index.find(built.codec.encode([pa.array([40])])).first[0])
    table = built.data.load_table().rows
    on_page = [k for k in range(0, rows, 40) if sum(table[:page]) <= k < sum(table[: page + 1])]
    assert 0 < joined.stats.evicted <= len(on_page), "what is on other pages stays"


@pytest.mark.parametrize("algorithm", ["cmeshjoin", "chybridjoin", "meshjoin"])
def test_a_master_that_doubles_stays_within_the_budget(algorithm, tmp_path):
    rows = 3000
    built = ss.build_master(
        pa.table({"k": list(range(rows)), "v": list(range(rows))}), tmp_path / "s", key="k", page_bytes=4096
    )

    def double():
        built.append(pa.table({"k": list(range(rows, 2 * rows)), "v": list(range(rows, 2 * rows))}))

    keys = list(range(0, 2 * rows, 3))
    joined = ss.join(
        streamed(built, [lambda: None, double, lambda: None], keys),
        built,
        on="k",
        algorithm=algorithm,
        memory=300_000,
        versions="newest",
        disk="buffered",
    )
    got = Counter(row["v"] for batch in joined for row in batch.to_pylist())
    assert got == Counter([k for k in keys if k < rows] + keys * 2)
    assert joined.stats.used_bytes <= joined.stats.budget_bytes == 300_000


def test_a_pinned_join_stays_with_its_version(tmp_path):
    built = ss.build_master(pa.table({"k": [1], "v": [1]}), tmp_path / "s", key="k")
    changes = [lambda: None, lambda: built.upsert(pa.table({"k": [1], "v": [2]}))]
    out = [
        row["v"]
        for b in ss.join(streamed(built, changes, [1]), built, on="k", disk="buffered")
        for row in b.to_pylist()
    ]
    assert out == [1, 1]


def test_other_columns_end_the_join(tmp_path):
    built = ss.build_master(pa.table({"k": [1], "v": [1]}), tmp_path / "s", key="k")

    def other():
        ss.build_master(pa.table({"k": [1], "w": ["x"]}), tmp_path / "s", key="k", if_exists="replace")

    with pytest.raises(InvalidInputError, match="Start a new join"):
        list(
            ss.join(
                streamed(built, [lambda: None, other], [1]), built, on="k", versions="newest", disk="buffered"
            )
        )
