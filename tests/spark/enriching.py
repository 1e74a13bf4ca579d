"""What the tests of enrich() share: masters, streams, and an oracle of dictionaries and loops, nothing of the product's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = Counter
MEMORY = "2MB"


def table(*, schema: pa.Schema | None = None, **columns: Any) -> pa.Table:
    return pa.table(columns, schema=schema)


def many_to_many(*, keys: int = 400) -> tuple[pa.Table, pa.Table]:
    """A stream and a master whose keys repeat on both sides, are null, and are missing on the other one."""
    stream_keys = [None if i % 53 == 0 else (i * i) % (keys + 100) for i in range(3000)]
    stream = table(k=pa.array(stream_keys, pa.int64()), n=pa.array(range(3000), pa.int64()))
    master_keys = [i // 2 if i % 3 else i for i in range(keys)] + [None]
    values = [None if i % 11 == 0 else f"value {i}" for i in range(keys)] + ["of nobody"]
    return stream, table(
        k=pa.array(master_keys, pa.int64()), v=values, w=pa.array(range(keys + 1), pa.int32())
    )


def expected(
    stream: pa.Table,
    master: pa.Table,
    on: Mapping[str, str],
    how: str,
    columns: Sequence[str] | None = None,
) -> Rows:
    """The rows of the join as a multiset."""
    wanted = [name for name in master.column_names if name not in on.values()] if columns is None else columns
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in master.to_pylist():
        key = tuple(row[theirs] for theirs in on.values())
        if None not in key:
            found[key].append(tuple(row[name] for name in wanted))
    out: Rows = Counter()
    for row in stream.to_pylist():
        key = tuple(row[ours] for ours in on)
        matches = found.get(key, []) if None not in key else []
        for match in matches or ([(None,) * len(wanted)] if how == "left" else []):
            out[plain(tuple(row.values()) + match)] += 1
    return out


def rows_of(rows: Iterable[Any]) -> Rows:
    """What Spark collected, or an Arrow table holds, as a multiset."""
    if isinstance(rows, pa.Table):
        rows = [tuple(row.values()) for row in rows.to_pylist()]
    return Counter(plain(tuple(row)) for row in rows)


def plain(value: Any) -> Any:
    """A value that can be counted: Spark gives rows, byte arrays and variants, Arrow dictionaries."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return tuple(plain(inner) for inner in value.values())
    if isinstance(value, tuple | list):
        return tuple(plain(inner) for inner in value)
    return value


def write_files(folder: Path, *tables: pa.Table, first: int = 0) -> Path:
    """A Parquet file each, for Spark's file source, which takes the oldest first."""
    folder.mkdir(exist_ok=True, parents=True)
    for number, content in enumerate(tables, first):
        aside = folder / f".{number:04d}"
        pq.write_table(content, aside)
        os.utime(aside, (1_700_000_000 + number, 1_700_000_000 + number))
        aside.rename(folder / f"{number:04d}.parquet")
    return folder


def read_files(spark: Any, folder: Path, schema: str) -> Any:
    """A micro-batch a file."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(df: Any, checkpoint: Path, sink: Callable[[Any, int], None]) -> Any:
    """Everything there is, to the end; gives the query."""
    query = (
        df.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


class ByBatch:
    """A sink that keeps what every micro-batch gave, each time it ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, Rows]] = []

    def __call__(self, batch: Any, number: int) -> None:
        self.ran.append((number, rows_of(batch.collect())))

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.ran]

    @property
    def total(self) -> Rows:
        return sum((rows for _, rows in self.ran), Counter())


def forget_commit(checkpoint: Path, number: int) -> None:
    """As if the process had died after the sink wrote the micro-batch and before Spark noted it."""
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)


def replace_bytes(path: Path, at: int, data: bytes) -> None:
    """Damage a file in place, whatever its rights are."""
    copy = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(copy[:at] + data + copy[at + len(data) :])


def ask(scenario: str, folder: Path) -> dict:
    """Run a scenario of faulty.py in a process, and so a Spark application, of its own; "said" is its standard error."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "faulty.py", scenario, folder],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(here), "SPARK_LOCAL_DIRS": str(folder / "local")},
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return {**json.loads(found[0].removeprefix("FOUND ")), "said": done.stderr}


def jobs_of(spark, group: str, run) -> list[int]:
    """The jobs that Spark started meanwhile."""
    spark.sparkContext.setJobGroup(group, group)
    try:
        run()
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            spark.sparkContext.setLocalProperty(name, None)
    return list(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def plan_of(df) -> str:
    return df._jdf.queryExecution().executedPlan().toString()
