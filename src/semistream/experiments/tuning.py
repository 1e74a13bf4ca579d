"""The settings of a case, as the papers chose theirs: all free sizes at once, by the cost model.

Where no model knows the stream (many rows a key, popularity that moves), sizes are those that the papers found to be near the
best, and a study that is about the front stage tries several shares of it.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from semistream.experiments.case import INDEX_LOOPS, Case
from semistream.experiments.pricing import best_settings
from semistream.joins import Settings
from semistream.joins.registry import SCANNING
from semistream.master import Master

_SCAN_SHARE = 0.03  # of the memory: DEFAULTS finds that the size hardly matters
_BLOCK_BYTES = 1.5e6  # at the paper's size: reading takes about as long as getting there
_FRONT_SHARE = 0.35  # the product's own
_LOOKED_UP_PAGES = 16  # a disk with one arm gains nothing by more
_LOOKED_UP_FRONT_SHARE = 0.9  # an index loop needs no window to speak of


def tuned_settings(case: Case, master: Master, first: pa.RecordBatch) -> Settings:
    """The best ones; or, for X-HYBRIDJOIN untuned, HYBRIDJOIN's disk buffer and as much again pinned."""
    page = case.master.page_bytes
    if case.algorithm in INDEX_LOOPS:
        pages = max(1, min(_LOOKED_UP_PAGES, case.memory_bytes // 8 // page))
        return Settings(disk_buffer=pages * page, front_share=_LOOKED_UP_FRONT_SHARE)
    if case.tuning == "equal parts":
        block = tuned_settings(replace(case, algorithm="hybridjoin", tuning="best"), master, first)
        return replace(block, front_share=(block.disk_buffer or 0) / case.memory_bytes)
    return best_settings(case, master, first) or usual_settings(case)


def usual_settings(case: Case) -> Settings:
    """Where the models do not know such a stream."""
    page = case.master.page_bytes
    if case.algorithm in SCANNING:
        buffer = max(page, int(_SCAN_SHARE * case.memory_bytes) // page * page)
        return Settings(disk_buffer=buffer, front_share=_FRONT_SHARE)
    pages = max(1, round(min(_BLOCK_BYTES * case.scale, case.memory_bytes / 8) / page))
    return Settings(disk_buffer=pages * page, block_pages=pages, parallel=1, front_share=_FRONT_SHARE)
