"""The papers' set-ups: their masters, streams and budgets, at any scale. Sizes are given as the papers give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semistream.experiments.case import INDEX_LOOPS, Case
from semistream.experiments.data import MasterSpec, StreamSpec
from semistream.experiments.keyonly import KEY_ONLY_PAGE
from semistream.experiments.scale import Scale
from semistream.joins import Settings
from semistream.joins.registry import SCANNING

MB = 1e6  # MESH and DEFAULTS: 21 MB are 5 % of 3.5 million rows of 120 bytes
MIB = float(1 << 20)  # the others: 100 million such rows are 11.18 GB
MESH_ROWS, HYBRID_ROWS, CACHING_ROWS = 3.5e6, 2e6, 100e6
MESH_CLOUD_ROWS, CACHING_CLOUD_ROWS = 10e6, 20e6
TPCH_ROWS = 20e6
ROW_BYTES = 120
_PAGE, _LOOKED_UP_PAGE, _CACHING_PAGE = 4096, 16384, 8192
# Windows. What a scan does in one round it does in the next; whose reads are chosen does otherwise each time.
_WARM = {"cmeshjoin": 4.0, "meshjoin": 1.02, "r-meshjoin": 1.5}  # others 5
_MEASURED = {"cmeshjoin": 1.0, "meshjoin": 1.0, "r-meshjoin": 1.0}


def mesh(
    scale: Scale,
    algorithm: str,
    *,
    memory_bytes: float,
    z_stream: float = 0.5,
    z_master: float = 0.0,
    **more: Any,
) -> Case:
    """MESH section 4.1 and DEFAULTS section 4.2: 3.5 million rows. MESHJOIN needs no index, the index loop one."""
    looks_up = algorithm in INDEX_LOOPS
    master = MasterSpec(
        round(MESH_ROWS * scale.mesh),
        ROW_BYTES,
        _LOOKED_UP_PAGE if looks_up else _PAGE,
        "key" if looks_up else "heap",
        key_skew=z_master,
    )
    return _case(algorithm, master, StreamSpec(z_stream, "in-order"), memory_bytes, scale.mesh, **more)


def cloud_reports(
    scale: Scale, algorithm: str, *, rows: float, row_bytes: int, memory_share: float, **more: Any
) -> Case:
    """Cloud reports on both sides: 32 bytes in MESH, 128 in CACHING."""
    master = MasterSpec(round(rows * scale.cloud), row_bytes, _PAGE, kind="cloud")
    memory = memory_share * rows * row_bytes
    return _case(algorithm, master, StreamSpec(kind="cloud"), memory, scale.cloud, **more)


def hybrid(
    scale: Scale,
    algorithm: str,
    *,
    memory_bytes: float,
    rows: float = HYBRID_ROWS,
    exponent: float = 1.0,
    **more: Any,
) -> Case:
    """X-HYBRID section 5.1 and OPT-X section 4.4: the master is in the order of popularity."""
    master = MasterSpec(round(rows * scale.hybrid), ROW_BYTES, _PAGE)
    return _case(algorithm, master, StreamSpec(exponent, "in-order"), memory_bytes, scale.hybrid, **more)


def caching(
    scale: Scale,
    algorithm: str,
    *,
    memory_share: float = 0.1,
    rows: float = CACHING_ROWS,
    memory_of: float = CACHING_ROWS,
    exponent: float = 1.0,
    rows_per_key: int = 1,
    interval_rows: float = 0,
    **more: Any,
) -> Case:
    """CACHING section 5.1: popular rows are anywhere in the master. `memory_share` is of `memory_of` rows.

    At the paper's size masters are key-only; but an index loop reads a page a tuple, so its pages stay small and whole.
    """
    scans = algorithm in SCANNING and rows_per_key == 1
    key_only = scale.key_only and algorithm not in INDEX_LOOPS
    master = MasterSpec(
        round(rows * scale.caching),
        ROW_BYTES,
        KEY_ONLY_PAGE if key_only else _CACHING_PAGE,
        "heap" if scans else "key",
        rows_per_key=rows_per_key,
        payload="holes" if key_only else "stored",
    )
    stream = StreamSpec(exponent)
    if interval_rows:
        stream = StreamSpec(exponent, kind="temporal", interval_rows=round(interval_rows * scale.caching))
    return _case(algorithm, master, stream, memory_share * memory_of * ROW_BYTES, scale.caching, **more)


def tpch_orders(
    scale: Scale, algorithm: str, *, memory_share: float, exponent: float = 0.0, **more: Any
) -> Case:
    """CACHING section 5.1: Orders into Customer, of 223 bytes. Where there is an exponent, customers are drawn by it and not by dbgen."""
    master = MasterSpec(round(TPCH_ROWS * scale.caching), 223, _CACHING_PAGE, kind="tpch")
    memory = memory_share * TPCH_ROWS * master.row_bytes
    return _case(algorithm, master, StreamSpec(exponent, kind="tpch"), memory, scale.caching, **more)


def scan_buffer(case: Case, nbytes: float, *, front_share: float | None = None) -> Case:
    """The case with a disk buffer of so many bytes at the paper's size."""
    return replace(case, settings=Settings(disk_buffer=_whole_pages(case, nbytes), front_share=front_share))


def block(case: Case, nbytes: float, *, front_share: float | None = None) -> Case:
    """The case with so many bytes read at a time, at the paper's size."""
    size = _whole_pages(case, nbytes)
    pages = size // case.master.page_bytes
    settings = Settings(disk_buffer=size, block_pages=pages, parallel=1, front_share=front_share)
    return replace(case, settings=settings)


def _whole_pages(case: Case, nbytes: float) -> int:
    page = case.master.page_bytes
    return max(1, round(nbytes * case.scale / page)) * page


def _case(
    algorithm: str, master: MasterSpec, stream: StreamSpec, memory_bytes: float, factor: float, **more: Any
) -> Case:
    others = 15.0 if factor < 1 else 3.0  # windows of the papers' sizes are large
    lengths = {"warm": _WARM.get(algorithm, 5.0), "measured": _MEASURED.get(algorithm, others)}
    return Case(algorithm, master, stream, round(memory_bytes * factor), factor, **{**lengths, **more})
