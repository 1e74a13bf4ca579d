"""The block of memory that kernels put columns together in, from records, pages or batches.

    block   | data of leaf 0 | its bitmap | data of leaf 1 | ...     a string's data are its offsets; bitmaps where needed
    text    | strings of one leaf | strings of the next | ...

One kernel call makes all columns of some rows, so that what is left for Python is to say which part is which. `places` has
a row a leaf: where its data begin, where its bitmap does (-1 where there is none), how many values are null, where its
strings begin in the text and how long they are together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.address import (
    copy_short,
    load8,
    load16,
    load32,
    load64,
    store8,
    store16,
    store32,
    store64,
)
from semistream.kernel import inlined

I64 = NDArray[np.int64]
Made = tuple[NDArray[np.uint8], NDArray[np.uint8], I64]  # block, text, places
NONE, FIXED, BITS, STRING = 0, 1, 2, 3  # kinds of leaves: no data, one width, booleans, lengths that vary
MOST_TEXT = (1 << 31) - 1  # bytes that offsets of 32 bits can tell apart
ANY_TEXT = 1 << 62  # bytes of all leaves: no bound
PLACES = 5  # numbers a leaf


@inlined
def place_parts(kinds: I64, widths: I64, nullable: NDArray[np.bool_], count: int, places: I64) -> int:
    """Find every leaf's place in the block; gives the block's size."""
    total = 0
    for c in range(len(kinds)):
        places[c, 0], places[c, 1], places[c, 2], places[c, 3], places[c, 4] = total, -1, 0, 0, 0
        size = widths[c] * count
        if kinds[c] == BITS:
            size = (count + 7) // 8
        elif kinds[c] == STRING:
            size = 4 * (count + 1)
        total += (size + 63) & -64
        if nullable[c]:
            places[c, 1] = total
            total += (((count + 7) // 8) + 63) & -64
    return total


@inlined
def first_offsets(kinds: I64, block: int, places: I64) -> None:
    """Strings begin at 0, also those of no row at all."""
    for c in range(len(kinds)):
        if kinds[c] == STRING:
            store32(block + places[c, 0], 0)


@inlined
def place_text(kinds: I64, places: I64, most: int) -> int:
    """Find every string leaf's place in the text, once lengths are there; gives the text's size, 0 if that is too much."""
    total = 0
    for c in range(len(kinds)):
        if kinds[c] == STRING:
            places[c, 3] = total
            if places[c, 4] > MOST_TEXT:
                return 0
            total += places[c, 4]
    return total if total <= most else 0


@inlined
def put_bit(bitmap: int, i: int, bit: int) -> None:
    """Set bit i of a bitmap that is filled from the front."""
    if i & 7 == 0:
        store8(bitmap + (i >> 3), bit)
    else:
        store8(bitmap + (i >> 3), load8(bitmap + (i >> 3)) | (bit << (i & 7)))


@inlined
def copy_value(to: int, source: int, width: int) -> None:
    """Copy a value of any width."""
    if width == 8:
        store64(to, load64(source))
    elif width == 4:
        store32(to, load32(source))
    elif width == 2:
        store16(to, load16(source))
    elif width == 1:
        store8(to, load8(source))
    else:
        copy_short(to, source, width)
