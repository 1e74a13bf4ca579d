"""What a pipeline tells: of every micro-batch, and at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from semistream.pipeline.ledger import Accounts, Outcome, Waiting, who_waits
from semistream.pipeline.sample import Sample


@dataclass(frozen=True)
class BatchReport:
    """A micro-batch that is in the warehouse."""

    batch: int
    at_us: int
    seconds: float
    rows: int  # given to the sink
    sink: str  # what that did with them
    pages: int  # read by enrichments that hold
    accounts: dict[str, Accounts]  # since the beginning
    waiting: list[Waiting]
    load: Literal["overloaded", "calm"]
    sample: Sample | None  # where answers are one

    @staticmethod
    def of(outcome: Outcome, *, sink: str, seconds: float) -> BatchReport:
        """From what was decided."""
        rows = sum(file.rows for file in outcome.of_kind("answered"))
        waiting = who_waits(outcome)
        return BatchReport(
            outcome.batch,
            outcome.at_us,
            round(seconds, 3),
            rows,
            sink,
            outcome.pages,
            outcome.accounts,
            waiting,
            "overloaded" if outcome.load.overloaded else "calm",
            sample_of(outcome),
        )

    def to_json(self) -> dict[str, Any]:
        """As a record of JSON."""
        return {
            "batch": self.batch,
            "time": told_time(self.at_us),
            "seconds": self.seconds,
            "rows": self.rows,
            "sink": self.sink,
            "pages": self.pages,
            "enrichments": {label: asdict(accounts) for label, accounts in self.accounts.items()},
            "waiting": [
                {
                    "enrichment": w.enrichment,
                    "reason": w.reason,
                    "tuples": w.tuples,
                    "since": told_time(w.since_us),
                }
                for w in self.waiting
            ],
            "load": self.load,
            **_told(self.sample),
        }


@dataclass(frozen=True)
class Report:
    """A run that has ended."""

    batches: int  # of this run
    rows: int  # given to the sink in this run
    ended: str  # why
    accounts: dict[str, Accounts]  # since the pipeline's beginning
    waiting: list[Waiting]
    sample: Sample | None = None  # where answers are one

    @property
    def adds_up(self) -> bool:
        """Whether, at every enrichment, arrived = answered + waiting + shed + dead letters + dropped."""
        return all(accounts.adds_up for accounts in self.accounts.values())

    @property
    def ledger(self) -> str:
        """What became of it, in words."""
        count = sum(waiting.tuples for waiting in self.waiting)
        if not count:
            return "the ledger is empty"
        reasons = ", ".join(f"{w.tuples:,} at {w.enrichment} ({w.reason})" for w in self.waiting)
        return f"the ledger keeps {count:,} tuples: {reasons}"

    def to_json(self) -> dict[str, Any]:
        """As a record of JSON."""
        return {
            "ended": self.ended,
            "batches": self.batches,
            "rows": self.rows,
            "ledger": self.ledger,
            "enrichments": {label: asdict(accounts) for label, accounts in self.accounts.items()},
            **_told(self.sample),
        }


def sample_of(outcome: Outcome) -> Sample | None:
    """What the answers so far say of all that has arrived, where they are a sample."""
    found = outcome.load.sample
    return None if found is None else Sample.of_json(found)


def _told(sample: Sample | None) -> dict[str, Any]:
    return {} if sample is None else {"sample": sample.to_json()}


def told_time(us: int) -> str:
    """A time for people and machines."""
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
