"""The papers' claims that `semistream reproduce` checks, one record each, as the table of facts has them.

The table is docs/reproduction/claims.md; a test holds both against each other. A claim is about an ordering, a shape, an optimum or a number.
Where the paper gives a number it is in `numbers`; a study that compares with it has it as PAPER_... of its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from semistream.errors import InvalidInputError


@dataclass(frozen=True)
class Claim:
    """One row of the table: what a paper says it measured."""

    id: str
    paper: str  # short name, as in docs/algorithms
    says: str
    numbers: str = ""  # as printed; empty where the paper shows a curve alone


CLAIMS: dict[str, Claim] = {
    claim.id: claim
    for claim in (
        Claim(
            "M1",
            "MESH",
            "MESHJOIN beats INL by about 10x at every memory budget 0.1 %..10 % of R (R 3.5 M tuples, stream Zipf 0.5, key unique)",
            "0.5 %: 274 vs 3,500 t/s; 1 %: 6,000; 10 %: 26,000",
        ),
        Claim(
            "M2",
            "MESH",
            "rate grows with memory, with diminishing returns",
            "as M1",
        ),
        Claim(
            "M3",
            "MESH",
            "the cost model tracks the measured rate over b at a fixed 21 MB",
            "curve: high for small b, drops as b grows",
        ),
        Claim(
            "M4",
            "MESH",
            "both algorithms slow down as master skew z_R goes 0.1..1; MESHJOIN stays ahead",
            "MESHJOIN minimum 9,000 t/s",
        ),
        Claim(
            "M5",
            "MESH",
            "stream skew z_S hardly changes either algorithm",
        ),
        Claim(
            "M6",
            "MESH",
            "real-life data (cloud reports, 10 M tuples each side, 32 B, domain 0..36000, many-to-many): MESHJOIN well ahead, 1 %..10 %",
        ),
        Claim(
            "M7",
            "MESH",
            "tuning, both objectives: least memory for a rate and best rate for a memory each have one interior optimum in b",
            "figure 5",
        ),
        Claim(
            "D1",
            "DEFAULTS",
            "rate over disk-buffer size has a knee, then saturates (80 MB budget)",
        ),
        Claim(
            "D2",
            "DEFAULTS",
            "the optimal disk buffer grows with the budget",
            "0.93 MB at 20 MB; 1.35 at 40; 1.91 at 80; 2.63 at 160",
        ),
        Claim(
            "D3",
            "DEFAULTS",
            "a fixed default buffer loses almost nothing",
            "0.4 % at 40 MB; 1.17 % at 80; 1.78 % at 160; < 3 % up to 320",
        ),
        Claim(
            "D4",
            "DEFAULTS",
            "I/O cost per page falls with buffer size, then is flat",
        ),
        Claim(
            "D5",
            "DEFAULTS",
            "predicted and measured cost agree, over b and over M",
        ),
        Claim(
            "X1",
            "X-HYBRID",
            "Zipf 1, R 2 M, 50..250 MB: X-HYBRIDJOIN > HYBRIDJOIN > R-MESHJOIN > MESHJOIN; HYBRIDJOIN's lead is modest",
            "about 33 % of I/O saved by the non-swappable part",
        ),
        Claim(
            "X2",
            "X-HYBRID",
            "R 0.5..8 M at fixed memory: HYBRIDJOIN falls from 70 % to 50 % of X-HYBRIDJOIN",
            "70 %, 50 %",
        ),
        Claim(
            "X3",
            "X-HYBRID",
            "exponent 0: X-HYBRIDJOIN behind MESHJOIN by a constant factor; ahead for every exponent > 0, growing with it",
        ),
        Claim(
            "X4",
            "X-HYBRID",
            "tuples served by the non-swappable part in 4,000 iterations, R 2 M",
            "0.4 M at 50 MB; > 2 M at 250 MB",
        ),
        Claim(
            "X5",
            "X-HYBRID",
            "rate over (swappable, non-swappable) has an interior optimum in both",
            "figure 4",
        ),
        Claim(
            "X6",
            "X-HYBRID",
            "tuned beats untuned for every R and every memory",
        ),
        Claim(
            "X7",
            "X-HYBRID",
            "the cost model predicts the tuning curves",
            "0.5 % and 0.6 % deviation",
        ),
        Claim(
            "O1",
            "OPT-X",
            "Optimised X-HYBRIDJOIN > X-HYBRIDJOIN > the rest, for every R and every memory",
        ),
        Claim(
            "O2",
            "OPT-X",
            "interior optimum in disk buffer and in H_R; cost model agrees",
            "0.38 % and 0.33 % deviation",
        ),
        Claim(
            "O3",
            "OPT-X",
            "predicted and measured cost agree over memory",
        ),
        Claim(
            "C1",
            "CACHING",
            "Zipf 1, R 100 M, memory 1 %..10 %: the front stage multiplies the rate",
            "CMESHJOIN 4x at 1 %, 6.5x at 10 %; CHYBRIDJOIN 2.4x, 2.8x",
        ),
        Claim(
            "C2",
            "CACHING",
            "R 20..100 M at fixed memory",
            "CMESHJOIN 4.7x to 6.5x; CHYBRIDJOIN 3x to 2.8x",
        ),
        Claim(
            "C3",
            "CACHING",
            "CINLJ beats INLJ, and both are far behind the others",
            "2.5x",
        ),
        Claim(
            "C4",
            "CACHING",
            "skew 0..1: cached variants win from moderate skew on; at 0 they lose a little",
        ),
        Claim(
            "C5",
            "CACHING",
            "TPC-H (Orders stream, Customer master), 1 % memory",
            "3.7x and 2.5x",
        ),
        Claim(
            "C6",
            "CACHING",
            "real-life data, all memory settings: cached variants ahead",
        ),
        Claim(
            "C7",
            "CACHING",
            "temporal locality: 25 intervals, N values repeated; CMESHJOIN over MESHJOIN",
            "6.5x at N = 1; 10x at N = 20",
        ),
        Claim(
            "C8",
            "CACHING",
            "processing time per tuple is far lower with the front stage, the more so the larger R",
        ),
        Claim(
            "C9",
            "CACHING",
            "under shedding, the best look-up position in the queue is inside it, not at the end",
            "15 %",
        ),
        Claim(
            "C10",
            "CACHING",
            "tuned shedding over untuned; over MESHJOIN-style upfront shedding",
            "+33 %; 3.1x",
        ),
        Claim(
            "C11",
            "CACHING",
            "front-stage share of memory: optimum, and still ahead of none when far too large",
            "15 %; still ahead at 75 %",
        ),
        Claim(
            "C12",
            "CACHING",
            "rate through the front stage over the admission threshold: rises as it falls from 10, then levels",
        ),
        Claim(
            "C13",
            "CACHING",
            "disk-buffer size: interior optimum",
        ),
        Claim(
            "C14",
            "CACHING",
            "share of the stream served by the front stage at 10 % memory, Zipf 1",
            "51 %",
        ),
        Claim(
            "C15",
            "CACHING",
            "master doubled while running: correct, and only the expected loss of rate",
        ),
        Claim(
            "C16",
            "CACHING",
            "predicted and measured cost agree for every algorithm",
        ),
    )
}


def chosen_claims(names: Sequence[str]) -> tuple[str, ...]:
    """The claims of these names, in the table's order; all of them where none is named. Commas part names too."""
    names = [part for name in names for part in name.replace(",", " ").split() or [name]]
    wanted = {name.upper() for name in names}
    for name in names:
        if name.upper() not in CLAIMS:
            near = difflib.get_close_matches(name.upper(), CLAIMS, n=1, cutoff=0.5)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise InvalidInputError(
                f"reproduce {name}",
                found="no such claim",
                hint=f"{meant}There are {', '.join(CLAIMS)}; name none to run all.",
            )
    return tuple(name for name in CLAIMS if not wanted or name in wanted)
