"""The memory of the models is the memory of the joins."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.cost.simulated import ON, master_of, stream_of

import semistream as ss
from semistream.cost.memory import memory_by_part
from semistream.errors import InvalidInputError
from semistream.joins.division import divide
from semistream.joins.frontstage import FrontStage
from semistream.joins.opening import Opening, heap_bytes_of, open_join
from semistream.joins.registry import ALGORITHMS, Settings
from semistream.joins.sides import shape_join
from semistream.joins.xhybridjoin import XHybridJoin

NAMED = [name for name in ALGORITHMS if name not in ("auto", "in-memory")]


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", 20_000, "frequency", 1.0)


@pytest.mark.parametrize("disk", ["hdd-2007", "direct"])
@pytest.mark.parametrize("memory_bytes", [300_000, 1_000_000, 30_000_000])
@pytest.mark.parametrize("settings", [Settings(), Settings(disk_buffer=40_000, front_share=0.3, parallel=1)])
@pytest.mark.parametrize("name", NAMED)
def test_divided_as_it_is_opened(master, name, settings, memory_bytes, disk):
    shape = shape_join(next(stream_of(10, 0.0)).schema, master, on=ON)
    found = divide(
        name,
        master,
        shape,
        memory_bytes=memory_bytes,
        disk_kind=disk,
        settings=settings,
        row_heap_bytes=0.0,
        tuple_heap_bytes=0.0,
    )
    opened = open_join(Opening(name, master, shape, memory_bytes, disk, 0.0, settings))
    try:
        join = opened.join
        behind = join.behind if isinstance(join, FrontStage) else join
        behind = behind.hybrid if isinstance(behind, XHybridJoin) else behind
        assert found.window_tuples == behind.waiting.window.capacity
        assert found.pages_at_once == opened.reader.pages_at_once
        assert found.front_rows == (join.hot.table.capacity if isinstance(join, FrontStage) else 0)
        assert found.pinned_pages == (len(join.pinned.pages) if isinstance(join, XHybridJoin) else 0)
        assert found.parts == {part: nbytes for part, nbytes in opened.budget.taken.items() if nbytes}
        parts = memory_by_part(found)
        assert sum(parts.values()) == opened.join.stats.used_bytes <= memory_bytes
        assert parts["disk buffer"] == opened.budget.taken["disk buffer"]
        assert parts["window"] == opened.budget.taken["window"]
        assert ("hot rows" in parts) == isinstance(join, FrontStage)
        assert ("pinned pages" in parts) == isinstance(join, XHybridJoin)
    finally:
        opened.close()


def test_all_rows_in_memory_are_a_part_too(master):
    shape = shape_join(next(stream_of(10, 0.0)).schema, master, on=ON)
    opened = open_join(Opening("in-memory", master, shape, 30_000_000, "hdd-2007", 0.0, Settings()))
    try:
        found = divide(
            "in-memory",
            master,
            shape,
            memory_bytes=30_000_000,
            disk_kind="hdd-2007",
            settings=Settings(),
            row_heap_bytes=0.0,
            tuple_heap_bytes=0.0,
        )
        assert found.parts == {part: nbytes for part, nbytes in opened.budget.taken.items() if nbytes}
        assert memory_by_part(found)["hot rows"] == opened.budget.taken["master"]
    finally:
        opened.close()


def test_strings_are_a_part_of_the_window_and_of_the_hot_rows(tmp_path):
    ids = [f"product {i:06d}" for i in range(5_000)]
    master = ss.build_master(pa.table({"id": ids, "name": ids}), tmp_path / "m", key="id", page_bytes=4096)
    shape = shape_join(pa.schema({"id": pa.string()}), master, on="id")
    opening = Opening("chybridjoin", master, shape, 500_000, "hdd-2007", 20.0, Settings(parallel=1))
    found = divide(
        "chybridjoin",
        master,
        shape,
        memory_bytes=500_000,
        disk_kind="hdd-2007",
        settings=opening.settings,
        row_heap_bytes=heap_bytes_of(master, shape),
        tuple_heap_bytes=20.0,
    )
    opened = open_join(opening)
    try:
        taken = opened.budget.taken
        # What a row's strings take is known from the first pages, one here and several there.
        assert found.parts["front stage"] == pytest.approx(taken["front stage"], rel=0.02)
        assert found.parts["window"] == pytest.approx(taken["window"], rel=0.02)
    finally:
        opened.close()


def test_too_little_memory_says_how_much_is_needed(master):
    shape = shape_join(next(stream_of(10, 0.0)).schema, master, on=ON)
    options = {
        "disk_kind": "hdd-2007",
        "settings": Settings(disk_buffer=4096),
        "row_heap_bytes": 0.0,
        "tuple_heap_bytes": 0.0,
    }
    with pytest.raises(InvalidInputError, match=r"Raise memory= to at least") as error:
        divide("meshjoin", master, shape, memory_bytes=2_000, **options)
    assert "waiting tuple" in str(error.value)
