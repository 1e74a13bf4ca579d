"""A mark beside the answers of a micro-batch, for sinks that cannot say themselves what they have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal


def unless_marked(
    files: list[str], write: Callable[[], None]
) -> Literal["written", "there already", "nothing to write"]:
    """Write the answers and mark them, unless that was done; a crash between the two lets `write` be called again."""
    if not files:
        return "nothing to write"
    mark = Path(files[0]).parent / ".written"
    if mark.exists():
        return "there already"
    write()
    mark.touch()
    return "written"
