"""Operations killed at every step: what was committed is there and whole, and work goes on."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import semistream as ss
from semistream.errors import NotAStoreError

CRASHING = Path(__file__).with_name("crashing.py")
_spec = importlib.util.spec_from_file_location("crashing", CRASHING)
crashing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crashing)

pytestmark = pytest.mark.xdist_group("crashes")  # the stores of all of them are made in one go

OLD = {row["id"]: row["v"] for row in crashing.ROWS.to_pylist()}
NEW = {row["id"]: row["v"] for row in crashing.CHANGED.to_pylist()}


BUILDS = ("build", "build by frequency", "build with spilled rows")
CHANGES = (("append", "heap"), ("upsert", "key"), ("upsert", "frequency"), ("replace", "key"))


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """For each operation the stores that it left as it was killed, and the last one, where it was not."""
    root = tmp_path_factory.mktemp("crashes")
    for layout in ("key", "frequency", "heap"):
        ss.build_master(crashing.ROWS, root / layout, layout=layout, **crashing.BUILD)
    versions = ss.build_master(crashing.ROWS, root / "versions", **crashing.BUILD)
    versions.upsert(crashing.CHANGED).delete(crashing.ROWS.slice(20)).upsert(crashing.CHANGED)
    cases = [(name, "none") for name in BUILDS] + [*CHANGES, ("vacuum", "versions")]
    arguments = []
    for operation, template in cases:
        work = root / "work" / f"{operation} {template}"
        work.mkdir(parents=True)
        arguments += [operation, str(root / template), str(work)]
    command = [sys.executable, str(CRASHING), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for operation, template in cases:
        work = root / "work" / f"{operation} {template}"
        last = max(int(path.name) for path in work.iterdir())
        assert last > 10, "so few steps cannot be all"
        found[operation, template] = [work / str(step) for step in range(1, last + 1)]
    return found


def rows(master: ss.Master) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for batch in master.scan() for row in batch.to_pylist())


def files_in(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def check_clean_after_vacuum(master: ss.Master) -> None:
    expected = rows(master)
    master.vacuum(keep_for=timedelta(0))
    needed = {"semistream-master.json", f"versions/{master.version:08d}.json"} | master.manifest.files()
    assert files_in(Path(master.path)) == needed, "vacuum removes what the killed operation left"
    assert rows(ss.open_master(master.path)) == expected
    assert master.verify().damaged == ()


@pytest.mark.parametrize("operation", BUILDS)
def test_a_build_killed_at_any_step(left_behind, operation):
    outcomes = []
    for path in left_behind[operation, "none"]:
        committed = (path / "versions" / "00000001.json").exists()
        outcomes.append(committed)
        if committed:
            found = ss.open_master(path)
            assert rows(found) == sorted(OLD.items())
            assert found.verify().damaged == ()
        else:
            with pytest.raises(NotAStoreError, match=r"found (nothing|a build that was not finished)\."):
                ss.open_master(path)
        # Building again needs nothing but the usual call.
        again = ss.build_master(
            crashing.CHANGED, path, if_exists="replace" if committed else "error", **crashing.BUILD
        )
        assert again.version == 1 + committed
        assert rows(again) == sorted(NEW.items())
        check_clean_after_vacuum(again)
    assert outcomes == sorted(outcomes), "once a version is there it stays"
    assert set(outcomes) == {False, True}


EXPECTED = {
    "append": sorted([*OLD.items(), *NEW.items()]),
    "upsert": sorted((OLD | NEW).items()),
    "replace": sorted(NEW.items()),
}


@pytest.mark.parametrize(("operation", "layout"), CHANGES)
def test_a_change_killed_at_any_step(left_behind, operation, layout):
    outcomes = []
    for path in left_behind[operation, layout]:
        committed = (path / "versions" / "00000002.json").exists()
        outcomes.append(committed)
        found = ss.open_master(path)
        assert found.version == 1 + committed
        assert rows(found) == (EXPECTED[operation] if committed else sorted(OLD.items()))
        assert found.verify().damaged == ()
        assert rows(found.at_version(1)) == sorted(OLD.items()), "the old version is untouched"
        again = crashing.OPERATIONS[operation](path)
        if not committed:
            assert rows(again) == EXPECTED[operation]
        assert again.version == found.version + 1
        check_clean_after_vacuum(again)
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def test_a_vacuum_killed_at_any_step(left_behind):
    stores = left_behind["vacuum", "versions"]
    expected = sorted((OLD | NEW).items())
    expected = [(i, v) for i, v in expected if i > 20 or i in NEW]
    for path in stores:
        found = ss.open_master(path)
        assert found.version == 4
        for version in found.versions():
            opened = found.at_version(version)
            assert opened.verify().damaged == (), "a version that can be opened can be read"
        assert rows(found) == expected
        check_clean_after_vacuum(found.append(crashing.CHANGED))
    assert ss.open_master(stores[-1]).versions() == [5]
