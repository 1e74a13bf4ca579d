"""Running studies: every point once, kept as it is finished, found again by the next run of the same seed, scale and code."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from semistream.errors import SemistreamError
from semistream.experiments.case import Case, Measured
from semistream.experiments.data import open_or_build
from semistream.experiments.doubling import measure_doubling
from semistream.experiments.manifest import code_fingerprint, manifest
from semistream.experiments.measure import measure
from semistream.experiments.overloaded import measure_shedding
from semistream.experiments.registry import studies_of
from semistream.experiments.scale import Scale
from semistream.experiments.study import Run, Study
from semistream.experiments.updating import measure_updates
from semistream.experiments.verdicts import Outcome, Verdict
from semistream.joins import Settings

Told = Callable[[str, int, int], None]  # what was finished, how many are, of how many
Point = Measured | str  # a string says why there is none


@dataclass(frozen=True)
class StudyResult:
    """A study as it was run: on the virtual clock, on this machine's disk where it was, or why not at all."""

    study: Study
    run: Run | None
    machine: Run | None
    why_not: str = ""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    machine_verdicts: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True)
class Reproduction:
    """All that was run."""

    claims: tuple[str, ...]
    scale: Scale
    seed: int
    results: tuple[StudyResult, ...]
    manifest: Mapping[str, object]

    def verdict(self, claim: str, *, on_machine: bool = False) -> Verdict:
        """Of all studies that bear on a claim, together."""
        found = [
            each[claim]
            for result in self.results
            for each in [result.machine_verdicts if on_machine else result.verdicts]
            if claim in each
        ]
        return together(found) if found else Verdict("not run", "", self._why_not(claim))

    def _why_not(self, claim: str) -> str:
        reasons = [r.why_not for r in self.results if claim in r.study.claims and r.why_not]
        return "; ".join(dict.fromkeys(reasons)) or "There is no study of it."


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict from those of several studies: reproduced only where all are."""
    outcomes = {verdict.outcome for verdict in verdicts}
    outcome: Outcome = next(iter(outcomes)) if len(outcomes) == 1 else "in part"
    return Verdict(
        outcome,
        "; ".join(dict.fromkeys(v.ours for v in verdicts if v.ours)),
        " ".join(dict.fromkeys(v.why for v in verdicts if v.why)),
        " ".join(dict.fromkeys(v.details for v in verdicts if v.details)),
        tuple(dict.fromkeys(part for v in verdicts for part in v.failed)),
    )


@dataclass(frozen=True)
class Runner:
    """Where a run keeps what, and how large it is."""

    out: Path
    scale: Scale
    seed: int = 1
    jobs: int = 1
    on_machine: bool = True
    told: Told | None = None

    def reproduce(self, claims: tuple[str, ...]) -> Reproduction:
        """Run what these claims need, and judge."""
        began = time.perf_counter()
        studies = studies_of(claims)
        cases = list(dict.fromkeys(case for study in studies for case in study.points(self.scale).values()))
        machine = [case for study in studies for case in self._machine_points(study).values()]
        every = [*cases, *dict.fromkeys(machine)]
        kept = self.kept(every)
        points = self._run(cases, every[len(cases) :])
        results = tuple(self._judged(study, points, set(claims)) for study in studies)
        took = manifest(
            scale=self.scale.name,
            seed=self.seed,
            claims=claims,
            points=len(every),
            kept=kept,
            seconds=time.perf_counter() - began,
        )
        return Reproduction(claims, self.scale, self.seed, results, took)

    def _machine_points(self, study: Study) -> dict[tuple[str, float], Case]:
        """The points that are run on this machine's disk too: the product's own settings, for they are not a disk's of 2007."""
        if not self.on_machine or not study.machine_xs:
            return {}
        return {
            (line, x): replace(
                case,
                disk="direct",
                settings=case.settings or Settings(),
                tuning="best",
                scale=1.0,
                warm=2.0,
                measured=2.0,
            )
            for (line, x), case in study.points(self.scale).items()
            if x in study.machine_xs and line in (study.machine_lines or study.lines)
        }

    def points(self, cases: list[Case]) -> dict[Case, Point]:
        """These on the virtual clock, each once: what is no claim's."""
        return self._run(cases, [])

    def kept(self, cases: Sequence[Case]) -> int:
        """How many of these an earlier run has finished."""
        return sum(self._path(case).exists() for case in cases)

    def _run(self, cases: list[Case], machine: list[Case]) -> dict[Case, Point]:
        found: dict[Case, Point] = {}
        for case in [*cases, *machine]:
            kept = self._kept(case)
            if kept is not None:
                found[case] = kept
        total = len(cases) + len(machine)
        self._tell("kept from before", len(found), total)
        # This machine's disk last and alone: nothing else may use it meanwhile.
        for part, jobs in ((cases, self.jobs), (machine, 1)):
            for case, point in self._finished([case for case in part if case not in found], jobs):
                found[case] = point
                self._tell(case.algorithm, len(found), total)
        return found

    def _tell(self, what: str, done: int, total: int) -> None:
        if self.told is not None:
            self.told(what, done, total)

    def _finished(self, cases: list[Case], jobs: int) -> Iterator[tuple[Case, Point]]:
        folder = self.out / "data"
        folder.mkdir(parents=True, exist_ok=True)
        if jobs == 1 or len(cases) < 2:
            for case in cases:
                yield case, self._keep(case, run_point(case, folder, self.seed))
            return
        for case in cases:  # two processes must not build one master at a time
            prepare_point(case, folder, self.seed)
        pool = ProcessPoolExecutor(
            jobs, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_the_run
        )
        try:
            coming = {pool.submit(run_point, case, folder, self.seed): case for case in cases}
            for done in as_completed(coming):
                yield coming[done], self._keep(coming[done], done.result())
        except BrokenProcessPool as error:
            raise SemistreamError(
                f"running points in {jobs} processes",
                found="that one of them is gone",
                hint="Memory may have run out: try --jobs 1. What is finished is kept.",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)  # else who stops a run would wait for all of it

    def _path(self, case: Case) -> Path:
        what = json.dumps([case.to_json(), self.seed, code_fingerprint()], sort_keys=True)
        return self.out / "points" / f"{sha256(what.encode()).hexdigest()[:24]}.json"

    def _kept(self, case: Case) -> Point | None:
        path = self._path(case)
        if not path.exists():
            return None
        return Measured.from_json(json.loads(path.read_text())["measured"])

    def _keep(self, case: Case, point: Point) -> Point:
        if isinstance(point, str):
            return point  # the next run tries again
        path = self._path(case)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_suffix(".tmp")
        half.write_text(
            json.dumps({"case": case.to_json(), "seed": self.seed, "measured": point.to_json()}, indent=1)
        )
        half.replace(path)
        return point

    def _judged(self, study: Study, points: Mapping[Case, Point], claims: set[str]) -> StudyResult:
        run = self._assembled(study, study.points(self.scale), points)
        if isinstance(run, str):
            return StudyResult(study, None, None, why_not=run)
        machine = self._assembled(study, self._machine_points(study), points)
        on_machine = None if isinstance(machine, str) else machine
        verdicts = {name: verdict for name, verdict in study.judge(run).items() if name in claims}
        also = study.judge(on_machine) if on_machine is not None else {}
        return StudyResult(
            study, run, on_machine, "", verdicts, {n: v for n, v in also.items() if n in claims}
        )

    def _assembled(
        self, study: Study, cases: Mapping[tuple[str, float], Case], points: Mapping[Case, Point]
    ) -> Run | str:
        """The points of a study, or why there are none."""
        if not cases:
            return "It was not asked for."
        found: dict[tuple[str, float], Measured] = {}
        for at, case in cases.items():
            point = points[case]
            if isinstance(point, str):
                return f"{at[0]} at {at[1]:g}: {point}"
            found[at] = point
        return Run(study, self.scale, tuple(dict.fromkeys(x for _, x in cases)), found)


def end_with_the_run() -> None:
    """Let this process end when the one that runs the points does, also if that was killed: nobody would wait for it."""
    run = multiprocessing.parent_process()

    def wait_and_end() -> None:
        if run is not None:
            run.join()
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()


def prepare_point(case: Case, folder: Path, seed: int) -> None:
    """Build what a point needs."""
    if not case.doubles:
        with contextlib.suppress(SemistreamError):  # the point will say so
            open_or_build(case.master, folder, seed=seed)


def run_point(case: Case, folder: Path, seed: int) -> Point:
    """One point, or why it cannot be had."""
    try:
        if case.sheds:
            return measure_shedding(case, folder, seed=seed)
        if case.version_every:
            return measure_updates(case, folder, seed=seed)
        return (measure_doubling if case.doubles else measure)(case, folder, seed=seed)
    except SemistreamError as error:
        return str(error)
