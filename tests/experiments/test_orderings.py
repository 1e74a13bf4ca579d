"""The orderings that follow from the algorithms, on small masters: what CI must not see flip."""

from __future__ import annotations

import pytest

from semistream.experiments import Runner, scale_named

SURE = ("M1", "D4", "X1", "C1", "C11", "C14")


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return Runner(folder, scale_named("small"), on_machine=False).reproduce(SURE)


@pytest.mark.parametrize("claim", SURE)
def test_the_claim_is_reproduced_on_small_masters(reproduction, claim):
    verdict = reproduction.verdict(claim)
    assert verdict.outcome == "reproduced", f"{verdict.ours}: {verdict.why}"
