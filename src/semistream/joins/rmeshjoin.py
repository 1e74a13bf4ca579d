"""R-MESHJOIN (Naeem, Dobbie, Weber and Alam, DOLAP 2010; known here by its abstract and by X-HYBRID and OPT-X, section 2).

MESHJOIN's queue has as many partitions as the scan has iterations, of w tuples each, so the window, the disk buffer and the size of
the master depend on each other. R-MESHJOIN removes that: tuples come in whenever there is room, each remembers how many pages
had been read when it came, and b is chosen for the disk alone.

Our MESHJOIN remembers that of every tuple anyway, so that b and w may change; what is left of the difference is w. The reading is
explained in docs/algorithms/r-meshjoin.md.

Cost of an iteration: MESHJOIN's, with a w that varies (MESH eq. 2).
"""

from __future__ import annotations

PER_STEP = None  # w of the cyclic scan in meshjoin.py: what there is room for comes in
