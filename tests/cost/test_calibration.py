"""Measured factors: what they are, where they are kept, and what is done with files that are not theirs."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pytest
from tests.cost.simulated import master_of

import semistream as ss
from semistream.cost import costs_of
from semistream.cost.calibration import _place
from semistream.cost.disks import MeasuredCosts, ProfileCosts
from semistream.errors import InvalidInputError


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
        "c_H",
        "c_O",
        "c_E",
        "c_IO",
        *(f"step of {name}" for name in ("meshjoin", "cmeshjoin", "hybridjoin", "inlj")),
    }
    kept = costs_of(master, "direct")
    assert (kept.prices, kept.disk) == (found.prices, found.disk)
    # More bytes take longer, and many blocks together less than one after the other.
    assert found.disk.random_s(1, 1 << 20, 4096) > found.disk.random_s(1, 4096, 4096)
    assert found.disk.random_s(64, 4096, 4096) < 64 * found.disk.random_s(1, 4096, 4096)


def test_not_remembered_on_request(master, cache):
    ss.calibrate(master, remember=False)
    assert not cache.exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2}',
        '{"format": 2, "prices": {}, "reads": [], "spread": {}}',
        json.dumps({"format": 99}),
    ],
)
def test_a_file_that_is_not_ours_is_as_if_it_were_not_there(master, cache, content):
    place = _place(master, "direct")
    place.parent.mkdir(parents=True)
    place.write_text(content)
    assert costs_of(master, "direct").origin.startswith("defaults")


@pytest.mark.parametrize("bad", [-1.0, 1e9, float("nan"), "x"])
def test_absurd_factors_are_not_believed(master, cache, bad):
    ss.calibrate(master)
    place = _place(master, "direct")
    content = json.loads(place.read_text())
    content["prices"]["probe_s"] = bad
    place.write_text(json.dumps(content))
    assert costs_of(master, "direct").origin.startswith("defaults")


def test_a_profile_has_its_own(master):
    assert isinstance(ss.calibrate(disk="hdd-2007").disk, ProfileCosts)
    with pytest.raises(InvalidInputError, match="Choose direct"):
        ss.calibrate(disk="floppy")


def test_no_reads_are_not_believed(master, cache):
    ss.calibrate(master)
    place = _place(master, "direct")
    content = json.loads(place.read_text())
    assert costs_of(master, "direct").origin == "measured"
    place.write_text(json.dumps({**content, "reads": []}))
    assert costs_of(master, "direct").origin.startswith("defaults")


def test_a_tiny_master_does_not_stand_for_its_disk(tmp_path, cache):
    tiny = ss.build_master(pa.table({"id": list(range(50))}), tmp_path / "tiny", key="id")
    found = {(size, together) for size, together, _ in ss.calibrate(tiny).disk.curve}
    assert found == {(size, together) for size, together, _ in ss.calibrate().disk.curve}
