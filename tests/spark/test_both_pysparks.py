"""enrich() under the other PySpark that we support, in a virtual environment that is thrown away."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.long]

OTHER = {"4.2": "4.3.0", "4.3": "4.2.0"}
BESIDE = ("pandas", "pyarrow", "numpy", "numba", "pytest", "pytest-xdist")  # as they are here
TESTS = ("test_enrich.py", "test_enrich_types.py", "test_enrich_together.py")


def test_enrich_under_the_other_pyspark(tmp_path):
    here = Path(__file__).parent
    other = OTHER[version("pyspark").rpartition(".")[0]]
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    wanted = [f"pyspark=={other}", *(f"{name}=={version(name)}" for name in BESIDE)]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True, timeout=1200)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "PYSPARK_", "SPARK_"))
    }
    environment["PYTHONPATH"] = str(here.parents[1] / "src")
    done = subprocess.run(
        [python, "-m", "pytest", *(here / name for name in TESTS), "-q", "-p", "no:cacheprovider"],
        cwd=here.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    said = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == other
