"""A study: which cases make up a figure, and how the claims it bears on are judged from them.

A study is a record, not a program: lines and points, the case at each, what is plotted, how the verdict is reached. The
runner does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from semistream.experiments.case import Case, Measured
from semistream.experiments.scale import Scale
from semistream.experiments.verdicts import Verdict


@dataclass(frozen=True)
class Axis:
    """What is along an axis."""

    label: str
    log: bool = False
    from_zero: bool = True  # unless all that matters is far above it


RATE = Axis("service rate, tuples/s")
LOG_RATE = Axis("service rate, tuples/s", log=True)


def rate(measured: Measured) -> float:
    """What most figures show."""
    return measured.rate


@dataclass(frozen=True)
class Run:
    """The results of a study on one clock."""

    study: Study
    scale: Scale
    xs: tuple[float, ...]
    points: Mapping[tuple[str, float], Measured]

    def at(self, line: str, x: float) -> Measured:
        """What one point counted."""
        return self.points[line, x]

    def curve(self, line: str) -> list[float]:
        """What is plotted."""
        return [self.study.value(self.points[line, x]) for x in self.xs]

    def model(self, line: str) -> list[float]:
        """What the cost model says; empty where it says nothing."""
        found = [self.points[line, x].predicted_rate for x in self.xs]
        return [value for value in found if value is not None] if None not in found else []


Judge = Callable[[Run], Mapping[str, Verdict]]


@dataclass(frozen=True)
class Study:
    """One figure."""

    name: str
    figure: str  # of the paper
    title: str
    claims: tuple[str, ...]
    x: Axis
    lines: tuple[str, ...]
    xs: tuple[float, ...]
    case: Callable[[Scale, str, float], Case]
    judge: Judge
    y: Axis = RATE
    value: Callable[[Measured], float] = rate
    shows_model: bool = False
    small_xs: tuple[float, ...] = ()  # of the run that CI makes; all where empty
    small_lines: tuple[str, ...] = ()
    machine_xs: tuple[float, ...] = ()  # run on this machine's disk too
    machine_lines: tuple[str, ...] = ()  # there; all where empty

    def points(self, scale: Scale) -> dict[tuple[str, float], Case]:
        """Every case of a run, by line and x."""
        xs = self.small_xs if scale.is_small and self.small_xs else self.xs
        lines = self.small_lines if scale.is_small and self.small_lines else self.lines
        cases = {(line, x): self.case(scale, line, x) for line in lines for x in xs}
        return {at: replace(case, models=True) for at, case in cases.items()} if self.shows_model else cases
