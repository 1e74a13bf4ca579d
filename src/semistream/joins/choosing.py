"""Which pages the oldest tuples choose, where that is simple: narrow keys, no key twice, an index in memory, one page each.

What `PageFinder` and NumPy say in forty calls, a kernel says in one: with every iteration some hundred tuples choose, and each
call costs as much as ten of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semistream.joins.pagefinder import is_unique
from semistream.kernel import kernel
from semistream.master import Master
from semistream.master.keys import NarrowKeys

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def simple_index(master: Master) -> U64 | None:
    """The first key of every page, if a key's page is told by them alone."""
    separators = master.index.separators
    if master.layout != "key" or not is_unique(master) or not isinstance(separators, NarrowKeys):
        return None
    return separators.codes if len(separators) else None


def choose(codes: U64, firsts: U64, passed: I64, most: int) -> tuple[I64, I64] | None:
    """Which of these tuples are for none of the `passed` pages, at most so many, and their pages, in order.

    None where a key is before the first page, and so nowhere.
    """
    chosen, pages = np.empty(min(most, len(codes)), dtype=np.int64), np.empty(most, dtype=np.int64)
    count, different = _choose(codes, firsts, passed, chosen, pages)
    return (chosen[:count], pages[:different]) if count >= 0 else None


@kernel
def _choose(codes: U64, firsts: U64, passed: I64, chosen: I64, pages: I64) -> tuple[int, int]:
    words = (len(firsts) + 63) >> 6
    known, wanted = np.zeros(words, dtype=np.uint64), np.zeros(words, dtype=np.uint64)
    one = np.uint64(1)
    for page in passed:
        known[page >> 6] |= one << np.uint64(page & 63)
    count = 0
    for i in range(len(codes)):
        if count == len(chosen):
            break
        page = np.searchsorted(firsts, codes[i], side="right") - 1
        if page < 0:
            return -1, 0
        bit = one << np.uint64(page & 63)
        if known[page >> 6] & bit:
            continue
        wanted[page >> 6] |= bit
        chosen[count] = i
        count += 1
    different = 0
    for word in range(words):
        bits = wanted[word]
        if bits:
            for place in range(64):
                if (bits >> np.uint64(place)) & one:
                    pages[different] = 64 * word + place
                    different += 1
    return count, different
