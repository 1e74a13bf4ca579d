"""Optimised X-HYBRIDJOIN (OPT-X, section 4).

X-HYBRIDJOIN's popular rows move into a hash table of their own, H_R, which is filled once with the first rows of the master and
never changes. Two independent phases: arriving tuples probe H_R and, if they meet their row there, are answered without ever entering the
window (stream-probing); the others wait for HYBRIDJOIN (disk-probing). With `front_share=0` there is no H_R, and
stream-probing is off.

Where we deviate: H_R is the front stage with nobody who reports to it, so it is probed by the same kernels; where keys repeat, a key is in it
with all its rows or not at all.

Cost of an iteration: c_IO(k) + d c_H + w_S (c_O + c_E + c_S + c_A) + w_N (c_H + c_O + c_S) (eq. 2), which is loose: the w_S tuples
look into H_R too, and find nothing there, so they cost w_S c_H more.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.frontstage import FrontStage
from semistream.joins.reader import MasterReader


def fill_hot_rows(stage: FrontStage, reader: MasterReader) -> None:
    """Load the first rows of the master into H_R, for good."""
    for pages in reader.steps():
        if not stage.hot.table.room:
            return
        loaded = reader.load(pages)
        rows = np.arange(loaded.found.rows, dtype=np.int64)
        rows = rows if stage.complete is None else rows[stage.complete(loaded, rows)]
        stage.fill(loaded, rows)
