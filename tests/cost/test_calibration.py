"""Measured factors: what they are, where they are kept, and what is done with files that are not theirs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from statistics import median

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from tests.cost.simulated import ON, master_of, stream_of

import semistream as ss
from semistream.cost import calibration, costs_of
from semistream.cost.calibration import _place
from semistream.cost.disks import MeasuredCosts, ProfileCosts
from semistream.errors import InvalidInputError
from semistream.joins.division import divide
from semistream.joins.opening import Opening, open_join
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join
from semistream.master.disk.profiles import PROFILES
from semistream.master.storage import ObjectStorage


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", 50_000, "key", 1.0)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_measured_once_and_kept(master, cache):
    assert costs_of(master, "direct").origin.startswith("defaults")
    began = time.perf_counter()
    found = ss.calibrate(master)
    assert time.perf_counter() - began < 30
    assert isinstance(found.disk, MeasuredCosts)
    assert all(
        value > 0
        for value in (
            found.prices.probe_s,
            found.prices.append_s,
            found.prices.remove_s,
            found.prices.block_step_s,
        )
    )
    assert set(found.spread) == {
        "c_S",
        "c_A",
        "c_P",
        "c_H",
        "c_O",
        "c_E",
        "c_IO",
        "beside",
        *(f"step of {name}" for name in ("meshjoin", "cmeshjoin", "hybridjoin", "inlj")),
    }
    kept = costs_of(master, "direct")
    assert (kept.prices, kept.disk) == (found.prices, found.disk)
    # More bytes take longer, and many blocks together less than one after the other.
    assert found.disk.random_s(1, 1 << 20, 4096) > found.disk.random_s(1, 4096, 4096)
    assert found.disk.random_s(64, 4096, 4096) < 64 * found.disk.random_s(1, 4096, 4096)


def test_what_cannot_be_kept_is_not_lost(master, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path / "file"))
    found = ss.calibrate(master)
    assert isinstance(found.disk, MeasuredCosts)
    assert "not kept" in found.origin
    assert "SEMISTREAM_CACHE_DIR" in found.origin


@pytest.fixture
def remote(tmp_path):
    """A master that Arrow reaches as it does an object store."""

    def opened(folder, rows=2_000):
        master_of(tmp_path / folder / "m", rows, "key", 1.0)
        return ss.open_master(
            "m", filesystem=pafs.SubTreeFileSystem(str(tmp_path / folder), pafs.LocalFileSystem())
        )

    return opened


def test_the_defaults_of_an_object_store_are_for_masters_in_one(master, remote, cache):
    there = costs_of(remote("far"), "direct")
    assert there.disk == ProfileCosts(PROFILES["object-store"])
    assert "object-store" in there.origin
    assert costs_of(master, "direct").disk == ProfileCosts(PROFILES["nvme"])


def test_a_join_with_a_master_in_an_object_store_has_its_default_buffer(remote):
    far = remote("far")
    shape = shape_join(next(stream_of(10, 0.0)).schema, far, on=ON)
    sizes = {}
    for disk in ("direct", "object-store", "nvme"):
        options = {"memory_bytes": 64 << 20, "disk_kind": disk, "settings": Settings()}
        found = divide("meshjoin", far, shape, **options, row_heap_bytes=0.0, tuple_heap_bytes=0.0)
        sizes[disk] = found.parts["disk buffer"]
        opened = open_join(Opening("meshjoin", far, shape, 64 << 20, disk, 0.0, Settings()))
        assert found.parts["disk buffer"] == opened.budget.taken["disk buffer"]
        opened.close()
    assert sizes["direct"] == pytest.approx(sizes["object-store"], rel=0.01)
    assert sizes["direct"] > 2 * sizes["nvme"]


def test_an_object_store_is_calibrated_per_bucket(remote, cache):
    far = remote("far", 70_000)
    assert far.pages >= calibration._LEAST_PAGES
    found = ss.calibrate(far)
    assert costs_of(far, "direct").disk == found.disk
    assert costs_of(far, "direct").origin == "measured"
    with pytest.raises(InvalidInputError, match="on another disk"):
        ss.calibrate(remote("small"))


def test_buckets_are_told_apart(tmp_path, cache):
    base = pafs._MockFileSystem()
    places = set()
    for root in ("one/a", "one/b", "two/a"):
        base.create_dir(root)
        there = ObjectStorage(base, f"{root}/m", location="m")
        places.add(_place(Described(there), "direct"))
        within = ObjectStorage(pafs.SubTreeFileSystem(root, base), "m", location="m")
        places.add(_place(Described(within), "direct"))
    assert len(places) == 2


@dataclass
class Described:
    """A master, as far as it is asked where it is."""

    storage: ObjectStorage


def test_not_remembered_on_request(master, cache):
    ss.calibrate(master, remember=False)
    assert not cache.exists()


def test_reads_beside_a_join_are_compared_with_reads_of_the_same_disk(tmp_path, monkeypatch):
    """A master on a disk a hundred times slower than the temporary directory's: there the joins run that are measured."""
    master = master_of(tmp_path / "m", 70_000, "key", 1.0)
    assert master.pages >= calibration._LEAST_PAGES
    read_curve = calibration._read_curve

    def slower(there, disk):
        curve, spread = read_curve(there, disk)
        factor = 100 if there is master else 1
        return MeasuredCosts(tuple((size, count, factor * s) for size, count, s in curve.curve)), spread

    turns, scan_turns = [], calibration.scan_turns
    monkeypatch.setattr(calibration, "_read_curve", slower)
    monkeypatch.setattr(calibration, "scan_turns", lambda *given: turns.extend(scan_turns(*given)) or turns)
    found = ss.calibrate(master, remember=False)
    assert median(turn.slowed for turn in turns) > 0.3
    assert min(factor for _, factor in found.disk.slowed) >= 1.0, "less is noise"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 4}',
        '{"format": 4, "prices": {}, "reads": [], "slowed": [], "spread": {}}',
        json.dumps({"format": 99}),
    ],
)
def test_a_file_that_is_not_ours_is_as_if_it_were_not_there(master, cache, content):
    place = _place(master, "direct")
    place.parent.mkdir(parents=True)
    place.write_text(content)
    assert costs_of(master, "direct").origin.startswith("defaults")


@pytest.fixture(scope="module")
def measured(master, tmp_path_factory):
    """What a calibration keeps; it takes seconds, so tests change a copy of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path_factory.mktemp("measured")))
        ss.calibrate(master)
        return json.loads(_place(master, "direct").read_text())


@pytest.fixture
def keep(master, cache):
    """Put something in the place of what was kept."""

    def put(content):
        place = _place(master, "direct")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content))

    return put


def test_what_was_kept_is_believed(master, measured, keep):
    keep(measured)
    assert costs_of(master, "direct").origin == "measured"


@pytest.mark.parametrize(
    "change",
    [
        {"reads": []},
        *({"slowed": bad} for bad in ([[131072, -1.0]], [[131072]], None, 7)),
        *({"prices": bad} for bad in ({}, None)),
    ],
)
def test_absurd_measurements_are_not_believed(master, measured, keep, change):
    keep({**measured, **change})
    assert costs_of(master, "direct").origin.startswith("defaults")


@pytest.mark.parametrize("bad", [-1.0, 1e9, float("nan"), "x"])
def test_absurd_factors_are_not_believed(master, measured, keep, bad):
    keep({**measured, "prices": {**measured["prices"], "probe_s": bad}})
    assert costs_of(master, "direct").origin.startswith("defaults")


def test_a_profile_has_its_own(master):
    assert isinstance(ss.calibrate(disk="hdd-2007").disk, ProfileCosts)
    with pytest.raises(InvalidInputError, match="Choose direct"):
        ss.calibrate(disk="floppy")


def test_a_scan_beside_a_join_is_slower_by_what_was_measured():
    """In between by the logarithm of the bytes; beyond as at the ends; alone not at all."""
    alone = ((4096, 1, 1e-4), (1 << 20, 1, 1e-3))
    disk = MeasuredCosts(alone, slowed=((1 << 17, 3.0), (1 << 21, 1.0)))
    found = [disk.beside(size) for size in (4096, 1 << 17, 1 << 19, 1 << 21, 1 << 25)]
    assert found == pytest.approx([3.0, 3.0, 2.0, 1.0, 1.0])
    assert MeasuredCosts(alone).beside(1 << 19) == 1.0


def test_a_tiny_master_does_not_stand_for_its_disk(tmp_path, cache):
    tiny = ss.build_master(pa.table({"id": list(range(50))}), tmp_path / "tiny", key="id")
    found = {(size, together) for size, together, _ in ss.calibrate(tiny).disk.curve}
    assert found == {(size, together) for size, together, _ in ss.calibrate().disk.curve}
