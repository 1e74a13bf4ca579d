"""What the tests of the pipeline share is importable by its name, and so is what those of enrich() share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "spark"))
