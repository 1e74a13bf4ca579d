"""`semistream tune` and `semistream calibrate`."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cost.simulated import master_of, stream_of

import semistream as ss
from semistream.cli import tune
from semistream.cli.main import main
from semistream.config import parse_bytes

ROWS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    master_of(folder / "master", ROWS, "key", 1.0)
    pq.write_table(pa.Table.from_batches([next(stream_of(ROWS, 1.0, 20_000))]), folder / "sample.parquet")
    return folder


def test_a_recommendation_with_a_table_and_a_picture(folder, tmp_path, capsys):
    picture = tmp_path / "curves.png"
    words = ["tune", str(folder / "master"), "--memory", "500KB", "--sample", str(folder / "sample.parquet")]
    assert main([*words, "--on", "product_id=id", "--disk", "hdd-2007", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    for name in ("meshjoin", "hybridjoin", "cmeshjoin", "chybridjoin"):
        assert name in out
    assert "use " in out
    assert "at skew 0.9" in out or "at skew 1.0" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_least_memory_for_a_rate(folder, capsys):
    words = [
        "tune",
        str(folder / "master"),
        "--rate",
        "2000",
        "--skew",
        "1",
        "--disk",
        "hdd-2007",
        "--plot",
        "",
    ]
    assert main([*words, "--algorithm", "meshjoin"]) == 0
    assert "meshjoin within" in capsys.readouterr().out


def test_the_memory_by_part_and_the_factors_are_shown(folder, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path))
    words = ["tune", str(folder / "master"), "--memory", "1MB", "--skew", "1", "--plot", ""]
    assert main([*words, "--disk", "hdd-2007"]) == 0
    out = capsys.readouterr().out
    for column in ("disk buffer", "hot rows", "window", "index", "blocks", "tuples wait"):
        assert column in out
    assert "factors: hdd-2007" in out
    assert "calibrate" not in out
    assert main([*words, "--algorithm", "meshjoin"]) == 0
    assert "run semistream calibrate first" in " ".join(capsys.readouterr().out.split())


def test_least_memory_is_drawn_over_the_disk_buffer(folder, tmp_path, monkeypatch):
    drawn = []
    line = tune._line
    monkeypatch.setattr(tune, "_line", lambda *given: (drawn.append((given[2], given[4])), line(*given)))
    picture = tmp_path / "curves.png"
    words = ["tune", str(folder / "master"), "--skew", "1", "--disk", "hdd-2007", "--algorithm", "meshjoin"]
    assert main([*words, "--rate", "5000", "--plot", str(picture)]) == 0
    points, y = drawn[0]
    assert [y(point) for point in points] == [point.memory_bytes / 1e6 for point in points]
    assert picture.exists()


def test_the_nearest_of_all_algorithms_is_named(folder, capsys):
    def said(*words):
        assert main(["tune", str(folder / "master"), "--skew", "1", "--disk", "hdd-2007", *words]) == 1
        return capsys.readouterr().err

    each = {name: said("--rate", "1e12", "--algorithm", name) for name in tune._TUNED}
    best = {
        name: float(re.search(r"at most ([\d,]+)", text)[1].replace(",", "")) for name, text in each.items()
    }
    highest = max(best, key=best.get)
    assert said("--rate", "1e12").count(f"{highest} at ") == 1
    each = {name: said("--memory", "9KB", "--algorithm", name) for name in tune._TUNED}
    least = {name: parse_bytes(re.search(r"at least ([\d.]+ \w+)", text)[1]) for name, text in each.items()}
    assert parse_bytes(re.search(r"at least ([\d.]+ \w+)", said("--memory", "9KB"))[1]) == min(least.values())


def test_a_sample_without_tuples_is_said(folder, tmp_path, capsys):
    empty = tmp_path / "empty.parquet"
    pq.write_table(pq.read_table(folder / "sample.parquet").slice(0, 0), empty)
    assert main(["tune", str(folder / "master"), "--memory", "1MB", "--sample", str(empty)]) == 1
    assert "no tuple in it" in capsys.readouterr().err


def test_errors_are_one_line(folder, capsys):
    assert main(["tune", str(folder / "master"), "--memory", "1KB", "--skew", "1", "--disk", "hdd-2007"]) == 1
    assert "Raise memory=" in capsys.readouterr().err
    assert main(["tune", str(folder / "master"), "--memory", "1MB"]) == 1
    assert "skew= or sample=" in capsys.readouterr().err


def test_calibrate_shows_what_it_measured(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path / "cache"))
    assert main(["calibrate", "--master", str(folder / "master")]) == 0
    out = capsys.readouterr().out
    for factor in ("c_S", "c_A", "c_H", "c_O", "c_E", "c_IO"):
        assert factor in out
    assert len(list((tmp_path / "cache" / "calibration").iterdir())) == 1


def test_what_calibrate_cannot_keep_is_shown(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEMISTREAM_CACHE_DIR", str(tmp_path / "file"))
    assert main(["calibrate", "--master", str(folder / "master")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "c_IO" in out
    assert "not kept" in out


@pytest.mark.parametrize(
    ("option", "said"), [("--sample", "Give a Parquet file"), ("--plot", "no such directory")]
)
def test_files_that_are_not_there_are_said(tmp_path, capsys, option, said):
    store = tmp_path / "store"
    ss.build_master(pa.table({"id": list(range(1_000))}), store, key="id")
    words = ["tune", str(store), "--memory", "1MB", "--skew", "1", "--disk", "hdd-2007"]
    assert main([*words, option, str(tmp_path / "none" / "file")]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert "tuples/s" not in printed.out
