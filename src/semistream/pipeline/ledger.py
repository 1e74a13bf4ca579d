"""What became of every micro-batch, and who waits: a folder for each, beside Spark's checkpoint.

    state/lock                            held by the pipeline that runs
    state/checkpoint/                     Spark's
    state/ledger/000000000007/            micro-batch 7, decided: outcome.json and Parquet files
        answered/  begun/  untouched/  missing/  shed/  dead/
    state/ledger/.000000000008-<run>/     micro-batch 8, being worked on
    state/heartbeat.json                  when somebody is due, for the source that keeps an idle stream going

A micro-batch is decided once, by the rename of its folder. Spark runs it again if it dies before it has noted the end;
then what was decided stands, whatever the clock or a cache would say now, and the sink is told it again. Micro-batch n begins
with the waiting tuples of n - 1; older folders are removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semistream.errors import InvalidInputError, StoreError
from semistream.pipeline.config import PipelineConfig
from semistream.pipeline.overload import Load
from semistream.pipeline.spool import Written
from semistream.pipeline.waiting import KINDS, REASONS

_OUTCOME = "outcome.json"
_FORMAT = 1
_TOGETHER = "Checkpoint and ledger belong together: restore both, or begin with another state."


@dataclass(frozen=True)
class Accounts:
    """What became of the tuples of one enrichment, since the pipeline's beginning."""

    arrived: int = 0
    answered: int = 0
    waiting: int = 0
    shed: int = 0
    dead: int = 0
    dropped: int = 0

    @property
    def adds_up(self) -> bool:
        """Nothing is lost, nothing doubled."""
        return self.arrived == self.answered + self.waiting + self.shed + self.dead + self.dropped


@dataclass(frozen=True)
class Outcome:
    """A micro-batch that is decided."""

    folder: Path
    query: str
    batch: int
    at_us: int
    files: tuple[Written, ...]
    accounts: dict[str, Accounts]  # by enrichment, in order; the first one's arrivals are the source's
    labels: tuple[str, ...]  # of the enrichments that hold, by number
    pages: int  # read in it by those
    bytes: int
    load: Load = field(default_factory=Load)

    def of_kind(self, *kinds: str) -> list[Written]:
        """Its files of some kinds."""
        return [file for file in self.files if file.kind in kinds]

    def path(self, file: Written) -> str:
        """Where a file is."""
        return str(self.folder / file.name)

    @property
    def answers(self) -> list[str]:
        """The files of the rows for the sink."""
        return [self.path(file) for file in self.of_kind("answered")]

    @property
    def waiting(self) -> int:
        """How many tuples wait, for whatever reason."""
        return sum(file.rows for file in self.of_kind(*KINDS))


@dataclass(frozen=True)
class Waiting:
    """Tuples that wait at one enrichment for one reason."""

    enrichment: str
    reason: str
    tuples: int
    since_us: int


@dataclass(frozen=True)
class Ledger:
    """The folder of a pipeline's state."""

    state: Path

    @property
    def folder(self) -> Path:
        """The micro-batches."""
        return self.state / "ledger"

    @property
    def checkpoint(self) -> Path:
        """Spark's."""
        return self.state / "checkpoint"

    @property
    def heartbeat(self) -> Path:
        """When somebody is due."""
        return self.state / "heartbeat.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Let no second pipeline work on this state; the lock goes with the process, however that ends."""
        with _told(self.state):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise StoreError(
                    f"the pipeline's state {self.state}",
                    found="a pipeline that is running with it",
                    hint="Stop that one first, or give this one another state.",
                ) from error
            yield
        finally:
            os.close(handle)

    def decided(self, batch: int) -> Outcome | None:
        """What became of a micro-batch, if that is decided."""
        folder = self._of(batch)
        try:
            text = (folder / _OUTCOME).read_text()
        except FileNotFoundError:
            return None
        return _outcome(folder, text)

    def before(self, batch: int, query: str) -> Outcome | None:
        """The micro-batch before: where this one begins. None for the first."""
        if batch == 0:
            return None
        found = self.decided(batch - 1)
        if found is None:
            raise StoreError(
                f"the ledger of micro-batch {batch - 1} in {self.folder}", found="none", hint=_TOGETHER
            )
        return self.of_query(found, query)

    def of_query(self, outcome: Outcome, query: str) -> Outcome:
        """The outcome, if it is of this query."""
        if outcome.query != query:
            raise StoreError(
                f"the ledger of micro-batch {outcome.batch} in {self.folder}",
                found=f"that of another query ({outcome.query})",
                hint=_TOGETHER,
            )
        return outcome

    @contextlib.contextmanager
    def aside(self, batch: int) -> Iterator[Path]:
        """A folder to work in, removed unless it becomes what is decided."""
        folder = self.folder / f".{batch:012d}-{uuid.uuid4().hex[:12]}"
        with _told(folder):
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def decide(self, folder: Path, outcome: Outcome) -> Outcome:
        """Make the folder what became of the micro-batch, at once and for good."""
        with _told(folder):
            named = {file.name for file in outcome.files}
            for path in folder.glob("*/*"):  # of attempts that died, or between two jobs
                if str(path.relative_to(folder)) not in named:
                    path.unlink()
            for kind in folder.iterdir():
                with contextlib.suppress(OSError):
                    kind.rmdir()  # if nothing is left in it
            with open(folder / _OUTCOME, "w") as file:
                json.dump(_to_json(outcome), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            final = self._of(outcome.batch)
            folder.rename(final)
            _sync(self.folder)
        found = self.decided(outcome.batch)
        if found is None:
            raise AssertionError("it was renamed")
        return found

    def forget_before(self, batch: int) -> None:
        """Remove micro-batches that will not be looked at again, and what runs that died were working on."""
        for path in self.folder.iterdir():
            if path.name.startswith(".") or (path.name.isdigit() and int(path.name) < batch):
                shutil.rmtree(path, ignore_errors=True)

    def newest(self) -> Outcome | None:
        """The last micro-batch that was decided."""
        numbers = (
            sorted(int(path.name) for path in self.folder.glob("[0-9]*")) if self.folder.is_dir() else []
        )
        return self.decided(numbers[-1]) if numbers else None

    def beat_at(self, due_us: int | None, *, drain: bool = False) -> None:
        """Tell the heartbeat when to beat next: never, at a time, or now."""
        aside = self.heartbeat.with_suffix(".tmp")
        aside.write_text(json.dumps({"due_us": due_us, "drain": drain}))
        aside.replace(self.heartbeat)

    def _of(self, batch: int) -> Path:
        return self.folder / f"{batch:012d}"


def who_waits(outcome: Outcome) -> list[Waiting]:
    """Who waits, and why, and since when."""
    found: dict[tuple[int, str], list[Written]] = {}
    for file in outcome.of_kind(*KINDS):
        found.setdefault((file.stage, REASONS[file.kind]), []).append(file)
    return [
        Waiting(outcome.labels[stage], reason, sum(f.rows for f in files), min(f.since_us for f in files))
        for (stage, reason), files in sorted(found.items())
    ]


def ledger_at(path: str | os.PathLike[str]) -> Ledger:
    """The ledger of a pipeline's file, or in a folder: its state, or the ledger itself."""
    place = Path(path)
    if place.is_file():
        place = PipelineConfig.from_file(place).state
    elif place.name == "ledger":
        place = place.parent
    if not (place / "ledger").is_dir():
        raise InvalidInputError(
            f"the ledger of {path}",
            found=f"none in {place}",
            hint="Give a pipeline's TOML file or its state folder.",
        )
    return Ledger(place)


def _to_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "query": outcome.query,
        "batch": outcome.batch,
        "at_us": outcome.at_us,
        "files": [file.to_json() for file in outcome.files],
        "accounts": {label: vars(accounts) for label, accounts in outcome.accounts.items()},
        "labels": list(outcome.labels),
        "pages": outcome.pages,
        "bytes": outcome.bytes,
        "load": outcome.load.to_json(),
    }


def _outcome(folder: Path, text: str) -> Outcome:
    try:
        found = json.loads(text)
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}")
        return Outcome(
            folder,
            str(found["query"]),
            int(found["batch"]),
            int(found["at_us"]),
            tuple(Written(**file) for file in found["files"]),
            {str(label): Accounts(**accounts) for label, accounts in found["accounts"].items()},
            tuple(found["labels"]),
            int(found["pages"]),
            int(found["bytes"]),
            Load.of_json(found["load"]) if "load" in found else Load(),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"the ledger's {folder}",
            found=f"an outcome that cannot be read ({error})",
            hint="Restore it from a backup.",
        ) from error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"the ledger's {path}",
            found=error.strerror or str(error),
            hint="The state folder must be writable, and have room.",
        ) from error
