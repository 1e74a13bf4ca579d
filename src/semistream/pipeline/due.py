"""When the next micro-batch must come, even if nothing arrives."""

from __future__ import annotations

from semistream.pipeline.ledger import Outcome
from semistream.pipeline.plan import FlowPlan
from semistream.pipeline.spool import Written
from semistream.pipeline.waiting import KINDS
from semistream.pipeline.work import Hold

_CYCLES = 10  # of a scan that goes by the time that has passed
_OVERLOADED_US = 1_000_000  # until somebody looks whether it still is


def due_us(outcome: Outcome, plan: FlowPlan) -> int | None:
    """The first time at which something is to be done for somebody who waits; None if nobody does."""
    holds = {stage.hold.label: stage.hold for stage in plan.stages}
    times = [
        _due(file, holds[outcome.labels[file.stage]], outcome)
        for file in outcome.of_kind(*KINDS)
        if outcome.labels[file.stage] in holds
    ]
    return min(times, default=None)


def _due(file: Written, hold: Hold, outcome: Outcome) -> int:
    at_us = outcome.at_us
    if file.kind == "missing":
        return min(at_us + hold.retry_every_us, file.since_us + hold.retry_us)
    if file.kind == "shed":
        return at_us + (_OVERLOADED_US if outcome.load.overloaded else 0)
    if hold.scans:  # it goes on reading, share by share
        return min(at_us + hold.delay_us // (hold.cycles or _CYCLES), file.entered_us + hold.delay_us)
    return file.entered_us + hold.delay_us - hold.slack_us
