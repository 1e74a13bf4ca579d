"""`enrich()`: a DataFrame in, the same DataFrame with a master's columns out; batch or streaming, no shuffle.

It is one `mapInArrow` over the stream. Every tuple is answered inside its micro-batch, so Spark's own checkpoint gives
exactly-once with any sink. Enrichments of one stream against several masters are put together: tuples cross into Python
once, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructField, StructType

from semistream.config import parse_bytes
from semistream.errors import InvalidInputError, check_choice
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import open_join
from semistream.joins.registry import Settings, check_algorithm
from semistream.joins.sides import CLASH_SUFFIX, JoinShape, On, shape_join
from semistream.master import Master, open_master
from semistream.spark.cleaning import clean_up_after
from semistream.spark.metrics import Counts, accumulator_of, counts_of_step
from semistream.spark.softstate import digest_of
from semistream.spark.source import SPARK_TYPE
from semistream.spark.task import Step
from semistream.spark.types import arrow_schema, for_spark, spark_type
from semistream.spark.worker import Enrichment

_PLAN = "_semistream_plan"  # on DataFrames that enrich() made, and only on those: what follows has none


@dataclass(frozen=True)
class Plan:
    """A DataFrame, the enrichments over it, and its columns after them."""

    base: DataFrame
    steps: tuple[Step, ...]
    fields: tuple[StructField, ...]
    intervals: Mapping[int, str]  # columns that are stored as months, and what they are


def enrich(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    *,
    on: On,
    how: Literal["inner", "left"] = "inner",
    columns: Sequence[str] | None = None,
    memory: int | str = "64MB",
    algorithm: str = "auto",
    versions: Literal["newest", "pinned"] = "newest",
    disk: str = "buffered",
    label: str | None = None,
    settings: Settings | None = None,
) -> DataFrame:
    """Enrich every row of a DataFrame, batch or streaming, with the columns of a master.

    Args:
        df: The stream.
        master: What `open_master` or `build_master` gave, or the path of a store. Every executor must reach it.
        on: The key: a name, several, or a mapping of the stream's names to the master's.
        how: "inner" leaves out rows that match nothing, "left" keeps them with nulls.
        columns: The master's columns wanted; all but its key by default. One whose name the stream has already, in
            whatever case unless the session is case-sensitive, gets the suffix ``_master``.
        memory: The budget of each Python worker for this enrichment.
        algorithm: One of ALGORITHMS.
        versions: "newest" answers each micro-batch of a streaming query from the version that is current when the
            micro-batch first runs; "pinned" answers everything from the version of `master`, as batch queries always do.
        disk: How pages are read: "buffered" through the page cache, "direct" past it, or a simulated disk's profile.
        label: What metrics call this enrichment; the store's name by default.
        settings: Parameters of the algorithm, for experiments.

    Returns:
        A DataFrame with the stream's columns, then the master's.
    """
    check_algorithm(algorithm)
    check_choice(f"{versions=}", versions, ("newest", "pinned"), hint="either")
    if not isinstance(master, Master):
        master = open_master(master)
    before = (None if _is_kept(df) else plan_of(df)) or Plan(df, (), tuple(df.schema.fields), {})
    sensitive = str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    on = on if sensitive else _as_spelt(on, before.fields)
    shape, fields, intervals = _output(before, master, on, how, columns, sensitive=sensitive)
    step = Step(
        uid="",
        label=free_label(label, master.path, {step.label for step in before.steps}),
        master=master,
        on=_numbered_key(before.fields, shape, master),
        how=how,
        columns=shape.master_columns,
        algorithm=algorithm,
        memory_bytes=parse_bytes(memory, name="memory"),
        disk=disk,
        settings=replace(settings or Settings(), at_once=True),
        follows=versions == "newest" and df.isStreaming,
        types=tuple(for_spark(field.type, field.name) for field in shape.master_output),
    )
    step = replace(step, uid=_uid(step))
    _try_out(step, shape)
    plan = Plan(before.base, (*before.steps, step), fields, intervals)
    return _mapped(plan)


def metrics_of(df: DataFrame) -> dict[str, Counts]:
    """What the last run of a batch DataFrame that enrich() made has counted, by enrichment."""
    plan = plan_of(df)
    if plan is None:
        raise InvalidInputError(
            "metrics_of(df)",
            found="a DataFrame that enrich() did not make",
            hint="Pass what enrich() returned.",
        )
    known = {step.label: counts_of_step(step.uid) for step in plan.steps}
    return {label: counts for label, counts in known.items() if counts is not None}


def plan_of(df: DataFrame) -> Plan | None:
    """What enrich() made of it, if it did."""
    # Not getattr(): to a DataFrame of Connect's any name may be a column.
    plan: Plan | None = vars(df).get(_PLAN)
    return plan


def _is_kept(df: DataFrame) -> bool:
    """Whether Spark has been asked to keep its rows: then they are not to be made again."""
    level = df.storageLevel
    return bool(level.useMemory or level.useDisk or level.useOffHeap)


def _uid(step: Step) -> str:
    """What an enrichment is, but for the version of its master."""
    rest = step.label, step.on, step.how, step.columns, step.algorithm, step.memory_bytes, step.disk
    return digest_of((step.master.path, step.master.key, rest, step.settings, step.follows, step.types))[:32]


def _as_spelt(on: On, fields: Sequence[StructField]) -> On:
    """The stream's names as the DataFrame spells them: to Spark their case does not matter."""
    names = [field.name for field in fields]

    def spelt(name: str) -> str:
        same = [other for other in names if other.lower() == str(name).lower()]
        return same[0] if name not in names and len(same) == 1 else name

    if isinstance(on, str):
        return {spelt(on): on} if spelt(on) != on else on
    if isinstance(on, Mapping):
        return {spelt(ours): theirs for ours, theirs in on.items()}
    return {spelt(name): name for name in on} if isinstance(on, Iterable) else on


def _output(
    before: Plan, master: Master, on: On, how: str, columns: Sequence[str] | None, *, sensitive: bool
) -> tuple[JoinShape, tuple[StructField, ...], dict[int, str]]:
    """What joins what, and the output's columns: known without running a job."""
    stream = arrow_schema(StructType(list(before.fields)))
    shape = shape_join(stream, master, on=on, how=how, columns=columns)
    shape.keyed(
        pa.RecordBatch.from_pylist([], schema=stream)
    )  # keys of types that cannot be compared are told at once
    fields, intervals = list(before.fields), dict(before.intervals)
    for name, field in zip(shape.master_columns, shape.master_output, strict=True):
        kept = master.schema.field(name).metadata or {}
        if SPARK_TYPE.encode() in kept:
            intervals[len(fields)] = kept[SPARK_TYPE.encode()].decode()
        kind = spark_type(for_spark(field.type, name), name)
        fields.append(StructField(_free_name(name, fields, sensitive=sensitive), kind, field.nullable))
    return shape, tuple(fields), intervals


def _free_name(name: str, fields: Sequence[StructField], *, sensitive: bool) -> str:
    taken = {field.name if sensitive else field.name.lower() for field in fields}
    while (name if sensitive else name.lower()) in taken:
        name += CLASH_SUFFIX
    return name


def free_label(label: str | None, master: str, taken: Collection[str]) -> str:
    """What an enrichment is called: as asked, or as the store at this path; numbered where others are called so."""
    label = label or master.rstrip("/").rpartition("/")[2] or "master"
    name, number = label, 2
    while name in taken:
        name, number = f"{label}-{number}", number + 1
    return name


def _numbered_key(fields: Sequence[StructField], shape: JoinShape, master: Master) -> dict[str, str]:
    names = [field.name for field in fields]
    return {
        f"c{names.index(ours)}": theirs for ours, theirs in zip(shape.stream_key, master.key, strict=True)
    }


def _try_out(step: Step, shape: JoinShape) -> None:
    """Open the join once, here: what cannot work (a budget too small, a store that is damaged) is told before any job."""
    if step.algorithm == "in-memory":
        return  # that would read the whole master
    open_join(step.opening(shape, step.master, string_bytes_of(shape, None))).close()


def _mapped(plan: Plan) -> DataFrame:
    """The one mapInArrow that all enrichments of a stream are."""
    base, names = plan.base, tuple(field.name for field in plan.fields)
    # Where columns can go by their names, Spark need not copy every row once more to name them.
    is_named = _are_plain(base.columns) and _are_distinct(names) and not plan.intervals
    if not is_named:
        names = tuple(f"c{i}" for i in range(len(names)))
    try:
        collected = accumulator_of(base.sparkSession.sparkContext)
    except Exception:
        collected = None
    enrichment = Enrichment(plan.steps, collected, names)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return enrichment(batches)

    schema = StructType(
        [
            StructField(name, field.dataType, field.nullable, field.metadata)
            for name, field in zip(names, plan.fields, strict=True)
        ]
    )
    result = (base if is_named else base.toDF(*names[: len(base.columns)])).mapInArrow(run, schema)
    if not is_named:
        result = result.select(
            *[_named(i, field, plan.intervals.get(i)) for i, field in enumerate(plan.fields)]
        )
    clean_up_after(base.sparkSession)
    setattr(result, _PLAN, plan)
    return result


def _are_plain(names: Sequence[str]) -> bool:
    """Whether `mapInArrow`, which asks for each column by its name, finds each by it."""
    return not any(name == "*" or "." in name or "`" in name for name in names)


def _are_distinct(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) == len(names)


def _named(position: int, field: StructField, interval: str | None) -> Column:
    column = F.col(f"c{position}")
    if interval is not None:
        column = F.make_ym_interval(F.lit(0), column).cast(interval)
    return column.alias(field.name, metadata=field.metadata) if field.metadata else column.alias(field.name)
