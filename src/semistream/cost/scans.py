"""MESHJOIN and R-MESHJOIN (MESH, eq. 2): a whole cycle, so that the last read of it may be short.

    c_loop = c_IO(b) + w (c_E + c_S + c_A) + b (v_P / v_R) c_H + sigma b (v_P / v_R) c_O

Where the paper is loose: it takes b to divide N_R, and so every read to cost c_IO(b); and its window holds w N_R / b tuples
exactly. Here a cycle has ceil(N_R / b) reads, the last of them short, and lets in what the window holds, or w a read if
that is less. The hash table's cost does not depend on the stream's skew, so neither does the rate (M5).
"""

from __future__ import annotations

from semistream.cost.case import Case, Loop


def reads_per_cycle(case: Case) -> int:
    """Reads of a cycle: k = N_R / b, rounded up."""
    return -(-case.pages // case.division.pages_at_once)


def tuples_per_cycle(case: Case) -> float:
    """All that the window holds; less where w is set lower."""
    window = float(case.division.window_tuples)
    if case.settings.per_step is None or case.algorithm == "r-meshjoin":
        return window
    return min(window, float(case.settings.per_step * reads_per_cycle(case)))


def cycle_io_s(case: Case) -> float:
    """c_IO over one scan: an arm that goes back to the beginning, and on to every further file; slower where others join meanwhile."""
    b = min(case.division.pages_at_once, case.pages)
    full, rest = divmod(case.pages, b)
    one = b * case.page_bytes
    seconds = full * case.disk.scan_s(one, case.page_bytes, 0)
    if rest:
        seconds += case.disk.scan_s(rest * case.page_bytes, case.page_bytes, 0)
    move = case.disk.scan_s(one, case.page_bytes, 1) - case.disk.scan_s(one, case.page_bytes, 0)
    slower = case.disk.beside(one) if case.overlapped else 1.0
    return slower * (seconds + case.files * move)


def loop(case: Case, *, front_share: float = 0.0, front_probes: bool = False) -> Loop:
    """One cycle. With a front stage, the tuples it does not answer are those that wait."""
    waited = tuples_per_cycle(case)
    tuples = waited / max(1.0 - front_share, 1e-9)
    return Loop(
        tuples=tuples,
        io_s=cycle_io_s(case),
        loaded=float(case.master_rows),
        probes=float(case.master_rows),
        front_probes=tuples if front_probes else 0.0,
        waited=waited,
        front_share=front_share,
        steps=float(reads_per_cycle(case)),
    )
