"""The settings of a case, as the papers chose theirs."""

from __future__ import annotations

from dataclasses import replace

from semistream.experiments.case import INDEX_LOOPS, Case
from semistream.joins import Settings
from semistream.joins.registry import SCANNING
from semistream.master import Master

_BLOCK_BYTES = 1.5e6


def tuned_settings(case: Case, master: Master) -> Settings:
    """The best ones, or both parts of X-HYBRIDJOIN's disk buffer equal."""
    if case.algorithm in INDEX_LOOPS:
        return Settings()
    page = case.master.page_bytes
    if case.algorithm in SCANNING:
        return Settings(disk_buffer=max(page, int(0.03 * case.memory_bytes)))
    pages = max(1, round(min(_BLOCK_BYTES * case.scale, case.memory_bytes / 8) / page))
    found = Settings(disk_buffer=pages * page, block_pages=pages, parallel=1)
    if case.tuning == "equal parts":
        return replace(found, front_share=pages * page / case.memory_bytes)
    del master
    return found
