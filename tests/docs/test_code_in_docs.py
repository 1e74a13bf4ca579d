"""The code blocks of the README and the docs are run as they stand, each page in a directory of its own."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(python|console|text|sh)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(kind, body) for kind, body in BLOCK.findall(page.read_text())]


def runnable(page: Path) -> bool:
    return any(kind in ("python", "console") for kind, _ in blocks(page))


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch, request):
    """A `text` block right after a `python` block is what it prints; `console` blocks are run by the shell's rules."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    found = blocks(page)
    if any(kind == "python" and re.search(r"\bspark\b", body) for kind, body in found):
        names["spark"] = request.getfixturevalue("spark")
    for (kind, body), following in zip(found, [*found[1:], ("", "")], strict=True):
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(body, str(page), "exec"), names)  # noqa: S102 - the page's own code
            if following[0] == "text":
                assert masked(printed.getvalue()) == masked(following[1])
        elif kind == "console":
            check_console(body)


def check_console(body: str) -> None:
    command = None
    shown: list[str] = []
    for line in [*body.splitlines(), "$ "]:
        if line.startswith("$ "):
            if command is not None:
                run = [*shlex.split(command)]
                if run[0] == "semistream":
                    run = [sys.executable, "-m", "semistream", *run[1:]]
                done = subprocess.run(run, capture_output=True, text=True, check=True)
                if shown:
                    assert masked(done.stdout) == masked("\n".join(shown))
            command, shown = line[2:], []
        else:
            shown.append(line)


def masked(text: str) -> str:
    """What is compared: everything but spacing, and figures that are dates or rates."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<when>", text)
    text = re.sub(r"[\d.,]+ s \([\d,]+ rows/s\)", "<rate>", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
