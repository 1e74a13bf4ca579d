"""From a configuration and a stream's columns to what every micro-batch does: checked once, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from semistream.errors import InvalidInputError
from semistream.joins.opening import Opening
from semistream.joins.pagefinder import is_unique
from semistream.joins.registry import SCANNING, Settings
from semistream.master import Master, open_master
from semistream.pipeline.config import EnrichConfig, PipelineConfig
from semistream.pipeline.overload import Overload
from semistream.pipeline.sample import Sampling, check_sums
from semistream.pipeline.tasks import Onward
from semistream.pipeline.waiting import OURS, Form
from semistream.pipeline.work import Hold
from semistream.spark.enrich import enrich, free_label, plan_of
from semistream.spark.task import Step
from semistream.spark.types import arrow_schema

_CYCLES_WITHOUT_A_TRIGGER = 10


@dataclass(frozen=True)
class Stage:
    """An enrichment that holds, and where its answers go."""

    hold: Hold
    onward: Onward


@dataclass(frozen=True)
class FlowPlan:
    """What every micro-batch does."""

    arrivals: Onward
    stages: tuple[Stage, ...]
    labels: tuple[str, ...]  # of all enrichments, in order
    output: pa.Schema  # under the names that people know
    overload: Overload
    sampling: Sampling | None  # where answers are a sample

    @property
    def holds(self) -> bool:
        """Whether anybody ever waits."""
        return bool(self.stages)


def plan_flow(config: PipelineConfig, stream: DataFrame) -> FlowPlan:
    """Check every enrichment against the columns it meets, and put those together in which nobody waits."""
    onwards: list[Onward] = []
    holds: list[Hold] = []
    labels: list[str] = []
    masters: list[Master] = []
    steps: tuple[Step, ...] = ()
    frame = stream
    for conf in config.enrichments:
        label = free_label(conf.label, conf.master, labels)
        labels.append(label)
        before = frame
        holds_tuples = conf.holds or (config.overload.sheds and len(labels) == 1)
        if holds_tuples:
            before = frame.select(
                "*"
            )  # what enrich() knows of the ones before is forgotten: this one stands alone
        frame, step = _enriched(before, conf, label)
        masters.append(step.master)
        if not holds_tuples:
            steps = (*steps, step)
            continue
        number = len(holds)
        onwards.append(_onward(steps, before.schema.fields, hold=number))
        steps = ()
        holds.append(_hold(number, label, step, conf, before, config.trigger))
        if conf.on_missing == "retry":
            # The master's key told hits from misses, and has done so.
            frame = frame.select(*[f"`{name.replace('`', '``')}`" for name in frame.columns[:-1]])
    onwards.append(_onward(steps, frame.schema.fields, hold=-1))
    stages = tuple(Stage(hold, onward) for hold, onward in zip(holds, onwards[1:], strict=True))
    last = onwards[-1]
    output = pa.schema([field.with_name(name) for field, name in zip(last.schema, last.names, strict=True)])
    check_sums(config.overload, output)
    return FlowPlan(
        onwards[0], stages, tuple(labels), output, Overload(config.overload), _sampling(config, masters)
    )


def _sampling(config: PipelineConfig, masters: Sequence[Master]) -> Sampling | None:
    asked = config.overload.shedding
    if not asked.is_sampled:
        return None
    return Sampling(asked.summed, asked.confidence, all(map(is_unique, masters)))


def _enriched(frame: DataFrame, conf: EnrichConfig, label: str) -> tuple[DataFrame, Step]:
    master = open_master(conf.master)
    columns: Sequence[str] | None = conf.columns
    if conf.on_missing == "retry":
        wanted = columns if columns is not None else [n for n in master.schema.names if n not in master.key]
        columns = [*(name for name in wanted if name != master.key[0]), master.key[0]]
        if len(columns) <= len(wanted):
            raise InvalidInputError(
                f"columns = {list(wanted)} of {label} with on_missing = 'retry'",
                found=f"the key {master.key[0]!r} among them",
                hint="Leave it out: the stream has it.",
            )
    on: Any = conf.on if isinstance(conf.on, str | dict) else list(conf.on)
    enriched = enrich(
        frame,
        master,
        on=on,
        how="inner" if conf.on_missing == "drop" else "left",
        columns=columns,
        memory=conf.memory_bytes,
        algorithm=conf.algorithm,
        versions=conf.versions,  # type: ignore[arg-type]  # checked
        disk=conf.disk,
        label=label,
    )
    plan = plan_of(enriched)
    if plan is None:
        raise AssertionError("enrich() has made it")
    return enriched, plan.steps[-1]


def _onward(steps: tuple[Step, ...], fields: Sequence[StructField], *, hold: int) -> Onward:
    names = tuple(field.name for field in fields)
    return Onward(steps, _numbered(fields), names, hold)


def _numbered(fields: Sequence[StructField]) -> pa.Schema:
    schema = arrow_schema(StructType(list(fields)))
    return pa.schema([pa.field(f"c{i}", field.type) for i, field in enumerate(schema)])


def _hold(
    number: int, label: str, step: Step, conf: EnrichConfig, before: DataFrame, trigger: timedelta | None
) -> Hold:
    names = tuple(before.columns)
    taken = sorted(set(names) & set(OURS))
    if taken:
        raise InvalidInputError(
            f"the tuples of {label} in the ledger",
            found=f"a column {taken[0]!r}, a name that the ledger uses itself",
            hint="Rename it.",
        )
    delayed = conf.max_delay > timedelta(0)
    step = replace(step, settings=replace(step.settings, at_once=not delayed), uid=f"{step.uid}-held")
    form = Form(_numbered(before.schema.fields), names)
    every = trigger or timedelta(0)
    cycles = conf.cycles or (int(conf.max_delay / every) if every else 0)
    return Hold(
        number=number,
        label=label,
        step=step,
        form=form,
        scans=_name(step, form, step.master) in SCANNING,
        retries=conf.on_missing == "retry",
        delay_us=_us(conf.max_delay),
        slack_us=_us(max(every, conf.max_delay / _CYCLES_WITHOUT_A_TRIGGER)),
        retry_us=_us(conf.retry_for),
        retry_every_us=_us(conf.retry_every),
        cycles=cycles,
    )


def _name(step: Step, form: Form, master: Master) -> str:
    """The algorithm, chosen if that is left to us."""
    settings: Settings = step.settings
    return Opening(
        step.algorithm, master, step.shape(form.stream), step.memory_bytes, step.disk, 0.0, settings
    ).name


def _us(time: timedelta) -> int:
    return time // timedelta(microseconds=1)
