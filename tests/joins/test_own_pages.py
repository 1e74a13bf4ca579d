"""Keys that each have one page and one row there are looked for in their page, whatever their type."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.joins.registry import Settings

INTEGERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
WIDE_ROW = "x" * 400  # some ten rows a page


def numbers(kind: pa.DataType) -> list[int]:
    """The ends of the type, zero, and many in between; in order."""
    low, high = (
        int(end) for end in (np.iinfo(kind.to_pandas_dtype()).min, np.iinfo(kind.to_pandas_dtype()).max)
    )
    rng = np.random.default_rng(3)
    between = {low + int(share * (high - low)) for share in rng.random(300)}
    return sorted({low, low + 1, 0, high - 1, high, *between})


KEYS = [(kind, numbers(kind)) for kind in INTEGERS]
KEYS += [
    (pa.decimal128(9, 2), [Decimal(n) / 4 for n in range(-400, 400)]),
    (pa.date32(), [date(1960, 1, 1) + timedelta(days=31 * n) for n in range(400)]),
]


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize(("kind", "keys"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_every_key_meets_its_row_and_no_other(tmp_path, kind, keys, how):
    kept, absent = keys[::2], keys[1::2]
    values = {key: f"{key} {WIDE_ROW}" for key in kept}
    master = ss.build_master(
        pa.table({"k": pa.array(kept, kind), "v": list(values.values())}),
        tmp_path / "m",
        key="k",
        page_bytes=4096,
    )
    assert master.pages > 3
    asked = [*absent, *kept, *kept[:40]]
    np.random.default_rng(5).shuffle(asked)
    stream = pa.table({"k": pa.array(asked, kind), "n": range(len(asked))})
    joined = ss.join(
        stream, master, on="k", how=how, algorithm="auto", memory="200KB", settings=Settings(at_once=True)
    )
    found = sorted((row["n"], row["v"]) for batch in joined for row in batch.to_pylist())
    wanted = [(n, values.get(key)) for n, key in enumerate(asked) if how == "left" or key in values]
    assert found == wanted
    assert joined.stats.pages > 3
