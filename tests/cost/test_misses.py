"""Tuples that have no row: how many there are, and what they cost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.cost import PRICES, case_of, costs_of, count, predict
from semistream.cost.misses import Misses, check_misses, estimated_misses
from semistream.cost.skew import estimated_skew
from semistream.errors import InvalidInputError
from semistream.joins.opening import Opening
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join
from semistream.workload import Uniform, Zipf

ROWS = 40_000
DISK = "hdd-2007"
MISSES = 0.3
MEMORY = 500_000  # a tenth of the master
GAP = 64  # from a key of the master to the next: hardly a miss is asked for twice
SETTINGS = Settings(parallel=1, block_pages=1, disk_buffer=4096, front_share=0.3)
TOGETHER = Settings(disk_buffer=64 << 10, front_share=0.3)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """There are numbers between the keys."""
    ids = GAP * np.arange(ROWS, dtype=np.int64)
    table = pa.table({"id": ids, **{f"v{i}": ids * i for i in range(1, 15)}})
    return ss.build_master(table, tmp_path_factory.mktemp("master") / "m", key="id", page_bytes=4096)


def stream(skew, misses, batch_rows=2048, seed=3):
    """Without end; those without a row ask for the numbers between, all alike."""
    drawn, between, dice = Zipf(ROWS, skew), Uniform(ROWS * (GAP - 1)), np.random.default_rng(seed)
    start = 0
    while True:
        keys = GAP * drawn.draw(start, start + batch_rows, seed=seed)
        others = between.draw(start, start + batch_rows, seed=seed + 1)
        others = GAP * (others // (GAP - 1)) + 1 + others % (GAP - 1)
        keys = np.where(dice.random(batch_rows) < misses, others, keys)
        yield pa.record_batch({"id": keys, "n": np.arange(start, start + batch_rows)})
        start += batch_rows


def shape_of(master, **how):
    return shape_join(next(stream(0.0, 0.0)).schema, master, on="id", **how)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize(("skew", "misses"), [(0.0, 0.0), (0.0, 0.3), (1.0, 0.3), (1.0, 0.9), (0.5, 1.0)])
def test_they_are_told_from_a_sample(master, skew, misses, how):
    batch = next(stream(skew, misses, 1 << 15))
    found = estimated_misses(master, shape_of(master, how=how), batch)
    assert found.share == pytest.approx(misses, abs=0.09)  # three standard errors of 256 look-ups
    if misses < 0.5:  # of the others a sample tells the skew as if it were alone
        codes = shape_of(master).keyed(batch)[0].codes
        assert estimated_skew(codes, ROWS, found) == pytest.approx(skew, abs=0.2)


def test_null_keys_have_no_row_either(master):
    batch = pa.record_batch(
        {"id": pa.array([None, GAP, None, 2 * GAP], pa.int64()), "n": pa.array(range(4), pa.int64())}
    )
    assert estimated_misses(master, shape_of(master), batch).share == 0.5


def test_where_nothing_can_be_looked_up_none_are_known(master, tmp_path):
    heap = ss.build_master(pa.table({"id": [1, 2], "v": [1, 2]}), tmp_path / "heap", key="id", layout="heap")
    batch = next(stream(0.0, 1.0))
    assert estimated_misses(heap, shape_of(heap), batch) == Misses()
    assert estimated_misses(master, shape_of(master), batch.slice(0, 0)) == Misses()


@pytest.mark.parametrize("misses", [-0.1, 1.0, float("nan")])
def test_shares_that_make_no_sense(master, misses):
    with pytest.raises(InvalidInputError, match="misses="):
        check_misses(misses)
    with pytest.raises(InvalidInputError, match="misses="):
        ss.tune("hybridjoin", master, memory=MEMORY, skew=1.0, misses=misses, disk=DISK)


@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize(
    ("algorithm", "within"),
    [
        ("inlj", 0.02),
        ("cinlj", 0.05),
        ("meshjoin", 0.02),
        ("cmeshjoin", 0.05),
        ("hybridjoin", 0.05),
        ("chybridjoin", 0.25),
    ],
)
def test_the_models_know_what_they_cost(master, algorithm, within, skew):
    shape, settings = shape_of(master), TOGETHER if algorithm.endswith("inlj") else SETTINGS
    costs = costs_of(master, DISK)
    case = case_of(
        algorithm, master, shape, memory_bytes=MEMORY, settings=settings, skew=skew, disk_kind=DISK,
        disk=costs.disk, prices=costs.prices, misses=MISSES,
    )  # fmt: skip
    opening = Opening(algorithm, master, shape, MEMORY, DISK, 0.0, settings)
    warm, tuples = (40_000, 60_000) if "mesh" in algorithm else (20_000, 12_000)
    counted = count(opening, stream(skew, MISSES), warm=warm, tuples=tuples, prices=PRICES[DISK])
    assert predict(case).rate_per_s(case) == pytest.approx(counted.rate_per_s, rel=within)


def test_the_tuner_is_told_of_them(master):
    sure, unsure = (
        ss.tune("hybridjoin", master, memory=MEMORY, skew=0.0, misses=share, disk=DISK)
        for share in (0.0, 0.3)
    )
    assert unsure.rate_per_s < 0.7 * sure.rate_per_s
    seen = ss.tune(
        "hybridjoin", master, memory=MEMORY, sample=next(stream(0.0, 0.3, 1 << 14)), on="id", disk=DISK
    )
    assert seen.rate_per_s < 0.8 * sure.rate_per_s


def test_auto_takes_a_scan_where_every_miss_would_be_a_read(master):
    """With half of the tuples: counted, the scan is 1.4 times as fast then, and with three tenths both are alike."""
    few, many = (
        ss.join(stream(0.5, share, 8192), master, on="id", memory=400_000, disk="ssd-sata")
        for share in (0.0, 0.5)
    )
    next(few), next(many)
    assert few.stats.plan.startswith("hybridjoin")
    assert many.stats.plan.startswith("meshjoin")
    assert "have no row" in many.stats.plan
    assert "have no row" not in few.stats.plan


def test_long_strings_beside_the_key_do_not_matter(master):
    """Only keys are looked up: the tuples may be larger than what is set aside for it."""
    sample = pa.record_batch({"id": [0, GAP, 1], "text": ["x" * 5_000_000] * 3})
    shape = shape_join(sample.schema, master, on="id")
    assert estimated_misses(master, shape, sample).share == pytest.approx(1 / 3)
    joined = ss.join([sample], master, on="id", memory="64MB", disk=DISK)
    assert sum(map(len, joined)) == 2
