"""The ledger: decided once, whole or not at all, of one query, for one pipeline at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.errors import InvalidInputError, StoreError
from semistream.pipeline.ledger import Accounts, Ledger, Outcome, Waiting, ledger_at, who_waits
from semistream.pipeline.spool import Written


def outcome(folder, batch: int, *files: Written, query: str = "q") -> Outcome:
    accounts = {"products": Accounts(arrived=9, answered=4, waiting=3, shed=1, dead=1)}
    return Outcome(folder, query, batch, 1_700_000_000_000_000 + batch, files, accounts, ("products",), 5, 80)


def decide(ledger: Ledger, batch: int, *files: Written, query: str = "q") -> Outcome:
    with ledger.aside(batch) as folder:
        for file in files:
            (folder / file.name).parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({"x": range(file.rows)}), folder / file.name)
        return ledger.decide(folder, outcome(folder, batch, *files, query=query))


@pytest.fixture
def ledger(tmp_path):
    found = Ledger(tmp_path / "state")
    found.folder.mkdir(parents=True)
    return found


MISSING = Written("missing", 0, 0, "missing/0-0.parquet", 2, since_us=50, entered_us=60)
BEGUN = Written("begun", 0, 0, "begun/0-0.parquet", 1, since_us=40, entered_us=40)
ANSWERED = Written("answered", -1, 0, "answered/0-0.parquet", 4)


def test_what_was_decided_is_found_again(ledger):
    made = decide(ledger, 0, MISSING, BEGUN, ANSWERED)
    found = ledger.decided(0)
    assert found == made
    assert found.folder == ledger.folder / "000000000000"
    assert pq.read_table(found.answers[0]).num_rows == 4
    assert found.waiting == 3
    assert ledger.newest() == found
    assert who_waits(found) == [Waiting("products", "delay", 1, 40), Waiting("products", "missing", 2, 50)]


def test_what_was_not_decided_leaves_nothing(ledger):
    def fail() -> None:
        with ledger.aside(3) as folder:
            (folder / "begun").mkdir()
            raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError):
        fail()
    assert ledger.decided(3) is None
    assert list(ledger.folder.iterdir()) == []


def test_files_that_nobody_told_of_are_dropped(ledger):
    with ledger.aside(0) as folder:
        (folder / "begun").mkdir()
        (folder / "dead").mkdir()
        for name in (BEGUN.name, "begun/of-an-attempt-that-died.parquet", "dead/another.parquet"):
            pq.write_table(pa.table({"x": [1]}), folder / name)
        found = ledger.decide(folder, outcome(folder, 0, BEGUN))
    assert sorted(str(p.relative_to(found.folder)) for p in found.folder.rglob("*")) == [
        "begun",
        BEGUN.name,
        "outcome.json",
    ]


def test_a_micro_batch_begins_with_the_one_before(ledger):
    assert ledger.before(0, "q") is None
    with pytest.raises(StoreError, match="micro-batch 4"):
        ledger.before(5, "q")
    made = decide(ledger, 4, BEGUN)
    assert ledger.before(5, "q") == made
    with pytest.raises(StoreError, match="another query"):
        ledger.before(5, "other")


def test_old_ones_are_removed_and_the_last_two_stay(ledger):
    for batch in range(6):
        decide(ledger, batch, BEGUN)
    (ledger.folder / ".000000000006-dead").mkdir()
    ledger.forget_before(4)
    assert sorted(path.name for path in ledger.folder.iterdir()) == ["000000000004", "000000000005"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}'])
def test_an_outcome_that_cannot_be_read_is_told(ledger, text):
    made = decide(ledger, 0, BEGUN)
    (made.folder / "outcome.json").write_text(text)
    with pytest.raises(StoreError, match="cannot be read"):
        ledger.decided(0)


def test_one_pipeline_at_a_time(ledger, tmp_path):
    code = (
        "from pathlib import Path; import sys; from semistream.pipeline.ledger import Ledger\n"
        "with Ledger(Path(sys.argv[1])).locked(): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(ledger.state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(StoreError, match="is running"), ledger.locked():
            pass
        other.kill()
        other.wait()
    with ledger.locked():  # kill -9 leaves no lock behind
        pass


def test_the_ledger_is_found_by_file_state_or_itself(ledger, tmp_path):
    file = tmp_path / "sales.toml"
    file.write_text(
        '[pipeline]\nstate = "state"\n[source]\nformat = "rate"\n[[enrich]]\nmaster = "m"\non = "k"\n'
        '[sink]\nformat = "parquet"\npath = "out"\n'
    )
    for path in (file, ledger.state, ledger.folder):
        assert ledger_at(path) == ledger
    with pytest.raises(InvalidInputError, match="none in"):
        ledger_at(tmp_path / "nowhere")


def test_the_heartbeat_beats_when_told_to(ledger):
    from semistream.pipeline.heartbeat import HeartbeatReader

    reader = HeartbeatReader(ledger.heartbeat)
    start = reader.initialOffset()
    assert reader.latestOffset(start, None) == start  # nobody has told anything
    now_us = int(datetime.now(UTC).timestamp() * 1e6)
    ledger.beat_at(now_us + 60_000_000)
    assert reader.latestOffset(start, None) == start
    ledger.beat_at(now_us - 1)
    moved = reader.latestOffset(start, None)
    assert moved["at_us"] >= now_us
    assert reader.partitions(start, moved) == []
    ledger.beat_at(None)
    assert reader.latestOffset(moved, None) == moved
    ledger.beat_at(None, drain=True)
    assert reader.latestOffset(moved, None)["at_us"] > moved["at_us"]
    assert json.loads(ledger.heartbeat.read_text()) == {"due_us": None, "drain": True}


def test_what_is_available_now_is_one_beat(ledger):
    from semistream.pipeline.heartbeat import HeartbeatReader

    reader = HeartbeatReader(ledger.heartbeat)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    ledger.beat_at(1)
    moved = reader.latestOffset(start, None)
    assert moved != start
    assert reader.latestOffset(moved, None) == moved
