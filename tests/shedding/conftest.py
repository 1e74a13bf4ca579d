"""The joins' oracle, and what is beside these tests, are importable by their names."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "joins")]
