from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.main import main
from semistream.config import parse_duration
from semistream.errors import InvalidInputError


@pytest.fixture
def parquet(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    for part in range(3):
        ids = list(range(part, 3000, 3))
        pq.write_table(
            pa.table({"id": ids, "hits": ids[::-1], "name": [f"n{i}" for i in ids]}),
            folder / f"{part}.parquet",
        )
    return folder


def test_build_info_verify_vacuum(parquet, tmp_path, capsys):
    store = str(tmp_path / "store")
    assert main(["master", "build", str(parquet), store, "--key", "id", "--page-bytes", "4KiB"]) == 0
    out = capsys.readouterr().out
    assert "3,000, 3,000 keys, at most 1 rows a key" in out
    assert "rows/s" in out
    master = ss.open_master(store)
    assert pa.Table.from_batches(master.scan())["id"].to_pylist() == list(range(3000))

    assert main(["master", "info", store, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["data"]["rows"], record["version"], record["versions"]) == (3000, 1, [1])

    master.delete(pa.table({"id": [5]}))
    assert main(["master", "verify", store]) == 0
    assert "2,999 rows" in capsys.readouterr().out
    assert main(["master", "info", store, "--version", "1"]) == 0
    assert "3,000" in capsys.readouterr().out
    assert main(["master", "vacuum", store]) == 0
    assert "removed versions: none" in capsys.readouterr().out
    assert main(["master", "vacuum", store, "--keep-for", "0s"]) == 0
    assert "removed versions: 1" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"semistream {metadata.version('semistream')}\n"


def test_several_sources_composite_key_and_frequency(parquet, tmp_path, capsys):
    store = str(tmp_path / "store")
    words = [str(parquet / "0.parquet"), str(parquet / "1.parquet"), store, "--key", "id, name"]
    assert main(["master", "build", *words, "--layout", "frequency", "--frequency", "hits"]) == 0
    master = ss.open_master(store)
    assert master.key == ("id", "name")
    hits = pa.Table.from_batches(master.scan())["hits"].to_pylist()
    assert hits == sorted(hits, reverse=True)
    assert len(hits) == 2000


def test_a_second_build_needs_replace(parquet, tmp_path, capsys):
    words = ["master", "build", str(parquet), str(tmp_path / "store"), "--key", "id"]
    assert main(words) == 0
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "found a store with version 1" in error
    assert "Pass if_exists='replace'" in error
    assert main([*words, "--replace"]) == 0
    assert ss.open_master(tmp_path / "store").version == 2


def test_damage_is_named_and_the_exit_code_says_so(parquet, tmp_path, capsys):
    store = tmp_path / "store"
    master = ss.build_master(str(parquet), store, key="id", page_bytes=4096)
    offset = int(master.index.extents(np.array([3])).offset[0])
    with (store / master.manifest.data.files[0]).open("r+b") as file:
        file.seek(offset + 100)
        byte = file.read(1)[0]
        file.seek(offset + 100)
        file.write(bytes([byte ^ 1]))
    assert main(["master", "verify", str(store)]) == 1
    out = capsys.readouterr().out
    assert str(offset) in out.replace(",", "")
    assert f"{master.pages - 1:,} of {master.pages:,} pages" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["master", "info", "nowhere"], "found nothing"),
        (["master", "build", "nowhere.parquet", "store", "--key", "id"], "nowhere.parquet"),
        (["master", "vacuum", ".", "--keep-for", "soon"], "found other files"),
        (["demo", "--rows", "0"], "Ask for at least one"),
    ],
)
def test_errors_are_one_line_and_exit_with_one(words, expected, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_wrong_words_exit_with_two(capsys):
    for words in ([], ["master"], ["master", "build"], ["master", "fly"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 2


def test_durations():
    assert parse_duration("90m").total_seconds() == 5400
    assert parse_duration(" 1.5 h").total_seconds() == 5400
    assert parse_duration("7d").total_seconds() == 7 * 86400
    with pytest.raises(InvalidInputError, match="soon"):
        parse_duration("soon")


def test_the_command_is_installed():
    done = subprocess.run(
        [sys.executable, "-m", "semistream", "--help"], capture_output=True, text=True, check=True
    )
    assert "master" in done.stdout


def test_import_needs_no_extra(tmp_path):
    """The core works with pyarrow, numpy and numba alone."""
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyspark', 'rich', 'pandas', 'matplotlib', 'tpchgen'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import pyarrow as pa, semistream as ss, semistream.workload\n"
        "t = pa.table({'k': [1, 2], 'v': [3, 4]})\n"
        "m = ss.build_master(t, sys.argv[1], key='k')\n"
        "for a in ss.ALGORITHMS:\n"
        "    joined = ss.join(t.select(['k']), m, on='k', algorithm=a, memory='4MB')\n"
        "    assert sum(map(len, joined)) == 2, a\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "m"], check=True)


def test_the_demo_does_not_delete_what_is_not_its_own(tmp_path, capsys):
    (tmp_path / "products").mkdir()
    (tmp_path / "products" / "data.txt").write_text("precious")
    assert main(["demo", "--rows", "10", "--folder", str(tmp_path)]) == 1
    assert "nothing was changed" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "products" / "data.txt").read_text() == "precious"


def test_odd_names_are_shown_as_they_are(tmp_path, capsys):
    ss.build_master(pa.table({"[/a]": [1]}), tmp_path / "[red]store", key="[/a]")
    assert main(["master", "info", str(tmp_path / "[red]store")]) == 0
    out = capsys.readouterr().out
    assert "key [/a]" in out
    assert str(tmp_path / "[red]store") in "".join(out.split())


def test_a_time_beyond_measure_is_an_error():
    with pytest.raises(InvalidInputError, match="1000000000d"):
        parse_duration("1000000000d")
