"""The papers' claims that `semistream reproduce` checks, one record each, in our own words.

A claim is about an ordering, a shape, an optimum or a number. Where the paper gives a number it is in `numbers`, as printed
there; a study that compares with it has it as PAPER_... of its own.
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
            "MESHJOIN serves about ten times as many tuples as an index nested loop, at every budget from 0.1 % to 10 % of the master",
            "0.5 %: 3,500 against 274 tuples/s; 1 %: 6,000; 10 %: 26,000",
        ),
        Claim(
            "M2", "MESH", "more memory makes MESHJOIN faster, each byte by less than the one before", "as M1"
        ),
        Claim(
            "M3",
            "MESH",
            "the cost model follows the measured rate over the disk buffer's size within 21 MB: high for small buffers, falling for large ones",
        ),
        Claim(
            "M4",
            "MESH",
            "the more skewed the master's keys, the slower both algorithms; MESHJOIN stays ahead",
            "MESHJOIN's minimum: 9,000 tuples/s",
        ),
        Claim("M5", "MESH", "the skew of the stream hardly changes the rate of either algorithm"),
        Claim(
            "M6",
            "MESH",
            "on cloud reports (many rows a key on both sides, 32 bytes) MESHJOIN is far ahead from 1 % to 10 % of memory",
        ),
        Claim(
            "M7",
            "MESH",
            "the least memory for a given rate and the best rate within a given memory each have one best disk buffer, inside the range",
        ),
        Claim(
            "D1",
            "DEFAULTS",
            "the rate over the disk buffer's size has a knee and then levels off, within 80 MB",
        ),
        Claim(
            "D2",
            "DEFAULTS",
            "the best disk buffer grows with the budget",
            "0.93 MB at 20 MB, 1.35 at 40, 1.91 at 80, 2.63 at 160",
        ),
        Claim(
            "D3",
            "DEFAULTS",
            "one fixed disk buffer, the best one for 20 MB, loses next to nothing at larger budgets",
            "0.4 % at 40 MB, 1.17 % at 80, 1.78 % at 160; under 3 % up to 320",
        ),
        Claim("D4", "DEFAULTS", "reading costs less per page the larger the disk buffer, until it is flat"),
        Claim(
            "D5",
            "DEFAULTS",
            "predicted and measured rate agree, over the disk buffer's size and over the budget",
        ),
        Claim(
            "X1",
            "X-HYBRID",
            "at Zipf 1, X-HYBRIDJOIN beats HYBRIDJOIN, which beats R-MESHJOIN and MESHJOIN modestly, from 50 to 250 MB",
            "about 33 % of the reading is saved by the pinned pages",
        ),
        Claim(
            "X2",
            "X-HYBRID",
            "as the master grows from 0.5 to 8 million rows, HYBRIDJOIN falls further behind X-HYBRIDJOIN",
            "from 70 % of its rate to 50 %",
        ),
        Claim(
            "X3",
            "X-HYBRID",
            "without skew X-HYBRIDJOIN is behind MESHJOIN by a constant factor; with any skew it is ahead, the more the larger the exponent",
        ),
        Claim(
            "X4",
            "X-HYBRID",
            "the tuples that pinned pages answer in 4,000 iterations grow with the budget",
            "0.4 million at 50 MB, more than 2 million at 250 MB",
        ),
        Claim(
            "X5",
            "X-HYBRID",
            "the rate has a best size of the swappable and of the pinned part, both inside the range",
        ),
        Claim("X6", "X-HYBRID", "tuned X-HYBRIDJOIN beats the untuned one for every master and every budget"),
        Claim("X7", "X-HYBRID", "the cost model predicts both tuning curves", "0.5 % and 0.6 % apart"),
        Claim(
            "O1",
            "OPT-X",
            "Optimised X-HYBRIDJOIN beats X-HYBRIDJOIN, and that the others, for every master and every budget",
        ),
        Claim(
            "O2",
            "OPT-X",
            "disk buffer and hot rows each have a best size inside the range, and the cost model agrees",
            "0.38 % and 0.33 % apart",
        ),
        Claim("O3", "OPT-X", "predicted and measured cost agree over the budget"),
        Claim(
            "C1",
            "CACHING",
            "at Zipf 1 the front stage multiplies the rate, from 1 % to 10 % of memory",
            "CMESHJOIN 4x at 1 %, 6.5x at 10 %; CHYBRIDJOIN 2.4x, 2.8x",
        ),
        Claim(
            "C2",
            "CACHING",
            "so it does for masters of 20 to 100 million rows at the same memory",
            "CMESHJOIN 4.7x to 6.5x; CHYBRIDJOIN 3x to 2.8x",
        ),
        Claim("C3", "CACHING", "CINLJ beats INLJ, and both are far behind all others", "2.5x"),
        Claim(
            "C4",
            "CACHING",
            "over the skew from 0 to 1 the cached forms win from moderate skew on, and lose a little without any",
        ),
        Claim(
            "C5",
            "CACHING",
            "on TPC-H (Orders into Customer) the front stage helps as well, at 1 % of memory",
            "CMESHJOIN 3.7x, CHYBRIDJOIN 2.5x",
        ),
        Claim("C6", "CACHING", "on cloud reports the cached forms are ahead at every budget"),
        Claim(
            "C7",
            "CACHING",
            "when the stream asks for one part of the keys after the other, CMESHJOIN leads MESHJOIN, the more so the more rows a key has",
            "6.5x for 1 row a key, 10x for 20",
        ),
        Claim(
            "C8",
            "CACHING",
            "a tuple spends far less time in the join with the front stage, the more so the larger the master",
        ),
        Claim(
            "C9",
            "CACHING",
            "under shedding, the tuple that chooses what is read should stand inside the queue, not at its old end",
            "15 % from the young end",
        ),
        Claim(
            "C10",
            "CACHING",
            "shedding tuned that way beats untuned shedding, and by far shedding tuples before they were considered",
            "+33 %; 3.1x",
        ),
        Claim(
            "C11",
            "CACHING",
            "the front stage has a best share of the memory, and even far too large a one beats none",
            "15 %; still ahead at 75 %",
        ),
        Claim(
            "C12",
            "CACHING",
            "the rate through the front stage rises as the admission threshold falls from 10, then levels off",
        ),
        Claim("C13", "CACHING", "the disk buffer of CMESHJOIN has a best size inside the range"),
        Claim(
            "C14",
            "CACHING",
            "the front stage serves about half of the stream at 10 % of memory and Zipf 1",
            "51 %",
        ),
        Claim(
            "C15",
            "CACHING",
            "the master may double while the join runs: answers stay right, and the rate falls only as it must",
        ),
        Claim("C16", "CACHING", "predicted and measured cost agree for every algorithm"),
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


def as_markdown() -> str:
    """The table of facts: docs/reproduction/claims.md."""
    lines = [
        "# What the papers claim\n",
        "Every quantitative or ordering claim of the five papers, as `semistream reproduce` checks it. "
        "Short names are those of [docs/algorithms](../algorithms/README.md#the-papers). This page is made from "
        "`experiments/claims.py`; what came of each claim is in [the report](README.md).\n",
        "| id | paper | claim | numbers in the paper |",
        "|---|---|---|---|",
    ]
    lines += [f"| {c.id} | {c.paper} | {c.says} | {c.numbers or 'none'} |" for c in CLAIMS.values()]
    return "\n".join(lines) + "\n"
