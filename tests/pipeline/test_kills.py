"""kill -9 of the driver, its JVM or a worker, at every stage of a micro-batch: nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from enriching import table, write_files
from killed import DRIVER_STAGES, WORKER_STAGES
from piping import letters, to_toml, values, written

import semistream as ss
from semistream.pipeline.ledger import Ledger

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("kills")]

HERE = Path(__file__).parent
KEYS = 1000
PADDING = "." * 300  # a dozen rows a page


def start(file: Path, *how: str) -> tuple[int, str]:
    """One life of the pipeline; gives how it ended, and what it said."""
    path = os.pathsep.join([str(HERE), str(HERE.parent / "spark"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_DIRS": str(file.parent / "local")}
    with subprocess.Popen(
        [sys.executable, HERE / "killed.py", file, *how],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as child:
        try:
            said, _ = child.communicate(timeout=900)
        finally:
            # A driver that was killed leaves its JVM, which notices, and workers: let none of them meet the next life.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, said


def stream_of(files: int) -> list[pa.Table]:
    """A file a micro-batch: every fifth brings four times as many tuples as the others. Some have no key, some one of no row."""
    parts, first = [], 0
    for number in range(files):
        numbers = range(first, first + (400 if number % 5 == 1 else 100))
        keys = [None if n % 97 == 0 else n * 7919 % (KEYS + 50) for n in numbers]
        parts.append(table(k=pa.array(keys, pa.int64()), n=pa.array(numbers, pa.int64())))
        first = numbers.stop
    return parts


def campaign(folder: Path, kills: list[tuple[str, str, str]], config: dict) -> None:
    """Kill as listed, then let it run to its end, and compare with what must be there."""
    # Every life dies: there is a file for each micro-batch that one may finish before it does.
    parts = stream_of(sum(int(count) for _, _, count in kills) + 1)
    write_files(folder / "in", *parts)
    for enrichment in config["enrich"]:
        name = enrichment["master"]
        rows = table(k=range(KEYS), **{f"v_{name}": [f"{name} {i} {PADDING}" for i in range(KEYS)]})
        ss.build_master(rows, folder / name, key="k", page_bytes=4096)
    file = folder / "pipeline.toml"
    file.write_text(to_toml(config))
    for number, kill in enumerate(kills):
        code, said = start(file, *kill)
        with (folder / "lives.txt").open("a") as lives:
            lives.write(f"{number} {' '.join(kill)}: {code}\n")
        assert "DONE" not in said, (kill, said[-3000:])
        assert code != 0 if kill[0] == "jvm" else code == -signal.SIGKILL, (kill, said[-3000:])
    assert len(list(folder.glob("*.died"))) == sum(kill[0] == "worker" for kill in kills)
    check_the_end(folder, config, pa.concat_tables(parts))


def check_the_end(folder: Path, config: dict, stream: pa.Table) -> None:
    """Let it live to its end: every tuple is where it must be, once."""
    code, said = start(folder / "pipeline.toml")
    assert code == 0, said[-5000:]
    assert "DONE the ledger is empty" in said
    assert Ledger(folder / "state").newest().load.overloads > 0
    names = [enrichment["master"] for enrichment in config["enrich"]]
    wanted, dead = Counter(), Counter()
    for row in stream.to_pylist():
        k, n = row["k"], row["n"]
        if k is None or k >= KEYS:
            dead[n] += 1
        else:
            wanted[k, n, *(f"{name} {k} {PADDING}" for name in names)] += 1
    assert written(folder, config["sink"]["format"]) == wanted
    (retried,) = [e["master"] for e in config["enrich"] if e.get("on_missing") == "retry"]
    assert Counter(row["n"] for row in letters(folder, retried)) == dead


def drawn(seed: int, count: int) -> list[tuple[str, str, str]]:
    """So many kills, every stage and every victim among them if there are enough."""
    dice = random.Random(seed)
    every = [(victim, stage) for stage in DRIVER_STAGES for victim in ("driver", "jvm")]
    every += [("worker", stage) for stage in WORKER_STAGES]
    dice.shuffle(every)
    chosen = [every[i % len(every)] for i in range(count)]
    return [(victim, stage, str(dice.choice((1, 1, 1, 2)))) for victim, stage in chosen]


def test_a_few_kills(tmp_path):
    """Of a scan that waits in the ledger, while tuples are shed: before and after it is decided, before the commit, and a worker."""
    config = values(tmp_path, sink="delta", algorithm="cmeshjoin", max_delay="1h", cycles=4)
    config["pipeline"]["on_stop"] = "drain"
    config["enrich"][0] |= {"on_missing": "retry", "retry_for": "0s"}
    config["overload"] = {"strategy": "considering", "batch_limit": 150}
    kills = [
        ("driver", "decided", "2"),
        ("jvm", "rename", "1"),
        ("driver", "rationed", "1"),
        ("worker", "holding", "1"),
    ]
    campaign(tmp_path, kills, config)


SINKS = ("delta", "duckdb", "parquet", "orc")
SHEDDING = ("random", "upfront", "considering", "considering")


def every_algorithm(tmp_path: Path, sink: str) -> dict:
    """All in one pipeline; each has tuples of its own waiting in the ledger with one sink or another."""
    turn = SINKS.index(sink)
    names = [*ss.ALGORITHMS[3 * turn :], *ss.ALGORITHMS[: 3 * turn]]
    config = values(tmp_path, sink=sink)
    config["enrich"] = [
        {"master": f"m{number}", "on": "k", "memory": "4MB", "algorithm": name}
        for number, name in enumerate(names)
    ]
    # Some wait for the next life, not for the end: every micro-batch has answers for the sink.
    config["enrich"][0] |= {"max_delay": "10s", "cycles": 3}
    config["enrich"][1] |= {"max_delay": "10s", "cycles": 4}
    config["enrich"][2] |= {"on_missing": "retry", "retry_for": "0s", "max_delay": "10s", "cycles": 2}
    config["pipeline"]["on_stop"] = "drain"
    config["overload"] = {"strategy": SHEDDING[turn], "batch_limit": 150}
    return config


@pytest.mark.long
@pytest.mark.parametrize("sink", SINKS)
def test_fifty_kills(tmp_path, sink):
    campaign(tmp_path, drawn(SINKS.index(sink), 50), every_algorithm(tmp_path, sink))
