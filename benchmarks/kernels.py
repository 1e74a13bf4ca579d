"""How many nanoseconds a key do the hash kernels take, to find a key, to miss it and to insert it?

100,000 keys in a table that stays in the processor's cache, asked for in random order: int64 keys, and strings of 12
characters, whose bytes are compared where their hashes are equal. The references are what a bare table costs: a hit 6 ns,
a miss 15 ns, an insertion 40 ns. Baselines, measured in the same run: `pyarrow.compute.index_in`, which builds its table
and probes it in one call, and a Python dictionary.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data import SEED
from measure import Case, Ratio, alternate, report
from semistream.joins.sides import KEY_LEAF, probes_of
from semistream.master.keys import KeyCodec, WideKeys
from semistream.memory import table as tables
from semistream.memory.budget import Budget
from semistream.memory.leaves import leaves_of, rows_of
from semistream.memory.rowtable import RowTable, _find_all, _insert_all
from semistream.memory.table import Probes

KEYS = 100_000
STRING_BYTES = 12
ROUNDS = 15  # a figure is their median: one alone is over in a millisecond
REPEATS = 15
REFERENCE_NS = {"hit": 6.0, "miss": 15.0, "build": 40.0}
MOST_TIMES_REFERENCE = 2
MOST_TIMES_INT64 = 4
KINDS: dict[str, pa.DataType] = {"int64": pa.int64(), "string": pa.string()}


@dataclass(frozen=True)
class Columns:
    """The keys of a table in the order they are inserted, the same in another order, and as many that are not in it."""

    stored: pa.Array
    hits: pa.Array
    misses: pa.Array

    @staticmethod
    def of(kind: pa.DataType) -> Columns:
        """Keys scattered over a range a hundred times as wide; misses lie between the hits."""
        rng = np.random.default_rng(SEED)
        numbers = rng.choice(100 * KEYS, 2 * KEYS, replace=False)
        columns = (numbers[:KEYS], rng.permutation(numbers[:KEYS]), numbers[KEYS:])
        return Columns(*(_column(values, kind) for values in columns))


@dataclass(frozen=True)
class Filled:
    """A table of all the stored keys, each with one 8-byte value."""

    table: RowTable
    codes: NDArray[np.uint64]
    slots: NDArray[np.int64]

    @staticmethod
    def of(stored: pa.Array) -> Filled:
        """Put the rows where they belong, in every slot, but insert none of their keys yet."""
        keys = KeyCodec((stored.type,)).encode([stored])
        values = pa.record_batch({"value": pa.array(range(len(stored)), pa.int64())})
        leaves, wide = leaves_of(values.schema), isinstance(keys, WideKeys)
        rows = rows_of(values, leaves)
        if isinstance(keys, WideKeys):
            rows = rows.after_key(keys.offsets, keys.data)
            leaves = (KEY_LEAF, *leaves)
        layout = RowTable.layout(leaves)
        budget = Budget(RowTable.bytes_for(layout, len(stored), STRING_BYTES))
        table = RowTable.allocate(
            budget, "table", layout, len(stored), STRING_BYTES, wide=wide, who="the benchmark"
        )
        slots = tables.take_free(table.table, len(stored))
        table.store.put(rows, np.arange(len(stored), dtype=np.int64), slots)
        return Filled(table, probes_of(keys).codes, slots)

    def insert(self) -> None:
        """Insert the keys: what is timed of a build."""
        _insert_all(self.table.table, self.codes, self.slots)


def _column(values: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    column = pa.array(values, pa.int64())
    return column if kind == pa.int64() else pc.utf8_lpad(column.cast(kind), STRING_BYTES, "0")


def ns_per_key(run: Callable[[], object]) -> float:
    """The median of some rounds of something that goes through all keys; the first only brings them into the cache."""
    run()
    spent = []
    for _ in range(ROUNDS):
        started = time.perf_counter_ns()
        run()
        spent.append(time.perf_counter_ns() - started)
    return median(spent) / KEYS


def build(stored: pa.Array) -> float:
    """Nanoseconds a key of inserting all of them into a fresh table; making it and copying the rows is not timed."""
    spent = []
    for _ in range(ROUNDS):
        fresh = Filled.of(stored)
        started = time.perf_counter_ns()
        fresh.insert()
        spent.append(time.perf_counter_ns() - started)
    return median(spent) / KEYS


def probing(stored: pa.Array, asked: pa.Array, *, found: int) -> Case:
    """Look keys up in a table of the stored ones; as many as said must be in it."""
    filled = Filled.of(stored)
    filled.insert()
    probes: Probes = probes_of(KeyCodec((asked.type,)).encode([asked]))
    slots = filled.table.find(probes)
    if np.count_nonzero(slots >= 0) != found:
        sys.exit(
            f"{np.count_nonzero(slots >= 0):,} keys of type {asked.type} were found instead of {found:,}"
        )
    return lambda: ns_per_key(lambda: _find_all(filled.table.table, probes, slots))


def index_in(stored: pa.Array, asked: pa.Array) -> Case:
    """Arrow's table, built and probed."""
    return lambda: ns_per_key(lambda: pc.index_in(asked, value_set=stored))


def dictionary(stored: pa.Array) -> Case:
    """A dictionary of the keys as Python objects, built."""
    keys = stored.to_pylist()
    return lambda: ns_per_key(lambda: dict(zip(keys, range(KEYS), strict=True)))


def dictionary_probing(stored: pa.Array, asked: pa.Array) -> Case:
    """The same, probed."""
    slots = dict(zip(stored.to_pylist(), range(KEYS), strict=True))
    probes = asked.to_pylist()
    return lambda: ns_per_key(lambda: list(map(slots.get, probes)))


def cases() -> dict[str, Case]:
    """Ours and the baselines for both kinds of keys, and the references."""
    made: dict[str, Case] = {}
    for name, kind in KINDS.items():
        columns = Columns.of(kind)
        made[f"{name} hit"] = probing(columns.stored, columns.hits, found=KEYS)
        made[f"{name} miss"] = probing(columns.stored, columns.misses, found=0)
        made[f"{name} build"] = partial(build, columns.stored)
        made[f"{name} index_in, build and hit"] = index_in(columns.stored, columns.hits)
        made[f"{name} dictionary hit"] = dictionary_probing(columns.stored, columns.hits)
        made[f"{name} dictionary miss"] = dictionary_probing(columns.stored, columns.misses)
        made[f"{name} dictionary build"] = dictionary(columns.stored)
    return made | {f"reference {step}": partial(float, ns) for step, ns in REFERENCE_NS.items()}


def ratios() -> list[Ratio]:
    """The bounds, then the baselines."""
    bounded = [
        Ratio(f"int64 {step} / {ns:g} ns", f"int64 {step}", f"reference {step}", at_most=MOST_TIMES_REFERENCE)
        for step, ns in REFERENCE_NS.items()
    ]
    bounded += [
        Ratio(f"string {step} / int64 {step}", f"string {step}", f"int64 {step}", at_most=MOST_TIMES_INT64)
        for step in REFERENCE_NS
    ]
    baselines = []
    for kind in KINDS:
        baselines.append(
            Ratio(
                f"{kind} build and hit / index_in", f"{kind} build and hit", f"{kind} index_in, build and hit"
            )
        )
        baselines += [
            Ratio(f"{kind} {step} / dictionary", f"{kind} {step}", f"{kind} dictionary {step}")
            for step in REFERENCE_NS
        ]
    return bounded + baselines


def main() -> int:
    """Measure and report."""
    measured = cases()
    for case in measured.values():
        case()  # compiled, and the memory in place
    figures = alternate(measured, repeats=REPEATS)
    for kind in KINDS:
        pairs = zip(figures[f"{kind} build"], figures[f"{kind} hit"], strict=True)
        figures[f"{kind} build and hit"] = [build_ns + hit_ns for build_ns, hit_ns in pairs]
    return 0 if report("hash kernels", figures, ratios(), unit="ns/key", seed=SEED) else 1


if __name__ == "__main__":
    sys.exit(main())
