"""The joins' oracle: dictionaries and loops, nothing shared with the product."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow as pa


def expected(stream: pa.Table, master: pa.Table, key: list[str], how: str) -> Counter:
    """The rows of the join as a multiset."""
    rows_of = defaultdict(list)
    for row in master.to_pylist():
        value = tuple(row[k] for k in key)
        if None not in value:
            rows_of[value].append(tuple(v for k, v in row.items() if k not in key))
    width = len(master.column_names) - len(key)
    out: Counter = Counter()
    for row in stream.to_pylist():
        value = tuple(row[k] for k in key)
        matches = rows_of.get(value, []) if None not in value else []
        if not matches and how == "left":
            matches = [(None,) * width]
        for match in matches:
            out[tuple(row.values()) + match] += 1
    return out


def multiset(table: pa.Table) -> Counter:
    return Counter(tuple(row.values()) for row in table.to_pylist())
