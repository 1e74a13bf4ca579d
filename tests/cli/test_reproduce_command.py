"""`semistream reproduce` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from semistream.cli.main import main


def test_an_unknown_claim_is_said_and_nothing_is_made(tmp_path, capsys):
    assert main(["reproduce", "M11", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "no such claim" in said
    assert "Did you mean M1?" in said
    assert not (tmp_path / "out").exists()


def test_an_unknown_scale_is_said(tmp_path, capsys):
    assert main(["reproduce", "M1", "--scale", "smal", "--out", str(tmp_path / "out")]) == 1
    assert "Did you mean 'small'?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--out", "--docs"])
def test_a_place_that_cannot_be_written_is_said_before_the_run(tmp_path, capsys, option):
    taken = tmp_path / "file"
    taken.touch()
    assert main(["reproduce", "M1", "--out", str(tmp_path / "out"), option, str(taken)]) == 1
    assert "error writing" in capsys.readouterr().err
    assert not (tmp_path / "out" / "data").exists()


def test_the_grid_has_no_claims(tmp_path, capsys):
    assert main(["reproduce", "M1", "--grid", "--out", str(tmp_path / "out")]) == 1
    assert "Leave out either." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_grid_has_no_other_scale(tmp_path, capsys):
    assert main(["reproduce", "--grid", "--scale", "small", "--out", str(tmp_path / "out")]) == 1
    assert "Leave out --scale." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", [["--jobs", "0"], ["--seed", "-1"]])
def test_numbers_that_make_no_sense_are_refused(tmp_path, capsys, option):
    assert main(["reproduce", "M1", *option, "--out", str(tmp_path / "out")]) == 1
    assert "error" in capsys.readouterr().err


def test_a_small_run_says_its_verdicts_and_writes_its_report(tmp_path, capsys):
    words = [
        "reproduce",
        "D4",
        "--scale",
        "small",
        "--jobs",
        "1",
        "--clock",
        "virtual",
        "--out",
        str(tmp_path),
    ]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "reproduced" in printed.out
    assert "report.html" in printed.out
    assert "points" in printed.err
    for name in (
        "report.html",
        "README.md",
        "manifest.json",
        "summary.json",
        "csv/d4_io_cost.csv",
        "figures/d4_io_cost.svg",
    ):
        assert (tmp_path / name).exists()
    assert main([*words, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["claim"] == "D4"
    assert row["outcome"] == "reproduced"


def test_a_run_that_is_killed_leaves_no_process_behind(tmp_path):
    words = ["reproduce", "X1", "--scale", "small", "--jobs", "2", "--clock", "virtual"]
    run = subprocess.Popen(
        [sys.executable, "-m", "semistream", *words, "--out", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        seen = until(lambda: len(found := processes_of(tmp_path)) > 2 and found, 60)
        assert run.pid in seen
    finally:
        run.kill()
        run.wait()
    assert until(lambda: not [pid for pid in seen if Path(f"/proc/{pid}").exists()], 20)


def processes_of(out):
    """Who was started for a run: itself, and who has it, or one of those, for a parent."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2]
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[pid] = int(rest.split()[1]), str(out).encode() in command
    ours = {pid for pid, (_, named) in parents.items() if named}
    return ours | {pid for pid, (parent, _) in parents.items() if parent in ours}


def until(found, seconds):
    """What is found within so many seconds."""
    end = time.monotonic() + seconds
    while not (result := found()) and time.monotonic() < end:
        time.sleep(0.1)
    return result
