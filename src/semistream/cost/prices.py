"""What work in memory costs, and what counted work cost: the simulator's clock.

A join counts what it does (`JoinStats`), a simulated disk what its reads take. `counted_seconds` prices both:

    disk seconds + tuples c_S + probes c_H + waited (c_A + c_E) + rows c_O + what the iterations cost beside
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.joins.base import JoinStats
from semistream.joins.registry import SCANNING


@dataclass(frozen=True)
class Prices:
    """Seconds per operation.

    Attributes:
        probe_s: c_H, one probe of a hash table, by a master row or by a tuple.
        output_s: c_O, one row put out.
        remove_s: c_E, one tuple taken out of window and queue.
        read_s: c_S, one tuple read from the stream.
        append_s: c_A, one tuple put into window and queue.
        parse_s: What it takes to find the key of one master row in a page that was read; part of c_H in the papers.
        scan_step_s: What an iteration costs whatever it does, in a scan; the papers have none, nor has hdd-2007.
        block_step_s: The same, where the oldest tuples choose blocks.
        lookup_step_s: And where every tuple has a page of its own.
        front_step_s: What a front stage adds to an iteration.
    """

    probe_s: float
    output_s: float
    remove_s: float
    read_s: float
    append_s: float
    parse_s: float = 0.0
    scan_step_s: float = 0.0
    block_step_s: float = 0.0
    lookup_step_s: float = 0.0
    front_step_s: float = 0.0

    def step_s(self, algorithm: str) -> float:
        """Of one iteration of an algorithm."""
        front = self.front_step_s if algorithm in ("cinlj", "cmeshjoin", "chybridjoin") else 0.0
        if algorithm in SCANNING:
            return self.scan_step_s + front
        return (self.lookup_step_s if algorithm in ("inlj", "cinlj") else self.block_step_s) + front


# A 3 GHz Pentium 4 reaches memory in about 0.12 us. A probe of a table far larger than its 1 MiB cache misses once or twice
# there and once in the TLB; an append or a removal touches table and queue; an output row copies 140 bytes from two
# places; a tuple is read from a buffer in order. No paper states its factors.
PRICES = {
    "hdd-2007": Prices(probe_s=0.3e-6, output_s=0.4e-6, remove_s=0.4e-6, read_s=0.1e-6, append_s=0.4e-6),
    # Two cores of a cloud machine of 2024, by `semistream calibrate`; what is used until somebody calibrates.
    "default": Prices(
        probe_s=30e-9,
        output_s=150e-9,
        remove_s=40e-9,
        read_s=10e-9,
        append_s=80e-9,
        scan_step_s=0.4e-3,
        block_step_s=0.4e-3,
        lookup_step_s=0.4e-3,
    ),
}


def prices_of(disk: str) -> Prices:
    """Of the time that a simulated disk is from, where that has its own."""
    return PRICES.get(disk, PRICES["default"])


def counted_seconds(stats: JoinStats, disk_seconds: float, prices: Prices, algorithm: str) -> float:
    """What a join by this algorithm that did so much took, on the virtual clock.

    Every tuple that waited is taken out again, so who still waits is priced as if gone.
    """
    return (
        disk_seconds
        + stats.tuples * prices.read_s
        + (stats.probes + stats.front_probes) * prices.probe_s
        + stats.admitted * (prices.append_s + prices.remove_s)
        + stats.rows * prices.output_s
        + stats.advances * prices.step_s(algorithm)
    )
