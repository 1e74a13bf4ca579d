"""A pipeline's file: what it may say, and how it is told what it may not."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from piping import to_toml, values

from semistream.errors import InvalidInputError, StoreError
from semistream.pipeline.config import PipelineConfig, reference


def read(config: dict, folder: Path = Path("/somewhere")) -> PipelineConfig:
    return PipelineConfig.from_values(config, folder=folder)


def test_the_reference_file_shows_every_key_with_its_default():
    shown = tomllib.loads(reference())
    least = {
        "source": {name: shown["source"][name] for name in ("format", "path", "schema")},
        "enrich": [{name: shown["enrich"][0][name] for name in ("master", "on")}],
        "sink": {name: shown["sink"][name] for name in ("format", "path")},
    }
    folder = Path("/somewhere")
    full = PipelineConfig.from_values(shown, folder=folder, name="reference")
    assert full == PipelineConfig.from_values(least, folder=folder, name="reference")
    # Keys that have no default stand there in a comment.
    named = {key for table in ("pipeline", "source", "sink", "overload") for key in shown[table]} | set(
        shown["enrich"][0]
    )
    named |= set(re.findall(r"^# (\w+) = ", reference(), re.MULTILINE))
    for table, keys in {
        "pipeline": ("name", "state", "trigger", "on_stop"),
        "enrich": vars(full.enrichments[0]).keys() - {"memory_bytes"} | {"memory"},
        "sink": vars(full.sink).keys(),
        "source": vars(full.source).keys(),
        "overload": ("strategy", "fate", "batch_limit", "batch_time", "sum_of"),
    }.items():
        assert set(keys) <= named, table


def test_paths_are_relative_to_the_file(tmp_path):
    file = tmp_path / "sales.toml"
    config = values(tmp_path)
    del config["pipeline"]["name"], config["pipeline"]["state"]
    file.write_text(to_toml(config))
    found = PipelineConfig.from_file(file)
    assert found.name == "sales"
    assert found.state == tmp_path / "sales-state"
    assert found.enrichments[0].master == str(tmp_path / "master")
    assert found.sink.path == str(tmp_path / "out")
    assert found.source.options == {"maxFilesPerTrigger": "1"}
    assert found.sink.dead_letters == str(tmp_path / "sales-state" / "dead-letters")


def test_what_has_a_scheme_stays_as_it_is():
    config = values(Path("/"), sink="delta")
    config["enrich"][0]["master"] = "s3://bucket/products"
    config["sink"]["path"] = "s3://bucket/sales"
    found = read(config)
    assert found.enrichments[0].master == "s3://bucket/products"
    assert found.sink.path == "s3://bucket/sales"


def test_times_sizes_and_keys_are_understood():
    config = values(Path("/"), max_delay="1.5m", retry_for="2h", on={"item": "k"}, columns=["v"])
    config["pipeline"]["trigger"] = "250ms"
    found = read(config)
    assert found.trigger == timedelta(milliseconds=250)
    assert found.enrichments[0].max_delay == timedelta(seconds=90)
    assert found.enrichments[0].on == {"item": "k"}
    assert found.enrichments[0].memory_bytes == 2_000_000
    assert found.enrichments[0].holds
    assert not read(values(Path("/"))).enrichments[0].holds
    assert read(values(Path("/"), on_missing="retry")).enrichments[0].holds


def change(path: str, value: object) -> dict:
    config: dict = values(Path("/"))
    *tables, key = path.split(".")
    target: dict = config
    for name in tables:
        target = target[name][0] if name == "enrich" else target[name]
    if value is None:
        del target[key]
    else:
        target[key] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "asked", "hint"),
    [
        ("enrich.max_dealy", "3s", "'max_dealy' in enrich[0]", "Did you mean 'max_delay'?"),
        ("pipeline.triger", "3s", "'triger' in pipeline", "Did you mean 'trigger'?"),
        ("sinc", {}, "'sinc' in the file", "Did you mean 'sink'?"),
        ("sink.zebra", "x", "'zebra' in sink", "It has format"),
        ("enrich.max_delay", 3, "enrich[0].max_delay = 3", 'such as "10s"'),
        ("enrich.max_delay", "soon", "enrich[0].max_delay = 'soon'", "Write 500ms"),
        ("enrich.memory", 1.5, "enrich[0].memory = 1.5", "64MB"),
        ("enrich.memory", "lots", "enrich[0].memory='lots'", "64MB"),
        ("enrich.cycles", "3", "enrich[0].cycles = '3'", "a whole number"),
        ("enrich.cycles", -1, "enrich[0].cycles = -1", "at least 0"),
        ("enrich.cycles", True, "enrich[0].cycles = True", "a whole number"),
        ("enrich.columns", "price", "enrich[0].columns = 'price'", "a list of names"),
        ("enrich.on", 3, "enrich[0].on = 3", "a name"),
        ("enrich.on", None, "enrich[0] without 'on'", "Add on ="),
        ("enrich.on_missing", "nul", "enrich[0].on_missing = 'nul'", "Did you mean 'null'?"),
        ("enrich.algorithm", "meshjoin2", "algorithm='meshjoin2'", "Did you mean 'meshjoin'?"),
        ("source.format", None, "source without 'format'", "Add format"),
        ("source.format", 7, "source.format = 7", "text in quotes"),
        ("source.options", "x", "source.options = 'x'", "a table of options"),
        ("source.options.nested", [1], "source.options.nested", "Give text"),
        ("sink.path", None, "a parquet sink", 'path = "..."'),
        ("sink.path", "s3://bucket/x", "sink.path = 's3://bucket/x'", "file system"),
        ("pipeline.state", "s3://bucket/x", "pipeline.state = 's3://bucket/x'", "file system"),
        ("enrich", {}, "enrich = {}", "[[enrich]]"),
        ("enrich", [], "a pipeline", "at least one master"),
        ("pipeline", 3, "pipeline = 3", "a table"),
        ("overload", {"strateg": "none"}, "'strateg' in overload", "Did you mean 'strategy'?"),
        ("overload", {"strategy": "upfrnt"}, "overload.strategy = 'upfrnt'", "Did you mean 'upfront'?"),
        ("overload", {"fate": "lost"}, "overload.fate = 'lost'", "later, dropped"),
        ("overload", {"strategy": "random"}, "overload.strategy = 'random'", "overload.batch_limit"),
        ("overload", {"batch_limit": 5, "batch_time": "1s"}, "overload.batch_limit = 5", "one of them"),
        ("overload", {"sum_of": ["v"]}, "overload.sum_of", 'fate = "dropped"'),
    ],
)
def test_what_is_wrong_is_named(path, value, asked, hint):
    config = change(path, value) if "." in path else {**values(Path("/")), path: value}
    with pytest.raises(InvalidInputError) as caught:
        read(config)
    assert asked in caught.value.asked
    assert hint in caught.value.hint


def test_overload_may_be_given_apart_from_the_file(tmp_path):
    file = tmp_path / "sales.toml"
    config = {**values(tmp_path), "overload": {"strategy": "upfront", "batch_limit": 7}}
    config["pipeline"]["trigger"] = "20s"
    file.write_text(to_toml(config))
    assert PipelineConfig.from_file(file).overload.batch_limit == 7
    other = PipelineConfig.from_file(file, overload={"strategy": "considering"}).overload
    assert (other.shedding.strategy, other.batch_limit) == ("considering", 0)
    assert other.batch_time == timedelta(seconds=20)


def test_files_that_are_none(tmp_path):
    with pytest.raises(StoreError, match=r"No such file"):
        PipelineConfig.from_file(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[pipeline\n")
    with pytest.raises(InvalidInputError, match="line 1"):
        PipelineConfig.from_file(tmp_path / "bad.toml")
