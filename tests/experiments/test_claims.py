"""The table of claims, and the names by which they are asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from semistream.errors import InvalidInputError
from semistream.experiments import CLAIMS, chosen_claims, scale_named
from semistream.experiments.studies import (
    c1_memory,
    c3_index_loop,
    c5_tpch_and_cloud,
    c7_temporal_locality,
    c9_shedding,
    c11_sensitivity,
    d1_disk_buffer,
    m1_memory,
    m4_skew,
    x1_memory,
)


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


def test_the_table_of_facts_is_what_the_code_judges():
    """Names, papers, claims and figures: what the code says it reproduces is what the table says."""
    page = Path(__file__).resolve().parents[2] / "docs" / "reproduction" / "claims.md"
    rows = [line for line in page.read_text().splitlines() if re.match(r"\| [A-Z]\d+ \|", line)]
    facts = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]
    assert facts == [(c.id, c.paper, c.says, c.numbers or "none") for c in CLAIMS.values()]


def test_a_judge_compares_with_the_figures_of_the_table():
    """A paper's number that a study has of its own stands in the table's row as well."""
    for claim, figures in (
        ("M1", m1_memory.PAPER.values()),
        ("M4", [m4_skew.PAPER_MINIMUM]),
        ("D2", d1_disk_buffer.PAPER_BEST.values()),
        ("D3", [100 * loss for loss in d1_disk_buffer.PAPER_LOSS.values()]),
        ("X1", [100 * x1_memory.PAPER_SAVED]),
        ("X4", [millions / 1e6 for millions in x1_memory.PAPER_ANSWERED.values()]),
        ("C1", [gain for gains in c1_memory.PAPER_GAINS.values() for gain in gains.values()]),
        ("C2", [gain for gains in c1_memory.PAPER_GAINS_BY_ROWS.values() for gain in gains.values()]),
        ("C3", [c3_index_loop.PAPER_GAIN]),
        ("C5", c5_tpch_and_cloud.PAPER_TPCH.values()),
        ("C7", c7_temporal_locality.PAPER_LEAD.values()),
        ("C9", [c9_shedding.PAPER_POSITION]),
        ("C10", [100 * (c9_shedding.PAPER_TUNED - 1), c9_shedding.PAPER_UPFRONT]),
        ("C11", [c11_sensitivity.PAPER_BEST_SHARE]),
        ("C14", [100 * c1_memory.PAPER_FRONT_SHARE]),
    ):
        printed = {
            float(number) for number in re.findall(r"\d+\.?\d*", CLAIMS[claim].numbers.replace(",", ""))
        }
        assert {round(figure, 6) for figure in figures} <= printed, claim
