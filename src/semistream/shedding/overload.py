"""Whether the stream is faster than the join (CACHING section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class OverloadDetector:
    """Overloaded above `over` times what an iteration finishes, calm below `under` times that, for `calm_after` looks.

    The paper has one threshold for both. Around it a join would shed tuples in one iteration and fetch them back in the next.
    """

    over: float = 2.0
    under: float = 1.0
    calm_after: int = 8
    overloaded: bool = False
    overloads: int = 0  # times that it began
    quiet: int = 0  # looks below `under`, one after the other

    def look(self, backlog: int, finished: int) -> int:
        """How many of the arrived tuples are too many, once an iteration; `finished` is what the last one finished.

        >>> detector = OverloadDetector()
        >>> detector.look(300, finished=100), detector.overloaded
        (100, True)
        """
        most = int(self.over * finished)
        if backlog > most:
            self.overloads += 0 if self.overloaded else 1
            self.overloaded, self.quiet = True, 0
            return backlog - most
        self.quiet = self.quiet + 1 if backlog <= self.under * finished else 0
        if self.quiet >= self.calm_after:
            self.overloaded = False
        return 0
