"""The settings of a case, as the papers chose theirs: by the cost model."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from semistream.experiments.case import INDEX_LOOPS, Case
from semistream.experiments.pricing import best_settings
from semistream.joins import Settings
from semistream.joins.registry import SCANNING
from semistream.master import Master

_SCAN_SHARE = (
    0.03  # of the memory, where no model knows the stream: DEFAULTS finds that the size hardly matters
)
_BLOCK_BYTES = 1.5e6  # at the paper's size: reading takes about as long as getting there
_FRONT_SHARE = 0.35  # the product's own; C11 is about what another would bring
_PLAIN = {"cmeshjoin": "meshjoin", "chybridjoin": "hybridjoin"}  # tuned for the memory that is left to them
_LOOKED_UP_PAGES = 16  # a disk with one arm gains nothing by more
_LOOKED_UP_FRONT_SHARE = 0.9  # an index loop needs no window to speak of


def tuned_settings(case: Case, master: Master, first: pa.RecordBatch) -> Settings:
    """The best ones; or, for X-HYBRIDJOIN untuned, HYBRIDJOIN's disk buffer and as much again pinned."""
    if case.algorithm in INDEX_LOOPS:
        pages = max(1, min(_LOOKED_UP_PAGES, case.memory_bytes // 8 // case.master.page_bytes))
        return Settings(disk_buffer=pages * case.master.page_bytes, front_share=_LOOKED_UP_FRONT_SHARE)
    if case.tuning == "equal parts":
        plain = tuned_settings(replace(case, algorithm="hybridjoin", tuning="best"), master, first)
        return replace(plain, front_share=(plain.disk_buffer or 0) / case.memory_bytes)
    if case.algorithm in _PLAIN:
        behind = replace(
            case, algorithm=_PLAIN[case.algorithm], memory_bytes=round((1 - _FRONT_SHARE) * case.memory_bytes)
        )
        return replace(tuned_settings(behind, master, first), front_share=_FRONT_SHARE)
    return best_settings(case, master, first) or _usual(case)


def _usual(case: Case) -> Settings:
    """Where the models do not know such a stream: many rows a key, or popularity that moves."""
    page = case.master.page_bytes
    if case.algorithm in SCANNING:
        buffer = max(page, int(_SCAN_SHARE * case.memory_bytes) // page * page)
        return Settings(disk_buffer=buffer, front_share=_FRONT_SHARE)
    pages = max(1, round(min(_BLOCK_BYTES * case.scale, case.memory_bytes / 8) / page))
    return Settings(disk_buffer=pages * page, block_pages=pages, parallel=1, front_share=_FRONT_SHARE)
