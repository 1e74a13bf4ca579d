"""The small instance that stands for a front stage: the same as the whole, followed key by key."""

from __future__ import annotations

import pytest

from semistream.cost.popularity import Ranks
from semistream.front import steady as module
from semistream.front.steady import BLOCK, PLACES, steady

ROWS, PAGE_ROWS = 300_000, 34
# Hot rows, tuples that wait, pages of a block: from many blocks for which few wait to some dozens for which thousands do.
SIZES = [(5_000, 45_000, 5), (5_000, 45_000, 60), (12_000, 24_000, 200), (1_000, 45_000, 30)]


@pytest.mark.parametrize("small_places", [PLACES // 4, PLACES // 16])
@pytest.mark.parametrize("skew", [0.5, 1.0, 1.3])
@pytest.mark.parametrize(("places", "window", "pages"), SIZES)
@pytest.mark.parametrize("in_order", [True, False])
def test_a_small_instance_reads_as_the_whole_does(
    monkeypatch, places, window, pages, in_order, skew, small_places
):
    asked = {"places": places, "window": window, "how": BLOCK, "together": pages * PAGE_ROWS}
    keys = Ranks.of(ROWS, skew).keys
    small = steady(keys, **asked, in_order=in_order, small_places=small_places)
    monkeypatch.setattr(module, "_MOST_WINDOW", window)
    whole = steady(keys, **asked, in_order=in_order, small_places=places)
    assert small.share == pytest.approx(whole.share, rel=0.3)
    assert small.tuples_per_read == pytest.approx(whole.tuples_per_read, rel=0.35)


@pytest.mark.parametrize("small_places", [PLACES, PLACES // 16])
@pytest.mark.parametrize("in_order", [True, False])
def test_where_nearly_all_is_answered_in_front_reads_hardly_count(in_order, small_places):
    keys = Ranks.of(100_000_000, 2.0).keys
    found = steady(
        keys,
        places=500_000,
        window=3_000_000,
        how=BLOCK,
        together=1_000 * PAGE_ROWS,
        in_order=in_order,
        small_places=small_places,
    )
    assert 0.0 <= found.share < 1e-3
    assert found.tuples_per_read > 1e6
