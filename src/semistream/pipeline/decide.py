"""A micro-batch decided: its rows taken in, every enrichment that holds run once, and the outcome put into the ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession

from semistream.master import Master
from semistream.master.pins import pin
from semistream.pipeline.ledger import Accounts, Ledger, Outcome
from semistream.pipeline.overload import Load, Ration, carry, come_back
from semistream.pipeline.plan import FlowPlan, Stage
from semistream.pipeline.routing import Route
from semistream.pipeline.spool import Written
from semistream.pipeline.tasks import RESULT, Arrivals, Holding, Onward
from semistream.pipeline.waiting import KINDS
from semistream.pipeline.work import Hold, Tally, Work
from semistream.spark.metrics import BatchId, Collected, accumulator_of, counts_of

_LEAST_SHARE = 0.01


@dataclass
class Decider:
    """Runs the jobs of micro-batches."""

    spark: SparkSession
    plan: FlowPlan
    ledger: Ledger
    slots: int  # that an enrichment may have
    clock: Callable[[], float] = time.time
    write_seconds: float = 0.0  # that the sink took for the last micro-batch
    _masters: dict[tuple[str, int], Master] = field(default_factory=dict)  # with their indexes

    def decide(self, rows: DataFrame, batch: int, query: str, *, drain: bool) -> Outcome:
        """What becomes of a micro-batch: what was decided before, or what is decided now."""
        known = self.ledger.decided(batch)
        if known is not None:
            return self.ledger.of_query(known, query)
        before = self.ledger.before(batch, query)
        with self.ledger.aside(batch) as folder:
            run = _Run(self, before, batch, query, folder, int(self.clock() * 1e6), drain)
            return self.ledger.decide(folder, run.outcome(rows))

    def master(self, hold: Hold, version: int) -> Master:
        """A version of a master; its index is loaded once."""
        key = hold.label, version
        if key not in self._masters:
            for other in [key for key in self._masters if key[0] == hold.label]:
                del self._masters[other]
            same = hold.step.master.version == version
            self._masters[key] = hold.step.master if same else hold.step.master.at_version(version)
        return self._masters[key]


@dataclass
class _Run:
    """One micro-batch on its way."""

    decider: Decider
    before: Outcome | None
    batch: int
    query: str
    folder: Path
    now_us: int
    drain: bool
    ration: Ration = field(default_factory=Ration)  # of the first enrichment

    def outcome(self, rows: DataFrame) -> Outcome:
        plan = self.decider.plan
        works = [self._work(stage.hold) for stage in plan.stages]
        routes = {work.hold.number: work.route for work in works}
        collected = self._collected()
        first = Arrivals(_routed(plan.arrivals, routes), str(self.folder), collected)
        files, tallies = self._tell(rows.toDF(*[f"c{i}" for i in range(len(rows.columns))]), first)
        arrived = Tally(arrived=sum(tally.arrived for tally in tallies))
        self.ration = self._ration(files)
        by_label = {}
        for stage, work in zip(plan.stages, works, strict=True):
            rationed, shed = self._rationed(self._with_arrivals(work, files))
            found, tallies = self._held(stage, rationed, routes, collected)
            files += [*found, *shed]
            by_label[stage.hold.label] = _sum([*tallies, Tally(shed=sum(file.rows for file in shed))])
        pages = sum(tally.pages for tally in by_label.values())
        read = sum(tally.bytes for tally in by_label.values())
        outcome = Outcome(
            self.folder,
            self.query,
            self.batch,
            self.now_us,
            tuple(file for file in files if file.kind != "arrived"),
            self._accounts(arrived.arrived, by_label),
            tuple(stage.hold.label for stage in plan.stages),
            pages,
            read,
            self._load_after(by_label, files),
        )
        _check(outcome)
        return outcome

    def _work(self, hold: Hold) -> Work:
        step = hold.step
        version = step.master.version
        if step.follows:  # the first run of a micro-batch pins the newest; it is no other in a second one
            version = pin(step.master.storage, self.query, self.batch)
        master = self.decider.master(hold, version)
        share = self._share(hold)
        route = Route.to(
            step, hold.form.aged, master, most=self.decider.slots, scan_share=share if hold.scans else None
        )
        return Work(
            hold=hold,
            route=route,
            version=version,
            now_us=self.now_us,
            share=share,
            drain=self.drain,
            ledger=self._who_waits(hold),
            arrived={},
        )

    def _who_waits(self, hold: Hold) -> tuple[tuple[str, int, str], ...]:
        """The files of those who wait at an enrichment: found by its name, the others may have changed."""
        before = self.before
        if before is None or hold.label not in before.labels:
            return ()
        number = before.labels.index(hold.label)
        return tuple(
            (file.kind, file.slot, before.path(file))
            for file in before.of_kind(*KINDS)
            if file.stage == number and file.kind != "shed"
        )

    def _ration(self, files: list[Written]) -> Ration:
        """What the first enrichment may let in, now that it is known how much has arrived."""
        overload = self.decider.plan.overload
        if not overload.config.sheds:
            return Ration()
        arrived: dict[int, int] = {}
        for file in files:
            if file.kind == "arrived":
                arrived[file.slot] = arrived.get(file.slot, 0) + file.rows
        load = self.before.load if self.before is not None else Load()
        return overload.ration(load, arrived, batch=self.batch, drain=self.drain)

    def _rationed(self, work: Work) -> tuple[Work, list[Written]]:
        """Who was shed comes back, as far as there is room; the files of the others are this micro-batch's too."""
        ration = self.ration if work.hold.number == 0 else Ration()
        before, label = self.before, work.hold.label
        if before is None or label not in before.labels:
            return replace(work, ration=ration), []
        number = before.labels.index(label)
        shed = [file for file in before.of_kind("shed") if file.stage == number]
        back, stay = come_back(shed, ration.room, before.folder)
        carry(stay, before.folder, self.folder)
        return replace(work, ration=ration, returned=tuple(back)), [
            replace(file, stage=work.hold.number) for file in stay
        ]

    def _load_after(self, held: dict[str, Tally], files: list[Written]) -> Load:
        """What the next micro-batch is judged by."""
        plan, load = self.decider.plan, self.ration.load
        if not plan.overload.config.sheds:
            return load
        label = plan.labels[0]
        now, old = held[label], self._accounts_before(label)
        seconds = self.decider.clock() - self.now_us / 1e6 + self.decider.write_seconds
        load = load.served(now.arrived - now.dropped + old.shed - now.shed, round(seconds, 3))
        if plan.sampling is None:
            return load
        answers = [str(self.folder / file.name) for file in files if file.kind == "answered"]
        kept = now.arrived - now.dropped
        sample = plan.sampling.after(
            load.sample, arrived=now.arrived, kept=kept, share=self.ration.share, files=answers
        )
        return replace(load, sample=sample)

    def _accounts_before(self, label: str) -> Accounts:
        return self.before.accounts.get(label, Accounts()) if self.before is not None else Accounts()

    def _share(self, hold: Hold) -> float:
        """Of the master, that a scan reads in this micro-batch."""
        if hold.cycles:
            return 1 / hold.cycles
        if not hold.delay_us or self.before is None:
            return _LEAST_SHARE if hold.delay_us else 1.0
        return min(1.0, max(_LEAST_SHARE, 1.05 * (self.now_us - self.before.at_us) / hold.delay_us))

    def _with_arrivals(self, work: Work, files: list[Written]) -> Work:
        arrived: dict[int, list[str]] = {}
        for file in files:
            if file.kind == "arrived" and file.stage == work.hold.number:
                arrived.setdefault(file.slot, []).append(str(self.folder / file.name))
        return replace(work, arrived=arrived)

    def _held(
        self, stage: Stage, work: Work, routes: dict[int, Route], collected: Accumulator[Collected] | None
    ) -> tuple[list[Written], list[Tally]]:
        if not work.arrived and not work.ledger and not work.returned:
            return [], []
        slots = work.route.slots
        frame = self.decider.spark.range(0, slots, 1, slots)
        return self._tell(frame, Holding(work, _routed(stage.onward, routes), str(self.folder), collected))

    def _tell(self, frame: DataFrame, task: Arrivals | Holding) -> tuple[list[Written], list[Tally]]:
        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task(batches)

        results: list[dict[str, Any]] = [
            json.loads(row[0]) for row in frame.mapInArrow(run, RESULT).collect()
        ]
        written = [Written(**file) for result in results for file in result["written"]]
        return written, [Tally(**result["tally"]) for result in results]

    def _collected(self) -> Accumulator[Collected] | None:
        return accumulator_of(self.decider.spark.sparkContext)

    def _accounts(self, arrived: int, held: dict[str, Tally]) -> dict[str, Accounts]:
        """Of every enrichment since the beginning; where nobody waits, what arrives is answered."""
        counts = counts_of(BatchId(self.query, self.batch))
        found = {}
        for number, label in enumerate(self.decider.plan.labels):
            old = self._accounts_before(label)
            if label in held:
                tally = held[label]
                found[label] = Accounts(
                    old.arrived + tally.arrived,
                    old.answered + tally.answered,
                    tally.waiting,
                    tally.shed,
                    old.dead + tally.dead,
                    old.dropped + tally.dropped,
                )
                continue
            new = arrived if number == 0 else counts[label].tuples if label in counts else 0
            found[label] = Accounts(old.arrived + new, old.answered + new, 0, 0, 0)
        return found


def _routed(onward: Onward, routes: dict[int, Route]) -> Onward:
    return replace(onward, route=routes.get(onward.hold))


def _sum(tallies: list[Tally]) -> Tally:
    return Tally(**{name: sum(getattr(tally, name) for tally in tallies) for name in vars(Tally())})


def _check(outcome: Outcome) -> None:
    for label, accounts in outcome.accounts.items():
        if not accounts.adds_up:
            Tally(**vars(accounts)).check(label)
