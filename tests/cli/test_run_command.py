"""`semistream run` and `semistream ledger show`, as a shell sees them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.main import main
from semistream.pipeline.config import reference
from semistream.workload import Workload, retail

EXAMPLE = Path(__file__).parents[2] / "examples" / "sales.toml"
SEMISTREAM = [sys.executable, "-m", "semistream"]


def test_the_reference_is_printed(capsys):
    assert main(["run", "--reference"]) == 0
    assert capsys.readouterr().out == reference()


def test_no_file_is_told(capsys):
    assert main(["run"]) == 1
    assert "--reference" in capsys.readouterr().err


def test_a_wrong_key_is_told(capsys, tmp_path):
    (tmp_path / "p.toml").write_text("[pipelin]\n")
    assert main(["run", str(tmp_path / "p.toml")]) == 1
    assert "Did you mean 'pipeline'?" in " ".join(capsys.readouterr().err.split())


def test_the_ledger_of_nothing(capsys, tmp_path):
    assert main(["ledger", "show", str(tmp_path)]) == 1
    assert "none in" in capsys.readouterr().err
    (tmp_path / "ledger").mkdir()
    assert main(["ledger", "show", str(tmp_path)]) == 0
    assert "no micro-batch" in capsys.readouterr().out


@pytest.fixture
def example(tmp_path):
    shutil.copy(EXAMPLE, tmp_path / "sales.toml")
    ss.build_master(retail.products(100_000, 1), tmp_path / "products", key="product_id")
    return tmp_path


@pytest.mark.spark
@pytest.mark.xdist_group("kills")
def test_the_example_runs(example, capsys):
    done = subprocess.run(
        [*SEMISTREAM, "run", "sales.toml"],
        cwd=example,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *batches, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert end["ledger"] == "the ledger is empty"
    assert end["enrichments"]["products"]["answered"] == 50_000
    assert [batch["batch"] for batch in batches] == list(range(len(batches)))
    options = {
        "keys": "zipf",
        "n_keys": "100000",
        "exponent": "1.0",
        "columns": "sale_id:position,product_id:key,quantity:int32:1:9",
        "rows": "50000",
        "seed": "2",
    }
    wanted = Workload.from_options(options).reader().read_all()
    found = pq.read_table(sorted((example / "sales").glob("*.parquet")))
    assert Counter(found["sale_id"].to_pylist()) == Counter(wanted["sale_id"].to_pylist())
    names = retail.products(100_000, 1).read_all()
    by_id = dict(zip(names["product_id"].to_pylist(), names.to_pylist(), strict=True))
    for row in found.slice(0, 500).to_pylist():
        assert {name: row[name] for name in by_id[0]} == by_id[row["product_id"]]
    assert main(["ledger", "show", str(example / "sales.toml")]) == 0
    assert "nobody waits" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.xdist_group("kills")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("on_stop", ["keep", "drain"])
def test_a_signal_ends_it_between_two_micro_batches(example, number, on_stop, capsys):
    text = (example / "sales.toml").read_text()
    text = text.replace('on_stop = "drain"', f'on_stop = "{on_stop}"').replace("available-now", "0s")
    text = text.replace("rows = 50_000", "rows = 50_000_000").replace('max_delay = "1m"', 'max_delay = "1h"')
    (example / "sales.toml").write_text(text)
    with subprocess.Popen(
        [*SEMISTREAM, "run", "sales.toml"],
        cwd=example,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Half of the usual stack: what Spark does with the error of a stop must not need all of it.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JDK_JAVA_OPTIONS": "-Xss512k"},
    ) as child:
        lines = [child.stdout.readline() for _ in range(3)]
        child.send_signal(number)
        rest, said = child.communicate(timeout=120)
    assert child.returncode == 0, said[-3000:]
    assert "terminated with error" not in said, said[-3000:]
    assert "StackOverflowError" not in said, said[:3000]
    *batches, end = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert end["ended"] == "stopped"
    accounts = end["enrichments"]["products"]
    assert accounts["arrived"] == accounts["answered"] + accounts["waiting"]
    found = pq.read_table(sorted((example / "sales").glob("*.parquet")))
    assert sum(batch["rows"] for batch in batches) == len(found) == len(set(found["sale_id"].to_pylist()))
    if on_stop == "drain":
        assert end["ledger"] == "the ledger is empty"
        assert len(found) == accounts["answered"]
    else:  # a scan puts a row out when it meets it, and lets the tuple go when it has met every page
        assert accounts["waiting"] > 0
        assert accounts["answered"] <= len(found) <= accounts["arrived"]
        assert end["ledger"].startswith(f"the ledger keeps {accounts['waiting']:,} tuples")
    assert main(["ledger", "show", "--json", str(example / "sales.toml")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sum(each["tuples"] for each in shown["waiting"]) == accounts["waiting"]
