"""The settings of a case, as the papers chose theirs: by the cost model.

Scans and the hybrid family are tuned by the product's tuner, all sizes at once. With a front stage before them the share of the hot
rows is one of a few, and the join behind is tuned for what is left to it.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from semistream.experiments.case import INDEX_LOOPS, Case
from semistream.experiments.pricing import best_settings, predicted_rate
from semistream.joins import Settings
from semistream.joins.registry import SCANNING
from semistream.master import Master

SCAN_SHARE = (
    0.03  # of the memory, where no model knows the stream: DEFAULTS finds that the size hardly matters
)
BLOCK_BYTES = 1.5e6  # likewise; reading takes about as long as getting there
_FRONT_SHARES = (0.02, 0.08, 0.15, 0.25, 0.4)
_FRONT_SHARE = 0.35  # the product's own, where no model knows the stream
_LOOKED_UP_PAGES = 16  # a disk with one arm gains nothing by more
_LOOKED_UP_FRONT_SHARE = 0.9  # an index loop needs no window to speak of
_PLAIN = {"cmeshjoin": "meshjoin", "chybridjoin": "hybridjoin"}  # tuned for the memory that is left to them


def tuned_settings(case: Case, master: Master, first: pa.RecordBatch) -> Settings:
    """The best ones; or, for X-HYBRIDJOIN untuned, HYBRIDJOIN's disk buffer and as much again pinned."""
    page = case.master.page_bytes
    if case.algorithm in INDEX_LOOPS:
        pages = max(1, min(_LOOKED_UP_PAGES, case.memory_bytes // 8 // page))
        return Settings(disk_buffer=pages * page, front_share=_LOOKED_UP_FRONT_SHARE)
    if case.algorithm in _PLAIN:
        fronted = [_fronted(case, master, first, share) for share in _FRONT_SHARES]
        return _best_of(case, master, first, fronted) or usual_settings(case)
    if case.tuning == "equal parts":
        block = tuned_settings(replace(case, algorithm="hybridjoin", tuning="best"), master, first)
        return replace(block, front_share=(block.disk_buffer or 0) / case.memory_bytes)
    return best_settings(case, master, first) or usual_settings(case)


def _best_of(case: Case, master: Master, first: pa.RecordBatch, tried: list[Settings]) -> Settings | None:
    """The one that the model likes best; None where it does not know such a stream."""
    rates = [predicted_rate(case, settings, master, first) for settings in dict.fromkeys(tried)]
    known = [
        (rate, settings)
        for rate, settings in zip(rates, dict.fromkeys(tried), strict=True)
        if rate is not None
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _block(case: Case, nbytes: float) -> Settings:
    page = case.master.page_bytes
    pages = max(1, round(min(nbytes * case.scale, case.memory_bytes / 8) / page))
    return Settings(disk_buffer=pages * page, block_pages=pages, parallel=1, front_share=_FRONT_SHARE)


def _fronted(case: Case, master: Master, first: pa.RecordBatch, share: float) -> Settings:
    """So much for hot rows, and the join behind tuned for what is left to it."""
    left = round((1 - share) * case.memory_bytes)
    behind = replace(case, algorithm=_PLAIN[case.algorithm], memory_bytes=left)
    return replace(tuned_settings(behind, master, first), front_share=share)


def usual_settings(case: Case) -> Settings:
    """Where the models do not know such a stream: many rows a key, or popularity that moves."""
    if case.algorithm not in SCANNING:
        return _block(case, BLOCK_BYTES)
    page = case.master.page_bytes
    buffer = max(page, int(SCAN_SHARE * case.memory_bytes) // page * page)
    return Settings(disk_buffer=buffer, front_share=_FRONT_SHARE)
