"""How large a run is, and why a smaller one gives the same rates.

Shrink a master, the memory, the disk buffer and what an access costs before its first byte (seek, rotation, command) all
by the same factor s. Then an access reads s times the bytes in s times the time, and s times as many waiting tuples
share it: tuples per second stay as they were, and so do probes and removals per tuple. So a study of 100 million rows
can be run with one million on a disk whose arm is a hundred times as quick, and its rates are those of the full size.
Four things do not follow: a page cannot be smaller than 4 KiB; a Zipf law over fewer keys is a little flatter at its head; a
window of less than 16,384 tuples spends 16 bytes more on each, for the pairs that a match finds, so rates at small scales
are up to a quarter lower; and the tuple that chooses what HYBRIDJOIN reads is one an access, however many others the access
answers: where those are few at a small scale, HYBRIDJOIN is as much faster as one is more beside them.

An index nested loop reads one page a tuple whatever the size of the master, so for it nothing but the master shrinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semistream.errors import InvalidInputError, did_you_mean

Family = Literal["mesh", "hybrid", "caching", "cloud"]


@dataclass(frozen=True)
class Scale:
    """What part of a paper's sizes a run has, by the paper's set-up; `is_small` takes few points of each sweep."""

    name: str
    mesh: float  # of MESH's and DEFAULTS' 3.5 million rows
    hybrid: float  # of X-HYBRID's and OPT-X's 2 million
    caching: float  # of CACHING's 100 million
    cloud: float  # of 10 and 20 million cloud reports
    is_small: bool = False
    key_only: bool = False  # CACHING's masters, whose payload would be 11 of 12 GB; see keyonly.py

    def factor(self, family: Family) -> float:
        """The factor of one set-up."""
        return float(getattr(self, family))


SCALES = {
    scale.name: scale
    for scale in (
        Scale("small", mesh=1 / 50, hybrid=1 / 50, caching=1 / 2000, cloud=1 / 500, is_small=True),
        Scale("default", mesh=1 / 25, hybrid=1 / 25, caching=1 / 1000, cloud=1 / 200),
        Scale("paper", mesh=1.0, hybrid=1.0, caching=1.0, cloud=1.0, key_only=True),
    )
}


def scale_named(name: str) -> Scale:
    """One of SCALES, or an error that says which was meant."""
    if name not in SCALES:
        raise InvalidInputError(
            f"--scale {name}",
            found="no such scale",
            hint=f"{did_you_mean(name, SCALES)}Choose one of {', '.join(SCALES)}.",
        )
    return SCALES[name]
