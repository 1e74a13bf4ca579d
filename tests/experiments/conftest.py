from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def out(tmp_path_factory) -> Path:
    """Where the runs of these tests keep their masters and points: what one test ran, another finds."""
    return tmp_path_factory.mktemp("reproduction")
