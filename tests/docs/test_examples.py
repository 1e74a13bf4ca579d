"""The examples in the docstrings are true, in whichever folder they stand."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import semistream

ROOT = Path(semistream.__file__).parent


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = sorted(name_of(path) for path in ROOT.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    assert results.attempted > 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    examples = sum(len(t.examples) for n in MODULES for t in finder.find(importlib.import_module(n)))
    assert examples > 40
