"""What the driver asks of the tasks of an enrichment whose tuples may wait, and what they tell it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from semistream.errors import StoreError
from semistream.pipeline.overload import Ration, Returned
from semistream.pipeline.pace import EVERYBODY
from semistream.pipeline.routing import Route
from semistream.pipeline.spool import Written
from semistream.pipeline.waiting import Form
from semistream.spark.task import Step


@dataclass(frozen=True)
class Hold:
    """An enrichment whose tuples may wait for a later micro-batch."""

    number: int
    label: str
    step: Step
    form: Form
    scans: bool
    retries: bool
    delay_us: int
    slack_us: int  # who would be late within this is finished now
    retry_us: int
    retry_every_us: int
    cycles: int  # 0: as time passes

    @property
    def width(self) -> int:
        """How many columns a tuple has."""
        return len(self.form.stream)


@dataclass(frozen=True)
class Work:
    """What one micro-batch asks of a held enrichment."""

    hold: Hold
    route: Route
    version: int
    now_us: int
    share: float  # of the master, for a scan
    drain: bool  # nobody is to wait, but for those whose row is missing
    ledger: tuple[tuple[str, int, str], ...]  # kind, slot, path
    arrived: dict[int, list[str]]  # by slot
    ration: Ration = field(default_factory=Ration)
    returned: tuple[Returned, ...] = ()  # who was shed

    @property
    def due_us(self) -> int:
        """Who entered then or before is finished."""
        if self.drain or not self.hold.delay_us:
            return EVERYBODY
        slack = 0 if self.hold.scans else self.hold.slack_us
        return self.now_us + slack - self.hold.delay_us


@dataclass
class Tally:
    """The tuples of a slot."""

    arrived: int = 0
    waited: int = 0  # at the beginning
    answered: int = 0
    waiting: int = 0  # at the end
    shed: int = 0
    dead: int = 0
    dropped: int = 0
    pages: int = 0
    bytes: int = 0

    def check(self, label: str) -> None:
        """All that came in is somewhere."""
        out = self.answered + self.waiting + self.shed + self.dead + self.dropped
        if self.arrived + self.waited != out:
            raise StoreError(
                f"the tuples of {label}",
                found=f"accounts that do not add up: {asdict(self)}",
                hint="Nothing was written; please report this.",
            )


def told(written: list[Written], tally: Tally) -> dict[str, Any]:
    """What a task tells the driver."""
    return {"written": [one.to_json() for one in written], "tally": asdict(tally)}
