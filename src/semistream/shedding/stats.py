"""What load shedding has done so far."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.shedding.estimates import Estimate, Estimator


@dataclass
class SheddingStats:
    """Counts beside those of the join: there arrived = answered + waiting + shed + dropped."""

    overloads: int = 0  # times that the join became overloaded
    overloaded: bool = False  # now
    backlog: int = 0  # tuples that have arrived and have no place in the join yet
    backlog_most: int = 0
    shed_in_all: int = 0  # tuples put away or dropped; again if it happened to them again
    returned: int = 0  # of these, come back
    buffer_bytes: int = 0  # of memory for the backlog and for tuples on their way to and from the store
    buffer_bytes_most: int = 0
    files: int = 0  # written by the store
    written_bytes: int = 0
    read_bytes: int = 0
    estimator: Estimator | None = None  # where answers are a sample

    @property
    def scale_up(self) -> float:
        """How many arrived tuples each tuple of the sample stands for, on average."""
        return self.estimator.scale_up if self.estimator is not None else 1.0

    @property
    def count(self) -> Estimate | None:
        """The rows that the whole stream would have given, estimated; None where answers are no sample."""
        return self.estimator.count if self.estimator is not None else None

    @property
    def sums(self) -> dict[str, Estimate]:
        """Of the columns of `sum_of`, likewise."""
        return self.estimator.sums if self.estimator is not None else {}
