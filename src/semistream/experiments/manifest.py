"""On what a run was made: enough to repeat it, and nothing about whose machine it was."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parent.parent
_COUNTS = (
    "workload",
    "master",
    "memory",
    "front",
    "shedding",
    "joins",
    "cost",
    "experiments/data.py",
    "experiments/keyonly.py",
    "experiments/case.py",
    "experiments/measure.py",
    "experiments/own_frequency.py",
    "experiments/doubling.py",
    "experiments/overloaded.py",
    "experiments/updating.py",
    "experiments/pricing.py",
    "experiments/tuning.py",
)
"""What a point's numbers depend on."""


@cache
def code_fingerprint() -> str:
    """Of the code that a point's numbers depend on: where it changed, points are run anew."""
    found = sha256()
    for name in _COUNTS:
        path = _PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.exists():
                found.update(file.relative_to(_PACKAGE).as_posix().encode())
                found.update(file.read_bytes())
    return found.hexdigest()[:16]


def manifest(
    *, scale: str, seed: int, claims: tuple[str, ...], points: int, kept: int, seconds: float
) -> dict[str, Any]:
    """What the report says about the run: `kept` of its points were finished by an earlier one, `seconds` are for the others."""
    return {
        "semistream": _version("semistream"),
        "commit": _commit(),
        "code": code_fingerprint(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": scale,
        "seed": seed,
        "claims": list(claims),
        "points": points,
        "kept": kept,
        "seconds": round(seconds),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in ("pyarrow", "numpy", "numba", "matplotlib")},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _commit() -> str:
    """Of the source tree this runs from, if it is one."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty"],  # noqa: S607 - whichever git there is
            cwd=_PACKAGE,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
