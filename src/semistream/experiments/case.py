"""One point of a study: which algorithm, over what, within what; and what was counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from semistream.experiments.data import MasterSpec, StreamSpec
from semistream.joins import Settings

INDEX_LOOPS = ("inlj", "cinlj")


@dataclass(frozen=True)
class Case:
    """What is run. Settings that are None are tuned first, as the papers did."""

    algorithm: str
    master: MasterSpec
    stream: StreamSpec
    memory_bytes: int
    scale: float = 1.0  # of the paper's sizes: what an access costs before its first byte shrinks with it
    settings: Settings | None = None
    tuning: Literal["best", "equal parts"] = (
        "best"  # "equal parts": as many pages pinned as are read at a time
    )
    disk: str = "hdd-2007"
    threshold: int | None = None  # of the front stage's admission, held there
    newcomers: Literal["as last victim", "own frequency"] = (
        "as last victim"  # of which frequency; see own_frequency.py
    )
    warm: float = 3.0  # windows answered by the join behind before anything is counted
    warm_per_row: float = 100.0  # tuples for each place of a front stage, which must have come before as well
    measured: float = 2.0  # and while it is
    looked_up: int = 10_000  # tuples of an index nested loop that are counted; MESH counts as many
    looked_up_warm: float = 20.0  # times the front stage's rows that a cached one sees before
    doubles: bool = False  # the master, half-way
    version_every: int = 0  # tuples, after which some of the master's rows have changed
    models: bool = False  # the rate is predicted too
    sheds: str = ""  # a shedding strategy's name
    position: float = 1.0  # in the queue, of the tuple that chooses while tuples are shed
    overload: float = 0.0  # arriving tuples, as a multiple of what the join is predicted to serve

    @property
    def latency_factor(self) -> float:
        """What seeks and calls are priced at, as a part of the profile's."""
        return 1.0 if self.algorithm in INDEX_LOOPS else self.scale

    def to_json(self) -> dict[str, Any]:
        """As it is kept and compared."""
        return asdict(self)


@dataclass(frozen=True)
class Measured:
    """What a run counted in its steady state."""

    answered: int
    rows: int
    misses: int
    front_hits: int
    admitted: int
    advances: int
    pages: int
    probes: int
    front_probes: int
    cached: int
    evicted: int
    calls: int
    seeks: int
    bytes: int
    disk_seconds: float  # on the case's clock
    seconds: float  # disk and processor together; on a real disk, the wall clock's
    mean_pending: float
    window_tuples: int  # room
    held: int = 0  # rows in the front stage, at the end
    scale: float = 1.0
    used: dict[str, int] = field(default_factory=dict)  # bytes by structure
    settings: dict[str, Any] = field(default_factory=dict)  # that were used
    timeline: tuple[tuple[int, float], ...] = ()  # tuples and seconds, one piece after the other
    predicted_rate: float | None = None

    @property
    def rate(self) -> float:
        """Stream tuples finished per second."""
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def behind_rate(self) -> float:
        """Those of them that the front stage did not answer."""
        return (self.answered - self.front_hits) / self.seconds if self.seconds else 0.0

    @property
    def front_rate(self) -> float:
        """Those that it did."""
        return self.front_hits / self.seconds if self.seconds else 0.0

    @property
    def front_share(self) -> float:
        """Of the stream, answered by rows in memory."""
        return self.front_hits / self.answered if self.answered else 0.0

    @property
    def per_access(self) -> float:
        """Tuples that one access of the disk answers."""
        return (self.answered - self.front_hits) / max(self.advances, 1)

    @property
    def stay_seconds(self) -> float:
        """How long a tuple is in the join, on average: Little's law, tuples inside over tuples through."""
        return self.mean_pending / self.rate if self.rate else 0.0

    @property
    def window_tuple_bytes(self) -> float:
        """Memory of a waiting tuple."""
        return self.used.get("window", 0) / max(self.window_tuples, 1)

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)

    @staticmethod
    def from_json(kept: dict[str, Any]) -> Measured:
        """What `to_json` gave."""
        timeline = tuple((int(tuples), float(seconds)) for tuples, seconds in kept["timeline"])
        return Measured(**{**kept, "timeline": timeline})
