"""What a model is asked about, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.cost.disks import DiskCosts
from semistream.cost.popularity import Ranks
from semistream.cost.prices import Prices
from semistream.front.steady import PLACES
from semistream.joins.division import Division
from semistream.joins.registry import Settings


@dataclass(frozen=True)
class Case:
    """An algorithm with its parts, a master and a stream. The papers' symbols are beside the fields."""

    algorithm: str
    division: Division  # b, l, h_R, h_S
    settings: Settings
    master_rows: int  # R_t
    pages: int  # N_R
    page_bytes: int  # v_P
    files: int  # that the pages are in: a scan seeks once in each
    layout: str
    index_page_bytes: int  # of an index on disk; 0 where it is in memory
    skew: float
    disk: DiskCosts  # c_IO
    prices: Prices  # c_H, c_O, c_E, c_S, c_A
    overlapped: bool  # reading and joining go on side by side
    misses: float = 0.0  # the share of tuples that have no row
    small_places: int = (
        PLACES  # of the instance that stands for a front stage: fewer are faster and less exact
    )

    @property
    def is_rough(self) -> bool:
        """Whether settings are to be compared, fast."""
        return self.small_places < PLACES

    @property
    def page_rows(self) -> float:
        """v_P / v_R."""
        return self.master_rows / max(self.pages, 1)

    @property
    def ranks(self) -> Ranks:
        """How popular each key is."""
        return Ranks.of(self.master_rows, self.skew)


@dataclass(frozen=True)
class Loop:
    """One iteration in steady state: what it does, for how many tuples; each term of c_loop is a method."""

    tuples: float  # w: finished; w_N + w_S
    io_s: float
    loaded: float = 0.0  # master rows in the pages that were read
    probes: float = 0.0  # of the window by master rows
    front_probes: float = 0.0  # of rows in memory by tuples
    waited: float = 0.0  # w_S, of the tuples
    front_share: float = 0.0  # of the tuples, answered in memory
    steps: float = 0.0  # reads that are waited for, with what each costs beside

    def read_pages_s(self) -> float:
        """Read pages: c_IO(b), or c_IO(k) with the index page."""
        return self.io_s

    def find_keys_s(self, case: Case) -> float:
        """Find the keys in the pages that were read: b (v_P / v_R) c_P."""
        return self.loaded * case.prices.parse_s

    def probe_window_s(self, case: Case) -> float:
        """Rows of the master look for waiting tuples: b (v_P / v_R) c_H, k_T c_H, or (k_T + l_T) c_H."""
        return self.probes * case.prices.probe_s

    def probe_rows_s(self, case: Case) -> float:
        """Tuples look for rows in memory: w c_H."""
        return self.front_probes * case.prices.probe_s

    def read_stream_s(self, case: Case) -> float:
        """Read tuples from the stream: w c_S."""
        return self.tuples * case.prices.read_s

    def append_s(self, case: Case) -> float:
        """Let those wait that no row in memory answers: w_S c_A."""
        return self.waited * case.prices.append_s

    def remove_s(self, case: Case) -> float:
        """Let them go: w_S c_E."""
        return self.waited * case.prices.remove_s

    def output_s(self, case: Case) -> float:
        """Put rows out: w c_O, of which every tuple that has a row gives one."""
        return self.tuples * (1.0 - case.misses) * case.prices.output_s

    def steps_s(self, case: Case) -> float:
        """What iterations cost beside, for which the papers have no term."""
        return self.steps * case.prices.step_s(case.algorithm)

    def reading_seconds(self, case: Case) -> float:
        """Reads, and the keys found in them: work of one thread, where reading and joining have one each."""
        return self.read_pages_s() + self.find_keys_s(case)

    def cpu_seconds(self, case: Case) -> float:
        """All that is not reading."""
        return (
            self.read_stream_s(case)
            + self.output_s(case)
            + self.probe_window_s(case)
            + self.probe_rows_s(case)
            + self.append_s(case)
            + self.remove_s(case)
            + self.steps_s(case)
        )

    def seconds(self, case: Case) -> float:
        """c_loop."""
        reading, cpu = self.reading_seconds(case), self.cpu_seconds(case)
        return max(reading, cpu) if case.overlapped else reading + cpu

    def rate_per_s(self, case: Case) -> float:
        """The service rate, mu."""
        return self.tuples / self.seconds(case)
