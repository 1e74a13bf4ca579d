"""Makes the virtual environment: the locked packages, semistream itself, and a Java where the machine has none.

Run by `make`; needs nothing but the Python that runs it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)


def main(folder: str) -> None:
    """Make the environment in `folder` and mark it ready."""
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        sys.exit(
            f"semistream needs Python {wanted} or newer; this is {sys.version.split()[0]}. Try: make PYTHON=python{wanted}"
        )
    home = ROOT / folder
    python = home / "bin" / "python"
    if not has_pip(python):  # none yet, or one whose making was interrupted
        say("making the virtual environment")
        try:
            venv.create(home, with_pip=True, clear=True)
        except subprocess.CalledProcessError:
            sys.exit(
                "This Python cannot make virtual environments with pip. On Debian: apt install python3-venv"
            )
    say("installing the locked packages (some minutes the first time)")
    pip(python, "--require-hashes", "-r", "requirements/lock.txt")
    pip(python, "--no-deps", "--no-build-isolation", "--editable", ".")
    # The package itself knows which Java is good enough.
    java = subprocess.run(
        [python, "-m", "semistream.spark.environment"], capture_output=True, text=True, check=False
    )
    if java.returncode:
        say(f"{java.stderr.strip()}: installing one from PyPI")
        pip(python, "--require-hashes", "-r", "requirements/java.txt")
    else:
        say(f"Java: {java.stdout.strip()}")
    (home / ".ready").touch()


def has_pip(python: Path) -> bool:
    """Whether a virtual environment is complete."""
    try:
        return (
            subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode
            == 0
        )
    except OSError:
        return False


def pip(python: Path, *arguments: str) -> None:
    """Install with the environment's own pip."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)


def say(line: str) -> None:
    """Tell the user what takes time."""
    print(f"setup: {line}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".venv")
