"""The table of claims, and the names by which they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from semistream.errors import InvalidInputError
from semistream.experiments import CLAIMS, chosen_claims, scale_named
from semistream.experiments.claims import as_markdown


def test_claims_come_in_the_tables_order_whatever_the_order_asked():
    assert chosen_claims(["c1", "M1"]) == ("M1", "C1")
    assert chosen_claims([]) == tuple(CLAIMS)
    assert chosen_claims(["M1,c1", "D4,"]) == ("M1", "D4", "C1")


def test_a_claim_that_is_none_says_which_may_be_meant():
    with pytest.raises(InvalidInputError, match=r"M11.*Did you mean M1\?"):
        chosen_claims(["M11"])
    for name in ("nonsense", "", ","):
        with pytest.raises(InvalidInputError, match="There are M1"):
            chosen_claims([name])


def test_a_scale_that_is_none_says_which_may_be_meant():
    with pytest.raises(InvalidInputError, match="Did you mean 'small'"):
        scale_named("smal")


def test_the_page_of_claims_is_the_table_in_the_code():
    page = Path(__file__).resolve().parents[2] / "docs" / "reproduction" / "claims.md"
    assert page.read_text() == as_markdown()
