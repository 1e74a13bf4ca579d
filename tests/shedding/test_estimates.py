"""The error bounds hold as often as they say, for samples whose share follows the load."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from semistream.shedding import WEIGHT_COLUMN, Estimator

RUNS, STEPS, TUPLES = 500, 20, 100


def run(seed: int, matched: np.ndarray, values: np.ndarray, shares: np.ndarray) -> Estimator:
    """A stream in which tuple i has a row if it matched, and then this value."""
    generator = np.random.default_rng(seed)
    estimator = Estimator(("price",))
    for step in range(STEPS):
        some = slice(step * TUPLES, (step + 1) * TUPLES)
        kept = generator.random(TUPLES) < shares[step]
        weight = 1 / shares[step]
        estimator.sampled(TUPLES, int(kept.sum()), weight)
        rows = kept & matched[some]
        price = pa.array(values[some][rows], mask=values[some][rows] < 1)  # a null counts as nothing
        weights = pa.array(np.full(int(rows.sum()), weight))
        estimator.answered(pa.record_batch({"price": price, WEIGHT_COLUMN: weights}))
    return estimator


@pytest.fixture(scope="module")
def stream():
    generator = np.random.default_rng(5)
    count = STEPS * TUPLES
    # The load is highest in the middle, and so are the values: a sample that forgot its weights would be wrong.
    shares = 1 / (1 + 4 * np.sin(np.linspace(0, math.pi, STEPS)) ** 2)
    middle = np.repeat(1 - shares, TUPLES)
    matched = generator.random(count) < 0.5 + 0.4 * middle
    values = generator.gamma(2.0, 10.0, count) * (1 + 3 * middle)
    return matched, values, shares


@pytest.fixture(scope="module")
def estimates(stream):
    matched, values, shares = stream
    truth = float(matched.sum()), float(values[matched & (values >= 1)].sum())
    return truth, [run(seed, matched, values, shares) for seed in range(RUNS)]


@pytest.mark.parametrize("which", [0, 1], ids=["count", "sum"])
def test_bounds_hold_as_often_as_they_say(estimates, which):
    truth, runs = estimates
    found = [(run.count, run.sums["price"])[which] for run in runs]
    errors = np.array([estimate.value - truth[which] for estimate in found])
    bounds = np.array([estimate.error for estimate in found])
    inside = np.mean(np.abs(errors) <= bounds)
    # Of 500 runs a share of 0.95 is between 0.92 and 0.98 unless chance deviates by more than three sigma.
    assert 0.92 <= inside <= 0.98
    assert abs(errors.mean()) < 4 * errors.std() / math.sqrt(RUNS)
    # And they say no more than that: a bound twice as wide would hold too.
    assert np.median(bounds) == pytest.approx(1.96 * errors.std(), rel=0.15)


def test_without_the_weights_the_answer_would_be_wrong(stream):
    """Or these streams could not tell whether weights are used."""
    matched, _, shares = stream
    kept = np.repeat(shares, TUPLES)
    unweighed = len(matched) * (kept @ matched) / kept.sum()
    assert unweighed < 0.95 * matched.sum()


def test_it_goes_on_where_another_stopped(stream):
    matched, values, shares = stream
    whole = run(3, matched, values, shares)
    other = Estimator(("price",))
    other.go_on_with(json.loads(json.dumps(whole.to_json())))
    assert (other.count, other.sums, other.scale_up) == (whole.count, whole.sums, whole.scale_up)
    for each in (whole, other):
        each.sampled(10, 1, 10.0)
        each.answered(pa.record_batch({"price": [7.0], WEIGHT_COLUMN: [10.0]}))
    assert (other.count, other.sums) == (whole.count, whole.sums)


def test_a_stream_of_which_nothing_was_shed_is_known_exactly():
    estimator = Estimator(("price",))
    estimator.sampled(3, 3, 1.0)
    estimator.answered(pa.record_batch({"price": [1.5, 2.5], WEIGHT_COLUMN: [1.0, 1.0]}))
    assert (estimator.count.value, estimator.count.error) == (2.0, 0.0)
    assert (estimator.sums["price"].value, estimator.sums["price"].error) == (4.0, 0.0)
    assert estimator.scale_up == 1.0


def test_nothing_is_said_of_tuples_with_several_rows_or_of_no_sample():
    estimator = Estimator(one_row_each=False)
    estimator.sampled(10, 5, 2.0)
    estimator.answered(pa.record_batch({WEIGHT_COLUMN: [2.0, 2.0]}))
    assert (estimator.count.value, estimator.count.error) == (4.0, math.inf)
    nobody = Estimator()
    assert nobody.count.error == 0.0
    nobody.sampled(10, 0, 2.0)
    assert nobody.count.error == math.inf


def test_by_hand():
    """Ten arrived, four kept at 1/2, three of them with a row. R = 3/4; error = z * 10/8 * sqrt(2 (3 (1/4)^2 + (3/4)^2))."""
    estimator = Estimator(confidence=0.95)
    estimator.sampled(10, 4, 2.0)
    estimator.answered(pa.record_batch({WEIGHT_COLUMN: [2.0, 2.0, 2.0]}))
    assert estimator.count.value == pytest.approx(7.5)
    assert estimator.count.error == pytest.approx(
        1.959964 * 1.25 * math.sqrt(2 * (3 / 16 + 9 / 16)), rel=1e-5
    )
    assert estimator.scale_up == 2.5
