"""What the tests of the pipeline share: configurations, sinks read back, and what must be in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from enriching import rows_of

from semistream.pipeline.config import PipelineConfig
from semistream.pipeline.pipeline import Pipeline

SCHEMA = "k long, n long"
SINKS = ("delta", "duckdb", "parquet", "orc")


def values(folder: Path, *, sink: str = "parquet", **enrich: Any) -> dict[str, Any]:
    """A pipeline from folder/in over folder/master into folder/out."""
    return {
        "pipeline": {"trigger": "available-now", "state": "state", "name": "piped"},
        "source": {
            "format": "parquet",
            "path": "in",
            "schema": SCHEMA,
            "options": {"maxFilesPerTrigger": 1},
        },
        "enrich": [{"master": "master", "on": "k", "memory": "2MB", **enrich}],
        "sink": {"format": sink, "path": "out.duckdb" if sink == "duckdb" else "out"},
    }


def pipeline(folder: Path, config: dict[str, Any]) -> Pipeline:
    return Pipeline(PipelineConfig.from_values(config, folder=folder))


def to_toml(config: dict[str, Any]) -> str:
    """Enough of TOML for what `values` gives."""
    lines = []
    for name, table in config.items():
        for one in table if isinstance(table, list) else [table]:
            lines.append(f"[[{name}]]" if isinstance(table, list) else f"[{name}]")
            inner = {key: value for key, value in one.items() if isinstance(value, dict)}
            lines += [f"{key} = {_literal(value)}" for key, value in one.items() if key not in inner]
            for key, options in inner.items():
                lines.append(f"[{name}.{key}]")
                lines += [f"{option} = {_literal(value)}" for option, value in options.items()]
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else '"' + str(value).replace("\\", "\\\\") + '"'


def written(folder: Path, sink: str, spark: Any = None) -> Counter:
    """Everything in a sink, as a multiset."""
    if sink == "delta":
        from deltalake import DeltaTable

        return rows_of(DeltaTable(folder / "out").to_pyarrow_dataset().to_table())
    if sink == "duckdb":
        import duckdb

        with duckdb.connect(str(folder / "out.duckdb")) as connection:
            return rows_of(connection.execute("select * from enriched").fetchall())
    if sink == "parquet":
        files = sorted((folder / "out").glob("*.parquet"))
        return rows_of(pa.concat_tables([pq.read_table(file) for file in files])) if files else Counter()
    if spark is None:
        return rows_of(pads.dataset(folder / "out", format=sink).to_table())
    return rows_of(spark.read.format(sink).load(str(folder / "out")).collect())


def letters(folder: Path, label: str = "master") -> list[dict[str, Any]]:
    """All dead letters of an enrichment."""
    files = sorted((folder / "state" / "dead-letters" / label).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
