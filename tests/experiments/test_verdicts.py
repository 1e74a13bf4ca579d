"""The rules by which a verdict is reached, each on data for which it must hold and on data for which it must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.experiments.runner import together
from semistream.experiments.verdicts import (
    Verdict,
    ahead,
    best_at,
    decide,
    deviation,
    diminishes,
    falls,
    has_interior_best,
    has_one_peak,
    head_share,
    levels_off,
    rises,
    spread,
)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (rises, [1, 2, 3], [1, 3, 2]),
        (rises, [1, 2], [2, 2]),
        (falls, [3, 2, 1], [3, 1, 2]),
        (has_interior_best, [1, 3, 2], [1, 2, 3]),
        (has_interior_best, [1, 3, 2], [3, 2, 1]),
        (has_interior_best, [1, 3, 2], [1, 3, 2.999]),
        (has_one_peak, [1, 2, 3, 1], [1, 3, 2, 3.1, 1]),
        (levels_off, [0, 8, 9, 9.1, 9.2], [0, 2, 4, 6, 8]),
        (levels_off, [0, 8, 9, 8.9, 8.5], [0, 8, 9, 5, 1]),
        (levels_off, [0, 8, 9, 8.9, 8.5], [0, 8, 9, 1, 9]),
    ],
)
def test_a_rule_holds_and_fails(rule, good, bad):
    assert rule(good)
    assert not rule(bad)


def test_diminishing_is_about_each_unit_of_x_not_about_each_point():
    assert diminishes([1, 2, 10], [1, 2, 6])
    assert not diminishes([1, 2, 3], [1, 2, 4])


def test_ahead_is_everywhere_and_by_a_factor():
    assert ahead([2, 4], [1, 2])
    assert not ahead([2, 2], [1, 2])
    assert not ahead([2, 4], [1, 2], by=2)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=9))
def test_a_model_that_is_right_deviates_by_nothing_and_one_that_is_double_by_all(measured):
    assert deviation(measured, measured) == 0
    assert deviation([2 * value for value in measured], measured) == pytest.approx(1)


def test_small_figures():
    assert best_at([1, 2, 3], [5, 9, 7]) == 2
    assert spread([9, 10]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("holds", "outcome"),
    [
        ({"a": True, "b": True}, "reproduced"),
        ({"a": True, "b": False}, "in part"),
        ({"a": False, "b": False}, "not reproduced"),
        ({"a": False}, "not reproduced"),
    ],
)
def test_parts_make_a_verdict_that_names_what_failed(holds, outcome):
    verdict = decide("x", holds=holds, why="because")
    assert verdict.outcome == outcome
    assert verdict.failed == tuple(part for part, good in holds.items() if not good)
    for part, good in holds.items():
        assert (f"{part}" in verdict.why.removesuffix("because")) == (not good)


def test_two_studies_of_a_claim_must_agree():
    good, bad = Verdict("reproduced", "1"), Verdict("not reproduced", "2", "why", "more", ("a",))
    assert together([good, good]).outcome == "reproduced"
    assert together([good, bad]) == Verdict("in part", "1; 2", "why", "more", ("a",))
    assert together([bad]).outcome == "not reproduced"


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("most", "keys"), [(1, 1_000), (1_500, 100_000), (5_000, 5_000)])
def test_the_head_of_a_zipf_law_is_its_sum(most, keys, exponent):
    weights = np.arange(1, keys + 1) ** -exponent
    assert head_share(most, keys, exponent=exponent) == pytest.approx(
        weights[:most].sum() / weights.sum(), rel=2e-3
    )
