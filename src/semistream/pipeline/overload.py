"""Who is let in when more has arrived than a micro-batch can serve, and who comes back in calm times.

Between the job that takes arrivals in and the one that joins them the driver knows how many there are. It looks at them as a
join looks at its backlog (shedding/overload.py), and says how many each slot of the first enrichment may let in; a slot
does the shedding (holding.py). What it says is part of what is decided: a micro-batch that is run again is not rationed anew.

Shed tuples stay in the file that they were shed into. The next micro-batch's folder has a link to it, and how much of it
has come back: what waits is not written again, however long it waits.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from semistream.pipeline.config import OverloadConfig
from semistream.pipeline.spool import Written
from semistream.shedding import OverloadDetector

_RECENT = 8  # micro-batches whose pace is known
_CALM_AFTER = 2  # micro-batches; a join has eight looks, but its iterations take a page read each
_LEAST_SHARE = 1 / 64  # of arriving tuples that a sample keeps: a share of none could not be scaled up


@dataclass(frozen=True)
class Load:
    """What a micro-batch leaves to the next one, to judge its load by; a part of the outcome."""

    overloaded: bool = False
    quiet: int = 0
    overloads: int = 0  # times that it began
    recent: tuple[tuple[int, float], ...] = ()  # tuples let in, and seconds, of micro-batches that had some
    sample: dict[str, Any] | None = None  # estimates, where answers are a sample (sample.py)

    def to_json(self) -> dict[str, Any]:
        """As a record of JSON."""
        return asdict(self)

    @staticmethod
    def of_json(found: Mapping[str, Any]) -> Load:
        """What `to_json` gave."""
        recent = tuple((int(tuples), float(seconds)) for tuples, seconds in found["recent"])
        return Load(**{**found, "recent": recent})

    def served(self, tuples: int, seconds: float) -> Load:
        """After a micro-batch that let so many in, and took so long."""
        return replace(self, recent=(*self.recent, (tuples, seconds))[-_RECENT:]) if tuples else self


@dataclass(frozen=True)
class Returned:
    """Tuples of a file that come back."""

    path: str
    first: int
    rows: int


@dataclass(frozen=True)
class Ration:
    """What a micro-batch may serve."""

    load: Load = field(default_factory=Load)
    strategy: str = "none"
    fate: str = "later"
    room: int | None = None  # for shed tuples to come back; None: for all of them
    share: float = 1.0  # of what has arrived, to be let in
    kept: dict[int, int] | None = None  # the same, in tuples by slot; None: all
    seed: int = 0

    def of_slot(self, slot: int) -> int | None:
        """How many of a slot's arrived tuples are let in, the first ones; None: all."""
        return None if self.kept is None else self.kept.get(slot, 0)


@dataclass(frozen=True)
class Overload:
    """How a pipeline goes about it."""

    config: OverloadConfig

    def capacity(self, load: Load) -> int | None:
        """How many tuples a micro-batch can serve in its time; None before any has."""
        if self.config.batch_limit:
            return self.config.batch_limit
        return _within(self.config.batch_time.total_seconds(), load.recent) if load.recent else None

    def ration(self, load: Load, arrived: Mapping[int, int], *, batch: int, drain: bool) -> Ration:
        """Of a micro-batch with so many arrivals, by slot. At the end nobody is shed any more."""
        asked, capacity, total = self.config.shedding, self.capacity(load), sum(arrived.values())
        if asked.strategy == "none" or capacity is None:
            return Ration(load)
        # A limit is one; what was measured is exceeded only by more than twice that, as in the paper.
        over = asked.under if self.config.batch_limit else asked.over
        detector = OverloadDetector(
            over, asked.under, _CALM_AFTER, load.overloaded, load.overloads, load.quiet
        )
        if drain:
            return Ration(load, asked.strategy, asked.fate, room=capacity)
        if not load.overloaded and self._was_in_time(load):
            return Ration(load, asked.strategy, asked.fate, max(0, capacity - total))
        excess = detector.look(total, capacity)
        load = replace(
            load, overloaded=detector.overloaded, overloads=detector.overloads, quiet=detector.quiet
        )
        room = 0 if detector.overloaded else max(0, capacity - total)
        if not excess:
            return Ration(load, asked.strategy, asked.fate, room)
        if asked.strategy == "random":
            share = max(_LEAST_SHARE, 1 - excess / total)
            return Ration(load, asked.strategy, asked.fate, room, share, seed=asked.seed + batch)
        kept = _divided(total - excess, arrived)
        return Ration(load, asked.strategy, asked.fate, room, 1 - excess / total, kept)

    def _was_in_time(self, load: Load) -> bool:
        """Whether no recent micro-batch took all of its time: of a stream that has been quiet nobody knows how much could be served.

        The first micro-batch of a burst is then taken in whole, and tells.
        """
        time = self.config.batch_time.total_seconds()
        return not self.config.batch_limit and all(seconds < time for _, seconds in load.recent)


def come_back(
    files: Sequence[Written], room: int | None, folder: Path
) -> tuple[list[Returned], list[Written]]:
    """Who comes back, oldest first, and the files of those who do not."""
    left = sum(file.rows for file in files) if room is None else room
    back, stay = [], []
    for file in sorted(files, key=lambda file: (file.since_us, file.name)):
        taken = min(left, file.rows)
        left -= taken
        if taken:
            back.append(Returned(str(folder / file.name), file.skip, taken))
        if taken < file.rows:
            stay.append(replace(file, rows=file.rows - taken, skip=file.skip + taken))
    return back, stay


def carry(files: Sequence[Written], before: Path, folder: Path) -> None:
    """Let files of the micro-batch before be in this one's folder too."""
    for file in files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(before / file.name, target)
        except OSError:  # a file system without links
            shutil.copyfile(before / file.name, target)


def _within(seconds: float, recent: Sequence[tuple[int, float]]) -> int:
    """How many tuples are served in so many seconds, as the smallest and the largest of recent micro-batches tell.

    While there is time left, more of them take as long each. When there is none, it matters how much of it the tuples took: a
    micro-batch has its own cost, and who lets in fewer because of that lets in none in the end. Half may go into it.
    """
    (few, little), (many, much) = min(recent), max(recent)
    if much <= seconds:
        return max(1, int(many * seconds / max(much, 1e-3)))
    each = (much - little) / (many - few) if many > few else much / many / 2
    if each <= 0:
        return many
    own = max(0.0, much - many * each)
    return max(1, int((max(seconds, 2 * own) - own) / each))


def _divided(total: int, arrived: Mapping[int, int]) -> dict[int, int]:
    """Each slot's part of what may be let in: the same share of every one's arrivals, and together all of it."""
    found, seen, given, every = {}, 0, 0, sum(arrived.values())
    for slot, tuples in sorted(arrived.items()):
        seen += tuples
        found[slot] = total * seen // every - given
        given += found[slot]
    return found
