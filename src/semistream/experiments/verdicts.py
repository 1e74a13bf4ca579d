"""How a verdict is reached: from the numbers of a run, by rules that are stated here and tested both ways.

A claim is an ordering, a shape, an optimum or an agreement. Each rule gives what speaks against it, so that a verdict can say
where it fails; nothing here knows a study.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["reproduced", "in part", "not reproduced", "not run"]
Curve = Sequence[float]
NOISE = 1.01  # an order by less than one per cent is not called an order
CLOSE = 0.02  # how far a model may be from a run to agree with it: the product's own goal for its models (docs/decisions/013-cost-models.md)


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: `ours` in numbers, `why` in a sentence where it differs from the paper, `details` below the figure."""

    outcome: Outcome
    ours: str
    why: str = ""
    details: str = ""
    failed: tuple[str, ...] = ()  # the parts that do not hold


def decide(ours: str, *, holds: Mapping[str, bool], why: str = "", details: str = "") -> Verdict:
    """All parts hold, some or none; those that do not are named."""
    failed = tuple(part for part, good in holds.items() if not good)
    if not failed:
        return Verdict("reproduced", ours, why, details)
    outcome: Outcome = "not reproduced" if len(failed) == len(holds) else "in part"
    said = f"Does not hold: {'; '.join(failed)}."
    return Verdict(outcome, ours, f"{said} {why}".strip(), details, failed)


def ahead(fast: Curve, slow: Curve, *, by: float = 1.0) -> bool:
    """One curve is above the other everywhere, by a factor."""
    return all(a > by * b for a, b in zip(fast, slow, strict=True))


def ratios(one: Curve, other: Curve) -> list[float]:
    """Point by point."""
    return [a / b for a, b in zip(one, other, strict=True)]


def rises(curve: Curve, *, slack: float = 0.0) -> bool:
    """No point is below the one before by more than `slack` of it, and the last is above the first."""
    steps = itertools.pairwise(curve)
    return all(b >= (1 - slack) * a for a, b in steps) and curve[-1] > curve[0]


def falls(curve: Curve, *, slack: float = 0.0) -> bool:
    """The same, downwards."""
    return rises([1 / value for value in curve], slack=slack)


def diminishes(xs: Curve, curve: Curve, *, slack: float = 0.05) -> bool:
    """What another unit of x brings falls from step to step."""
    points = list(zip(xs, curve, strict=True))
    gains = [(b - a) / (x2 - x1) for (x1, a), (x2, b) in itertools.pairwise(points)]
    return all(later <= earlier * (1 + slack) for earlier, later in itertools.pairwise(gains))


def best_at(xs: Curve, curve: Curve) -> float:
    """The x of the highest point."""
    return max(zip(curve, xs, strict=True))[1]


def has_interior_best(curve: Curve, *, drop: float = 0.01) -> bool:
    """The highest point is inside the range, and both ends are below it by at least `drop`."""
    most = max(curve)
    inside = 0 < list(curve).index(most) < len(curve) - 1
    return inside and curve[0] < (1 - drop) * most and curve[-1] < (1 - drop) * most


def has_one_peak(curve: Curve, *, slack: float = 0.01) -> bool:
    """It rises to its highest point and falls after it, but for ripples of `slack`."""
    top = list(curve).index(max(curve))
    up, down = curve[: top + 1], curve[top:]
    climbs = all(b >= (1 - slack) * a for a, b in itertools.pairwise(up))
    return climbs and all(b <= (1 + slack) * a for a, b in itertools.pairwise(down))


def spread(curve: Curve) -> float:
    """How far the lowest point is below the highest, as a part of it."""
    return 1 - min(curve) / max(curve)


def deviation(predicted: Curve, measured: Curve) -> float:
    """How far predictions are from measurements, on average, as a part of them."""
    return sum(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)) / len(measured)


def head_share(most: float, keys: float, *, exponent: float) -> float:
    """The share of a Zipf stream that asks for its `most` popular of so many keys."""

    def weight(count: float) -> float:
        """Of the first so many, by Euler and Maclaurin."""
        area = math.log(count) if exponent == 1 else (count ** (1 - exponent) - 1) / (1 - exponent)
        return float(area + (1 + count**-exponent) / 2 + exponent / 12 * (1 - count ** (-exponent - 1)))

    return weight(max(most, 1.0)) / weight(keys)


def levels_off(curve: Curve, *, by: float = 0.25) -> bool:
    """All through the second half of the range the curve is where it was half-way, but for `by` of what the first half brought."""
    middle = len(curve) // 2
    early = curve[middle] - curve[0]
    return early > 0 and all(abs(value - curve[middle]) <= by * early for value in curve[middle:])


def per_second(rate: float) -> str:
    """A rate for people."""
    return f"{rate:,.0f} tuples/s" if rate >= 10 else f"{rate:.2g} tuples/s"


def times(values: Curve, *, digits: int = 1) -> str:
    """A range of factors for people."""
    low, high = f"{min(values):.{digits}f}x", f"{max(values):.{digits}f}x"
    return low if low == high else f"{low} to {high}"


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
