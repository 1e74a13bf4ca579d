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
from enriching import expected, table, write_files
from killed import DRIVER_STAGES, WORKER_STAGES
from piping import letters, to_toml, values, written

import semistream as ss

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("kills")]

HERE = Path(__file__).parent
KEYS = 3000
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
            said, _ = child.communicate(timeout=400)
        finally:
            # A driver that was killed leaves its JVM, which notices, and workers: let none of them meet the next life.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, said


def campaign(folder: Path, kills: list[tuple[str, str, str]], config: dict, *, files: int) -> None:
    """Kill as listed, then let it run to its end, and compare with what must be there."""
    tuples = files * 200
    stream = table(
        k=pa.array([None if i % 97 == 0 else i * 7919 % (KEYS + 50) for i in range(tuples)], pa.int64()),
        n=pa.array(range(tuples), pa.int64()),
    )
    master = table(k=pa.array(range(KEYS), pa.int64()), v=[f"value {i} {PADDING}" for i in range(KEYS)])
    write_files(folder / "in", *[stream.slice(i * 200, 200) for i in range(files)])
    ss.build_master(master, folder / "master", key="k", page_bytes=4096)
    file = folder / "pipeline.toml"
    file.write_text(to_toml(config))
    ends: Counter = Counter()
    for kill in kills:
        code, said = start(file, *kill)
        ends[kill[0], code == 0] += 1
        if kill[0] == "worker":  # Spark tries the task again: nothing more is noticed
            assert code == 0 or "DONE" not in said, said[-3000:]
        elif kill[0] == "driver":
            assert code == -signal.SIGKILL or "DONE" in said, said[-3000:]
        else:
            assert code != 0 or "DONE" in said, said[-3000:]
    code, said = start(file)
    assert code == 0, said[-5000:]
    assert "DONE the ledger is empty" in said
    retry = config["enrich"][0].get("on_missing") == "retry"
    assert written(folder, config["sink"]["format"]) == expected(
        stream, master, {"k": "k"}, "inner" if retry else "left"
    )
    if retry:
        unmatched = [n for k, n in zip(*stream.to_pydict().values(), strict=True) if k is None or k >= KEYS]
        assert Counter(row["n"] for row in letters(folder)) == Counter(unmatched)
    assert any(not ended for _, ended in ends) or not kills


def drawn(seed: int, count: int) -> list[tuple[str, str, str]]:
    """So many kills, every stage and every victim among them if there are enough."""
    dice = random.Random(seed)
    every = [(victim, stage) for stage in DRIVER_STAGES for victim in ("driver", "jvm")]
    every += [("worker", stage) for stage in WORKER_STAGES]
    dice.shuffle(every)
    chosen = [every[i % len(every)] for i in range(count)]
    return [(victim, stage, str(dice.randint(1, 2))) for victim, stage in chosen]


def test_a_few_kills(tmp_path):
    """Of a scan that waits in the ledger: before and after it is decided, before the commit, and a worker."""
    config = values(tmp_path, sink="delta", algorithm="meshjoin", max_delay="1h", cycles=4)
    config["pipeline"]["on_stop"] = "drain"
    config["enrich"][0] |= {"on_missing": "retry", "retry_for": "0s"}
    kills = [
        ("driver", "decided", "2"),
        ("jvm", "rename", "1"),
        ("driver", "end", "1"),
        ("worker", "holding", "1"),
    ]
    campaign(tmp_path, kills, config, files=5)


SINKS = ("delta", "duckdb", "parquet")


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(ss.ALGORITHMS)), ids=ss.ALGORITHMS)
def test_fifty_kills(tmp_path, number):
    """Every algorithm; sinks, patience and what becomes of misses in turn."""
    name = ss.ALGORITHMS[number]
    config = values(tmp_path, sink=SINKS[number % 3], algorithm=name, memory="4MB")
    config["pipeline"]["on_stop"] = "drain"
    if number % 4 != 3:
        config["enrich"][0] |= {"max_delay": "1h", "cycles": 5}
    if number % 2:
        config["enrich"][0] |= {"on_missing": "retry", "retry_for": "0s"}
    kills = drawn(number, 50)
    campaign(tmp_path, kills, config, files=80)
