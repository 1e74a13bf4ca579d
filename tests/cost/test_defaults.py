"""Defaults that need no tuning: what the disk buffer of each disk loses against the best one for a budget."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from tests.cost.simulated import Described, counted, master_of

from semistream.cost.question import ask
from semistream.joins.registry import Settings

BUDGETS = [mb * 1_000_000 for mb in (20, 40, 80, 160, 320)]
BIG = 10_000_000  # rows: 1.2 GB
MOST_LOST = 0.03
BUFFERS = 2.0 ** np.arange(16, 28.1, 0.25)


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    return master_of(tmp_path_factory.mktemp("master") / "m", 50_000, "key", 1.0)


def lost(name, master, disk, memory_bytes, default):
    """By the model, against all sizes of the disk buffer; everything else as it is by default."""
    asked = ask(name, master, skew=1.0, sample=None, on=None, columns=None, disk=disk, parallel=None)
    rates = []
    for nbytes in BUFFERS:
        pages = max(1, round(nbytes / master.page_bytes))
        settings = replace(default, disk_buffer=pages * master.page_bytes)
        if "hybrid" in name:
            settings = replace(settings, block_pages=pages)
        found = asked.point(memory_bytes, settings, small_places=1 << 9)
        rates.append(found.rate_per_s if found is not None else 0.0)
    usual = asked.point(memory_bytes, default, small_places=1 << 9)
    return 1 - usual.rate_per_s / max(rates)


@pytest.mark.parametrize("memory_bytes", BUDGETS)
@pytest.mark.parametrize("disk", ["hdd-2007", "ssd-sata", "nvme", "object-store"])
def test_a_scan_loses_less_than_three_percent(master, disk, memory_bytes):
    assert lost("meshjoin", Described(master, BIG), disk, memory_bytes, Settings()) < MOST_LOST


@pytest.mark.parametrize("memory_bytes", BUDGETS)
def test_blocks_of_a_disk_with_one_arm_lose_less_than_three_percent(master, memory_bytes):
    default = Settings(parallel=1)
    assert lost("hybridjoin", Described(master, BIG), "hdd-2007", memory_bytes, default) < MOST_LOST


# A queue takes single pages as well as blocks, but not all that larger buffers would give: docs/concepts/cost-model.md has the figures.
MOST_LOST_TOGETHER = {"ssd-sata": 0.06, "nvme": 0.17}


@pytest.mark.parametrize("memory_bytes", [BUDGETS[0], BUDGETS[2], BUDGETS[4]])
@pytest.mark.parametrize("disk", MOST_LOST_TOGETHER)
def test_single_pages_together_lose_what_is_said(master, disk, memory_bytes):
    """Against buffers and blocks of all sizes, up to 256 blocks together."""
    many = Described(master, BIG)
    asked = ask("hybridjoin", many, skew=1.0, sample=None, on=None, columns=None, disk=disk, parallel=None)
    rates = [
        found.rate_per_s
        for pages, block in itertools.product((64, 256, 512, 1024, 2048, 4096), (1, 2, 4, 8, 16, 64, 256))
        if block <= pages
        and (found := asked.point(memory_bytes, Settings(disk_buffer=pages * 4096, block_pages=block)))
    ]
    usual = asked.point(memory_bytes, Settings())
    assert 1 - usual.rate_per_s / max(rates) < MOST_LOST_TOGETHER[disk]


def test_a_scan_by_default_counted_is_as_good_as_with_other_buffers(tmp_path):
    """A master of 48 MB, which can be run, within 20 MB."""
    master = master_of(tmp_path / "m", 400_000, "key", 1.0)
    runs = [Settings(), *(Settings(disk_buffer=pages * master.page_bytes) for pages in (40, 90, 200, 400))]
    rates = [
        counted("meshjoin", master, 1.0, BUDGETS[0], settings, warm=1, tuples=1).rate_per_s  # a cycle each
        for settings in runs
    ]
    assert rates[0] > (1 - MOST_LOST) * max(rates), rates
