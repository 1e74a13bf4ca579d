"""The grid: what a cell is, what a run costs on another disk, and what the pages say."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from made_up import measured

from semistream.experiments import Runner, scale_named
from semistream.experiments.case import Case
from semistream.experiments.data import Gapped, MasterSpec, StreamSpec, changed_rows, open_or_build
from semistream.experiments.grid import Contest, Outcome, Plan
from semistream.experiments.grid_report import KeptGrid, as_csv, told, write_grid
from semistream.experiments.measure import measure
from semistream.experiments.pricing import seconds_on
from semistream.experiments.report import write_report
from semistream.experiments.studies.grid_winners import ALGORITHMS, DISKS, FIXED, Cell, cells
from semistream.experiments.updating import CHANGED_SHARE, measure_updates
from semistream.joins import Settings
from semistream.master.disk.profiles import NVME, OBJECT_STORE
from semistream.workload import Zipf

MASTER = MasterSpec(rows=20_000, key_gap=2)
CASE = Case(
    "hybridjoin",
    MASTER,
    StreamSpec(0.5),
    300_000,
    settings=Settings(disk_buffer=8192, block_pages=2, parallel=1),
)


def contests(rates=None):
    """Made up: every algorithm has its place in ALGORITHMS as its rate, but for those given."""

    def outcome(cell, name):
        case = replace(cell.case("hybridjoin" if name == "auto" else name), settings=Settings())
        rate = (rates or {}).get(name, 1.0 + ALGORITHMS.index(name))
        counted = measured(1.0)
        seconds = seconds_on(cell.disk, counted, case)
        return Outcome(cell, name, case, replace(counted, answered=round(100 * rate * seconds)))

    return [
        Contest(cell, {name: outcome(cell, name) for name in ALGORITHMS})
        for disk in DISKS
        for cell in cells(disk)
    ]


def test_so_many_tuples_miss_and_none_else(out):
    keys = Gapped(Zipf(1_000, 1.0), 2, 0.3).draw(0, 20_000, seed=1)
    assert np.mean(keys % 2) == pytest.approx(0.3, abs=0.02)
    case = replace(CASE, stream=StreamSpec(0.5, misses=0.3))
    got = measure(case, out, seed=1)
    assert got.misses / got.answered == pytest.approx(0.3, abs=0.03)
    assert got.rows == got.answered - got.misses
    assert measure(CASE, out, seed=1).misses == 0


def test_a_period_answers_the_tuples_of_one_version(out):
    """Whole periods: no tuple of another version is in the count, and all that was read for it is."""
    plain = measure_updates(replace(CASE, version_every=2_000), out, seed=1)
    assert plain.answered == plain.rows == 2_000
    assert plain.bytes >= 4096 * plain.pages
    hot = replace(CASE, algorithm="chybridjoin", version_every=2_000, stream=StreamSpec(1.0))
    hot = replace(hot, settings=replace(CASE.settings, front_share=0.3))
    warm = measure_updates(hot, out, seed=1)
    assert warm.answered == warm.rows == 2_000
    assert warm.front_hits > 0  # rows that did not change were kept


def test_changes_are_of_rows_that_there_are(out):
    rows = changed_rows(MASTER, 50, seed=3)
    before = open_or_build(MASTER, out, seed=1).rows
    assert 0 < rows.num_rows <= 50
    assert all(key % 2 == 0 and key < 2 * MASTER.rows for key in rows["k"].to_pylist())
    assert rows["payload"][0].as_py() != bytes(112)
    assert before == MASTER.rows
    assert 0 < CHANGED_SHARE < 0.1


def test_other_disks_are_priced_by_hand():
    """A block at a scale below 1: all streams of an object store together; an index loop: the whole queue."""
    counted = replace(
        measured(0.0),
        calls=1_000,
        seeks=900,
        bytes=8_192_000,
        probes=0,
        rows=0,
        admitted=0,
        advances=0,
        answered=0,
    )
    case = replace(CASE, scale=1 / 1000)
    assert seconds_on("nvme", counted, case) == pytest.approx(
        1_000 * NVME.call_s / 1000 + 8_192_000 / NVME.bytes_per_s
    )
    streams = OBJECT_STORE.queue_depth * OBJECT_STORE.bytes_per_s
    assert seconds_on("object-store", counted, case) == pytest.approx(
        1_000 * OBJECT_STORE.call_s / 1000 + 8_192_000 / streams
    )
    looked_up = seconds_on("object-store", counted, replace(case, algorithm="inlj"))
    alone = 1_000 * (OBJECT_STORE.call_s + 8_192 / OBJECT_STORE.bytes_per_s)
    assert looked_up == pytest.approx(alone / OBJECT_STORE.queue_depth, rel=0.01)


def test_settings_are_asked_for_once_and_kept(tmp_path, monkeypatch):
    cell = next(iter(cells("nvme")))
    plan = Plan.of(cell, "hybridjoin", Runner(tmp_path, scale_named("small")))
    assert plan == Plan.of(replace(cell, updates=0.5), "hybridjoin", Runner(tmp_path, scale_named("small")))
    assert plan != Plan.of(replace(cell, misses=0.9), "hybridjoin", Runner(tmp_path, scale_named("small")))
    first = plan.answer()
    monkeypatch.setattr(Plan, "_asked", lambda _: pytest.fail("asked again"))
    assert plan.answer() == first


def test_a_winner_asks_nothing_of_the_masters_order():
    """However fast a join over a master by popularity is, it is a mark in the cell; auto is no winner of its own."""
    (one, *_) = contests({"optimised-x-hybridjoin": 100.0, "auto": 4.0, "meshjoin": 8.0})
    assert one.winner == "meshjoin"
    assert one.lead == pytest.approx(2.0, rel=0.01)
    assert one.by_popularity == pytest.approx(12.5, rel=0.01)


def test_the_text_counts_what_the_cells_say():
    found = [each for each in contests({"auto": 7.0}) if each.cell.disk == "nvme"]
    said = told("nvme", found)
    assert f"fastest is {FIXED[-1]} in {len(found)}." in said
    assert "1.00 times auto's rate at the median and 1.00 at worst" in said
    assert f"in {len(found)} cells auto is within" in said


def test_the_grid_stays_when_the_claims_are_rerun(tmp_path):
    found = contests()
    write_grid(found, {"seed": 1}, tmp_path)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert len(rows) == len(ALGORITHMS) * sum(1 for disk in DISKS for _ in cells(disk))
    page = (tmp_path / "grid" / "README.md").read_text()
    for disk in DISKS:
        assert f"{disk}.svg" in page
        svg = (tmp_path / "grid" / f"{disk}.svg").read_text()
        assert svg.count(f">{FIXED[-1]}<") == sum(1 for _ in cells(disk))
    before = {path.name: path.read_bytes() for path in (tmp_path / "grid").iterdir()}
    result = Runner(tmp_path, replace(scale_named("small"), mesh=1 / 100), on_machine=False).reproduce(
        ("D4",)
    )
    report = write_report(result, tmp_path).read_text()
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "grid").iterdir()}
    kept = KeptGrid.find(tmp_path)
    assert kept is not None
    assert json.loads(before["summary.json"])["disks"].keys() == set(DISKS)
    assert all(sentence in (tmp_path / "README.md").read_text() for sentence in kept.disks.values())
    assert report.count("<svg") == 1 + len(DISKS)
    # And a rerun of the grid brings the claims' report up to date.
    write_grid(contests({"auto": 2.0}), {"seed": 1}, tmp_path)
    renewed = KeptGrid.find(tmp_path)
    assert renewed is not None
    assert renewed.disks != kept.disks
    for name in ("README.md", "report.html"):
        text = html.unescape((tmp_path / name).read_text())
        assert all(sentence in text for sentence in renewed.disks.values())
        assert not any(
            sentence in text for sentence in kept.disks.values() if sentence not in renewed.disks.values()
        )
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", report)


def test_a_cell_is_the_case_it_says():
    cell = Cell("nvme", 1.0, 0.1, 0.05, 0.02)
    case = cell.case("x-hybridjoin")
    assert case.stream == StreamSpec(1.0, "in-order", misses=0.1)
    assert cell.case("hybridjoin").stream.popularity == "scattered"
    assert case.memory_bytes == pytest.approx(0.05 * case.master.nbytes)
    assert case.version_every == round(0.02 * case.master.rows)
