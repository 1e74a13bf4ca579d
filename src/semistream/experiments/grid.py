"""The grid run: every algorithm tuned for each of its cells, counted by the real join, priced on the cell's disk.

What a join counts depends on its settings and not on the disk, so cells of two disks that have the same settings share a run.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from semistream.errors import SemistreamError
from semistream.experiments.case import INDEX_LOOPS, Case, Measured
from semistream.experiments.data import open_or_build, stream_batches
from semistream.experiments.manifest import code_fingerprint, manifest
from semistream.experiments.measure import opening_of
from semistream.experiments.pricing import automatic, best_settings, seconds_on
from semistream.experiments.runner import Runner
from semistream.experiments.studies.grid_winners import ALGORITHMS, FIXED, Cell, cells
from semistream.joins import Settings

_COUNTED_ON = "hdd-2007"
_LOOK_UPS = 8  # pages of an index loop's disk buffer
_INDEX_LOOP_FRONT = 0.95  # of what is left: it needs no window to speak of


@dataclass(frozen=True)
class Outcome:
    """One algorithm in one cell: how fast, or why not at all."""

    cell: Cell
    algorithm: str
    case: Case | None  # as it was run: of `auto`, with what it chose
    counted: Measured | None
    why_not: str = ""

    @property
    def rate(self) -> float:
        """Tuples a second on the cell's disk; 0 where it cannot run."""
        if self.counted is None or self.case is None:
            return 0.0
        return self.counted.answered / seconds_on(self.cell.disk, self.counted, self.case)


@dataclass(frozen=True)
class Contest:
    """All algorithms in one cell."""

    cell: Cell
    outcomes: Mapping[str, Outcome]

    def rate(self, algorithm: str) -> float:
        """Tuples a second."""
        return self.outcomes[algorithm].rate

    @property
    def winner(self) -> str:
        """The fastest that asks nothing of the master's order."""
        return max(FIXED, key=self.rate)

    @property
    def lead(self) -> float:
        """The winner's rate as a multiple of auto's; auto's own where it wins."""
        return self.rate(self.winner) / self.rate("auto")

    @property
    def by_popularity(self) -> float:
        """What a master stored by popularity would bring, as a multiple of the winner's rate."""
        others = [name for name in ALGORITHMS if name not in (*FIXED, "auto")]
        return max(self.rate(name) for name in others) / self.rate(self.winner)


def run_grid(runner: Runner, disks: Sequence[str]) -> tuple[list[Contest], dict[str, Any]]:
    """Every cell of these disks, and the manifest; points that are finished are kept."""
    began = time.perf_counter()
    folder = runner.out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    every = [(cell, name) for disk in disks for cell in cells(disk) for name in ALGORITHMS]
    for cell, name in every:
        open_or_build(cell.case(name).master, folder, seed=runner.seed)
    answers = _answers(runner, list(dict.fromkeys(Plan.of(*each, runner) for each in every)))
    planned: dict[tuple[Cell, str], Case | str] = {}
    for cell, name in every:
        answer = answers[Plan.of(cell, name, runner)]
        planned[cell, name] = (
            answer if isinstance(answer, str) else replace(cell.case(answer[0]), settings=answer[1])
        )
    cases = [case for case in planned.values() if isinstance(case, Case)]
    counted = list(dict.fromkeys(replace(case, disk=_COUNTED_ON) for case in cases))
    kept = runner.kept(counted)
    points = runner.points(counted)

    def outcome(cell: Cell, name: str) -> Outcome:
        case = planned[cell, name]
        if isinstance(case, str):
            return Outcome(cell, name, None, None, case)
        point = points[replace(case, disk=_COUNTED_ON)]
        if isinstance(point, str):
            return Outcome(cell, name, case, None, point)
        return Outcome(cell, name, case, point)

    contests = [
        Contest(cell, {name: outcome(cell, name) for name in ALGORITHMS})
        for disk in disks
        for cell in cells(disk)
    ]
    took = time.perf_counter() - began
    return contests, manifest(
        scale="grid", seed=runner.seed, claims=(), points=len(counted), kept=kept, seconds=took
    )


def outcomes(contests: Sequence[Contest]) -> Iterator[Outcome]:
    """One after the other."""
    for contest in contests:
        yield from contest.outcomes.values()


@dataclass(frozen=True)
class Plan:
    """What the tuner is asked, and where its answers are kept."""

    cell: Cell
    algorithm: str
    out: Path
    seed: int

    @staticmethod
    def of(cell: Cell, algorithm: str, runner: Runner) -> Plan:
        """Nobody knows beforehand how the master will change. The tuner is told of misses, which auto sees in its sample."""
        return Plan(replace(cell, updates=0.0), algorithm, runner.out, runner.seed)

    @property
    def path(self) -> Path:
        """Of the answer."""
        what = [asdict(self.cell), self.algorithm, self.seed, code_fingerprint()]
        name = sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]
        return self.out / "plans" / f"{name}.json"

    def answer(self) -> tuple[str, Settings] | str:
        """The algorithm, chosen if that is asked for, and its settings; or why it cannot be run."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            half = self.path.with_suffix(".tmp")
            half.write_text(json.dumps(self._found()))
            half.replace(self.path)
        kept = json.loads(self.path.read_text())
        return kept if isinstance(kept, str) else (kept[0], Settings(**kept[1]))

    def _found(self) -> list[object] | str:
        try:
            name, settings = self._asked()
        except SemistreamError as error:
            return str(error)
        return [name, asdict(settings)]

    def _asked(self) -> tuple[str, Settings]:
        case, folder = self.cell.case(self.algorithm), self.out / "data"
        page, memory = case.master.page_bytes, case.memory_bytes
        if case.algorithm in INDEX_LOOPS:
            pages = _LOOK_UPS if memory > 4 * _LOOK_UPS * page else _LOOK_UPS // 4
            return case.algorithm, Settings(disk_buffer=pages * page, front_share=_INDEX_LOOP_FRONT)
        master = open_or_build(case.master, folder, seed=self.seed)
        first = next(stream_batches(case.stream, case.master, folder, seed=self.seed))
        if case.algorithm == "auto":
            return automatic(case, opening_of(case, Settings(), master, first), first)
        return case.algorithm, best_settings(case, master, first, effort="little") or Settings()


def _answers(runner: Runner, plans: Sequence[Plan]) -> dict[Plan, tuple[str, Settings] | str]:
    """Asked by as many processes as the runner may have."""
    if runner.jobs == 1:
        return {plan: plan.answer() for plan in plans}
    with ProcessPoolExecutor(runner.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(plans, pool.map(Plan.answer, plans, chunksize=4), strict=True))
