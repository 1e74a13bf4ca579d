"""When a join is overloaded, on traces worked out by hand."""

from __future__ import annotations

import pytest

from semistream.errors import InvalidInputError
from semistream.shedding import OverloadDetector, Shedding


def test_more_than_twice_what_the_last_iteration_finished_is_too_much():
    detector = OverloadDetector()
    assert [detector.look(backlog, finished=100) for backlog in (0, 100, 200, 201, 250)] == [0, 0, 0, 1, 50]
    assert detector.overloads == 1


def test_the_threshold_follows_what_was_finished_last():
    detector = OverloadDetector()
    assert detector.look(90, finished=50) == 0
    assert detector.look(90, finished=40) == 10
    assert detector.look(90, finished=0) == 90


def test_it_is_calm_only_after_some_quiet_looks_one_after_the_other():
    detector = OverloadDetector(calm_after=3)
    trace = [
        # backlog of 100 finished, overloaded after it
        (150, False),  # between the thresholds, from below: calm
        (201, True),
        (150, True),  # between them, from above: still overloaded
        (100, True),  # quiet, once
        (100, True),  # twice
        (101, True),  # not quiet: counted anew
        (99, True),
        (50, True),
        (0, False),  # the third
        (200, False),
        (300, True),
    ]
    seen = []
    for backlog, _ in trace:
        detector.look(backlog, finished=100)
        seen.append((backlog, detector.overloaded))
    assert seen == trace
    assert detector.overloads == 2


def test_nothing_arrives_and_nothing_is_finished_is_quiet():
    detector = OverloadDetector(calm_after=2)
    detector.look(1, finished=0)
    assert detector.overloaded
    detector.look(0, finished=0)
    detector.look(0, finished=0)
    assert not detector.overloaded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "newest"}, "Choose one of 'considering', 'upfront', 'random', 'none'"),
        ({"fate": "lost"}, "Choose one of 'later', 'dropped'"),
        ({"position": 1.5}, "It must be 0 to 1"),
        ({"over": 0}, "It must be more than 0"),
        ({"over": 2, "under": 3}, "It must be 0 to over"),
        ({"calm_after": 0}, "It must be 1 or more"),
        ({"confidence": 1}, "It must be a share below 1"),
        ({"sum_of": "price"}, 'Use strategy="random" with fate="dropped"'),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        Shedding(**options)
