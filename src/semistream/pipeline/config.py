"""What a pipeline is, as its TOML file says it; reference.toml shows every key with its default."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from semistream.errors import InvalidInputError, StoreError
from semistream.joins.registry import check_algorithm
from semistream.pipeline.tables import Table
from semistream.shedding import FATES, STRATEGIES, Shedding

ON_MISSING = ("null", "drop", "retry")
ON_STOP = ("keep", "drain")
AVAILABLE_NOW = "available-now"
_NOTHING = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """Where the stream comes from: a format of Spark's `readStream`."""

    format: str
    path: str | None
    schema: str | None
    options: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class EnrichConfig:
    """One enrichment."""

    label: str | None
    master: str
    on: str | tuple[str, ...] | dict[str, str]
    columns: tuple[str, ...] | None
    memory_bytes: int
    algorithm: str
    versions: str
    disk: str
    on_missing: str
    retry_for: timedelta
    retry_every: timedelta
    max_delay: timedelta
    cycles: (
        int  # micro-batches in which MESHJOIN scans the master once; 0: as max_delay and the trigger have it
    )

    @property
    def holds(self) -> bool:
        """Whether tuples may wait for a later micro-batch."""
        return self.max_delay > _NOTHING or self.on_missing == "retry"


@dataclass(frozen=True, kw_only=True)
class SinkConfig:
    """Where the answers go."""

    format: str
    path: str | None
    table: str
    dead_letters: str
    options: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class OverloadConfig:
    """What is done when more arrives than a micro-batch can serve."""

    shedding: Shedding
    batch_limit: int  # tuples; 0: as many as recent micro-batches would have served in `batch_time`
    batch_time: timedelta

    @property
    def sheds(self) -> bool:
        """Whether anybody ever is shed."""
        return self.shedding.strategy != "none"


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """A whole pipeline. Relative paths are relative to the file."""

    name: str
    state: Path
    trigger: timedelta | None  # None: what is there now, then the end
    on_stop: str
    source: SourceConfig
    enrichments: tuple[EnrichConfig, ...]
    sink: SinkConfig
    overload: OverloadConfig

    @staticmethod
    def from_file(path: str | os.PathLike[str], *, overload: dict[str, Any] | None = None) -> PipelineConfig:
        """Read and check a file; `overload` stands in the place of its table of that name."""
        path = Path(path)
        try:
            text = path.read_text()
        except OSError as error:
            raise StoreError(
                f"the pipeline {path}",
                found=error.strerror or str(error),
                hint="Give the path of a TOML file.",
            ) from error
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInputError(
                f"the pipeline {path}", found=f"no TOML: {error}", hint="See semistream run --reference."
            ) from error
        if overload is not None:
            values["overload"] = overload
        return PipelineConfig.from_values(values, folder=path.absolute().parent, name=path.stem)

    @staticmethod
    def from_values(values: dict[str, Any], *, folder: Path, name: str = "pipeline") -> PipelineConfig:
        """Check what a file says; paths that are relative are below `folder`."""
        top = Table("the file", values)
        head, source, sink = top.table("pipeline"), top.table("source"), top.table("sink")
        enrichments, overload = top.tables("enrich"), top.table("overload")
        top.done()
        if not enrichments:
            raise InvalidInputError(
                "a pipeline", found="no [[enrich]] in the file", hint="Name at least one master to join with."
            )
        name = head.text("name", name)
        state = Path(_local(head.text("state", f"{name}-state"), folder, "pipeline.state"))
        now = head.text("trigger", "0s") == AVAILABLE_NOW
        trigger = None if now else head.duration("trigger", "0s")
        config = PipelineConfig(
            name=name,
            state=state,
            trigger=trigger,
            on_stop=head.choice("on_stop", ON_STOP, "keep"),
            source=_source(source, folder),
            enrichments=tuple(_enrich(table, folder) for table in enrichments),
            sink=_sink(sink, folder, state),
            overload=_overload(overload, trigger or _NOTHING),
        )
        head.done()
        return config


def reference() -> str:
    """The commented file with every key and its default."""
    return (files("semistream.pipeline") / "reference.toml").read_text()


def _source(table: Table, folder: Path) -> SourceConfig:
    path = table.maybe_text("path")
    source = SourceConfig(
        format=table.text("format"),
        path=None if path is None else _below(path, folder),
        schema=table.maybe_text("schema"),
        options=table.options("options"),
    )
    table.done()
    return source


def _enrich(table: Table, folder: Path) -> EnrichConfig:
    enrichment = EnrichConfig(
        label=table.maybe_text("label"),
        master=_below(table.text("master"), folder),
        on=table.keys("on"),
        columns=table.names("columns"),
        memory_bytes=table.size("memory", "64MB"),
        algorithm=check_algorithm(table.text("algorithm", "auto")),
        versions=table.choice("versions", ("newest", "pinned"), "newest"),
        disk=table.text("disk", "buffered"),
        on_missing=table.choice("on_missing", ON_MISSING, "null"),
        retry_for=table.duration("retry_for", "1h"),
        retry_every=table.duration("retry_every", "10s"),
        max_delay=table.duration("max_delay", "0s"),
        cycles=table.whole("cycles", 0),
    )
    table.done()
    return enrichment


def _sink(table: Table, folder: Path, state: Path) -> SinkConfig:
    name = table.text("format")
    path = table.maybe_text("path")
    if name in ("delta", "duckdb", "parquet"):
        if path is None:
            raise InvalidInputError(
                f"a {name} sink", found="no path in [sink]", hint='Add path = "..." to it.'
            )
        path = _local(path, folder, "sink.path") if name != "delta" else _below(path, folder)
    sink = SinkConfig(
        format=name,
        path=None if path is None else _below(path, folder),
        table=table.text("table", "enriched"),
        dead_letters=_local(
            table.text("dead_letters", str(state / "dead-letters")), folder, "sink.dead_letters"
        ),
        options=table.options("options"),
    )
    table.done()
    return sink


def _overload(table: Table, trigger: timedelta) -> OverloadConfig:
    strategy = table.choice("strategy", STRATEGIES, "none")
    fate = table.choice("fate", FATES, "later")
    limit, time = table.whole("batch_limit", 0), table.duration("batch_time", "0s")
    summed = table.names("sum_of") or ()
    table.done()
    if limit and time:
        raise InvalidInputError(
            f"overload.batch_limit = {limit} with batch_time",
            found="two bounds of a micro-batch",
            hint="Give one of them.",
        )
    if strategy != "none" and not (limit or time or trigger):
        raise InvalidInputError(
            f"overload.strategy = {strategy!r}",
            found="nothing that says how much a micro-batch may serve",
            hint="Give overload.batch_limit, overload.batch_time, or a pipeline.trigger that is a time.",
        )
    if summed and (strategy, fate) != ("random", "dropped"):
        raise InvalidInputError(
            f"overload.sum_of with strategy = {strategy!r}, fate = {fate!r}",
            found="no sample to estimate sums from",
            hint='Use strategy = "random" with fate = "dropped".',
        )
    shedding = Shedding(strategy, fate=fate, sum_of=summed)  # type: ignore[arg-type]  # checked
    return OverloadConfig(shedding=shedding, batch_limit=limit, batch_time=time or trigger)


def _below(path: str, folder: Path) -> str:
    """A path as the file means it; what has a scheme stays."""
    return path if "://" in path else str(folder / path)


def _local(path: str, folder: Path, key: str) -> str:
    if "://" in path:
        raise InvalidInputError(
            f"{key} = {path!r}",
            found="a URI",
            hint="Give a folder of a file system that the driver and all workers share: files are renamed there.",
        )
    return str(folder / path)
