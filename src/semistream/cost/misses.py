"""How many tuples of a stream have no row, by looking some of them up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import InvalidInputError
from semistream.joins.driver import Driver
from semistream.joins.join import string_bytes_of
from semistream.joins.opening import Opening, open_join
from semistream.joins.pagefinder import index_buffer_bytes
from semistream.joins.reader import index_bytes
from semistream.joins.registry import Settings
from semistream.joins.sides import JoinShape, shape_join
from semistream.master import Master

_LOOKED_UP = 256  # tuples: a share of a tenth is known to within a fiftieth
_BESIDE_INDEX = 4 << 20  # bytes
_BUFFER = 1 << 20
_MOST = 0.99  # as far as the models go


def check_misses(misses: float) -> float:
    """A share of tuples."""
    if not 0.0 <= misses < 1.0:
        raise InvalidInputError(
            f"misses={misses}",
            found="no share of the stream's tuples that leaves any with a row",
            hint="Give a number from 0 to less than 1, or sample= to have it estimated.",
        )
    return float(misses)


@dataclass(frozen=True)
class Misses:
    """Of the tuples of a sample."""

    share: float = 0.0  # that have no row
    keys: float = 0.0  # different keys of theirs, per tuple of the sample


def estimated_misses(master: Master, shape: JoinShape, sample: pa.RecordBatch) -> Misses:
    """How many tuples have no row; some of the sample are looked up, which reads a page each.

    None where nothing can be looked up: the master has no index, or what is asked is no equality of keys.
    """
    if master.layout == "heap" or not shape.is_keyed or shape.condition is not None or not master.rows:
        return Misses()
    count = min(_LOOKED_UP, len(sample))
    if not count:
        return Misses()
    tuples, keyless = shape.keyed(sample)
    some = sample.take(pa.array(np.arange(count, dtype=np.int64) * len(sample) // count))
    asked = shape.keyed(some)[0].codes
    missing = asked[~np.isin(asked, _found(master, shape, some))]
    codes, counts = np.unique(tuples.codes, return_counts=True)
    keys = float((1.0 / counts[np.searchsorted(codes, missing)]).sum()) / count
    share = (count - len(asked) + len(missing)) / count
    return Misses(min(share, _MOST), keys + len(keyless) / len(sample))


def _found(master: Master, shape: JoinShape, some: pa.RecordBatch) -> NDArray[np.uint64]:
    """The keys, as codes, of those that have a row; all but their keys stays behind."""
    on = dict(zip(shape.stream_key, master.key, strict=True))
    some = some.select(list(dict.fromkeys(shape.stream_key)))
    shape = shape_join(some.schema, master, on=on, columns=[])
    page = master.index.max_page_bytes
    beside = _BESIDE_INDEX + 8 * page + 4 * some.nbytes
    opening = Opening(
        "inlj",
        master,
        shape,
        index_bytes(master) + index_buffer_bytes(master) + beside,
        "buffered",
        string_bytes_of(shape, some),
        Settings(disk_buffer=max(_BUFFER, page)),
    )
    opened, codes = open_join(opening), [np.empty(0, dtype=np.uint64)]
    try:
        for answers in Driver(opened, [some]).run():
            codes.extend(shape.keyed(batch.select(shape.stream.names))[0].codes for batch in answers)
    finally:
        opened.close()
    return np.concatenate(codes)
