"""The retail example: a products master of about 120 bytes a row and a stream of sales of 20 bytes a tuple.

These are the widths of the papers' synthetic data (MESH table 2, CACHING table 1). Row k of the master is a pure function of
(seed, k), made a chunk at a time, so that 100 million rows never exist at once.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from semistream.workload.arrivals import Arrivals, Constant
from semistream.workload.columns import TIMESTAMP, fixed_width_text
from semistream.workload.keys import EveryKey, Keys, Zipf
from semistream.workload.limits import MAX_KEYS, require_range, require_whole
from semistream.workload.randomness import derive, integers, units_at
from semistream.workload.sliced import BATCH_ROWS, Sliced
from semistream.workload.stream import SALES, Workload

PRODUCTS = pa.schema(
    {
        "product_id": pa.int64(),
        "name": pa.string(),
        "category": pa.string(),
        "brand": pa.string(),
        "barcode": pa.string(),
        "price": pa.decimal128(10, 2),
        "weight_g": pa.int32(),
        "supplier_id": pa.int32(),
        "in_stock": pa.int32(),
        "listed_on": pa.date32(),
        "updated_at": TIMESTAMP,
    }
)

FEELS = pa.array(
    [
        "Classic",
        "Compact",
        "Durable",
        "Elegant",
        "Everyday",
        "Handmade",
        "Lightweight",
        "Natural",
        "Premium",
        "Reusable",
    ]
)
COLOURS = pa.array(
    ["Amber", "Black", "Cream", "Forest", "Indigo", "Olive", "Scarlet", "Silver", "Teal", "White"]
)
STUFFS = pa.array(
    ["Bamboo", "Canvas", "Ceramic", "Copper", "Cotton", "Leather", "Linen", "Stainless", "Walnut", "Wool"]
)
THINGS = pa.array(
    [
        "Backpack",
        "Blanket",
        "Bottle",
        "Chair",
        "Jacket",
        "Kettle",
        "Lamp",
        "Notebook",
        "Pillow",
        "Sneaker",
        "Table",
        "Teapot",
    ]
)
CATEGORIES = pa.array(
    ["Clothing", "Electronics", "Garden", "Grocery", "Health", "Home", "Office", "Outdoor", "Toys"]
)
BRANDS = pa.array(
    [
        "Acorn",
        "Birchwood",
        "Cobalt",
        "Driftline",
        "Everly",
        "Fernway",
        "Glasshaus",
        "Harbour",
        "Ironbark",
        "Juniper",
    ]
)

_DAY_2015 = 16_436
_DAYS = 3_287
_US_2024 = 1_704_067_200_000_000
_YEAR_S = 31_536_000


@dataclass(frozen=True)
class Products(Sliced):
    """The products master.

    Args:
        rows: How many rows there are.
        seed: Two masters that differ only in it have other products under the same keys.
        keys: The product_id of each row; by default 0..rows-1, each once and in order. `EveryKey` repeats or
            shuffles them, `Zipf` gives the skewed masters of MESH's figure 6(c).
    """

    rows: int
    seed: int = 0
    _: KW_ONLY
    keys: Keys | None = None

    def __post_init__(self) -> None:
        require_whole("rows", self.rows, 1, MAX_KEYS)

    @property
    def total_rows(self) -> int:
        """How many rows there are."""
        return self.rows

    @property
    def schema(self) -> pa.Schema:
        """The columns of every batch."""
        return PRODUCTS

    def slice(self, start: int, stop: int) -> pa.RecordBatch:
        """Give the rows `start`..`stop`, without those before them."""
        require_range(start, stop, self.rows)
        keys = self.keys or EveryKey(self.rows, popularity="in-order")
        columns = [
            # A seed of its own: with the stream's, row i of the master would carry the key of the stream's tuple i.
            pa.array(keys.draw(start, stop, seed=int(derive(self.seed, "product keys")))),
            pc.binary_join_element_wise(
                self._pick("feel", FEELS, start, stop),
                self._pick("colour", COLOURS, start, stop),
                self._pick("stuff", STUFFS, start, stop),
                self._pick("thing", THINGS, start, stop),
                " ",
            ),
            self._pick("category", CATEGORIES, start, stop),
            self._pick("brand", BRANDS, start, stop),
            _barcodes(self._drawn("barcode", 10**9, start, stop)),
            _prices(units_at(np.arange(start, stop), derive(self.seed, "product price"))),
            pa.array((self._drawn("weight", 20_000, start, stop) + 5).astype(np.int32)),
            pa.array((self._drawn("supplier", 5_000, start, stop) + 1).astype(np.int32)),
            pa.array(self._drawn("stock", 1_000, start, stop).astype(np.int32)),
            pa.array((self._drawn("listed", _DAYS, start, stop) + _DAY_2015).astype(np.int32)).cast(
                pa.date32()
            ),
            pa.array(self._drawn("updated", _YEAR_S, start, stop) * 1_000_000 + _US_2024).cast(TIMESTAMP),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PRODUCTS)

    def _drawn(self, what: str, bound: int, start: int, stop: int) -> NDArray[np.int64]:
        return integers(start, stop, derive(self.seed, f"product {what}"), bound)

    def _pick(self, what: str, words: pa.Array, start: int, stop: int) -> pa.Array:
        return words.take(pa.array(self._drawn(what, len(words), start, stop)))


def products(
    rows: int, seed: int = 0, *, keys: Keys | None = None, batch_rows: int = BATCH_ROWS
) -> pa.RecordBatchReader:
    """Give the products master as an Arrow reader, one batch at a time.

    >>> products(1_000, seed=7).read_all().slice(3, 1)["product_id"].to_pylist()
    [3]
    """
    return Products(rows, seed, keys=keys).reader(batch_rows=batch_rows)


def sales(
    n_products: int,
    rows: int | None = None,
    *,
    keys: Keys | None = None,
    arrivals: Arrivals | None = None,
    missing_share: float = 0.0,
    seed: int = 0,
) -> Workload:
    """Give the stream of sales: by default product popularity follows Zipf's law with exponent 1."""
    return Workload(
        keys or Zipf(n_products),
        rows,
        arrivals=arrivals or Constant(),
        missing_share=missing_share,
        columns=SALES,
        seed=seed,
    )


def _prices(shares: NDArray[np.float64]) -> pa.Array:
    """Make prices from 0.99 to 999.99, spread evenly over their magnitude, all ending in 9."""
    words = np.zeros((shares.size, 2), dtype=np.int64)  # a decimal128 is two words; prices fit in the lower
    words[:, 0] = (np.exp2(shares * np.log2(1000.0)) * 10.0).astype(np.int64) * 10 - 1
    return pa.Array.from_buffers(pa.decimal128(10, 2), shares.size, [None, pa.py_buffer(words)])


def _barcodes(numbers: NDArray[np.int64]) -> pa.Array:
    digits = np.empty((numbers.size, 13), dtype=np.uint8)
    digits[:, :4] = np.frombuffer(b"2024", dtype=np.uint8)
    left = numbers.astype(np.uint32)
    for place in range(12, 3, -1):
        digits[:, place] = left % 10 + ord("0")
        left //= 10
    return fixed_width_text(digits)
