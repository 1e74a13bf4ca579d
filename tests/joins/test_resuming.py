"""What a snapshot has in it at every moment, and with whom it can be gone on with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from oracle import expected, multiset

import semistream as ss
from semistream.errors import InvalidInputError
from semistream.joins import Settings
from semistream.joins.base import Snapshot

ROWS = 4000
SMALL = Settings(disk_buffer=4096, per_step=500, parallel=1)


def table_of(keys, text=""):
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "n": pa.array([f"{text}{i}" for i in range(len(keys))], pa.string()),
        }
    )


@pytest.fixture
def rows():
    return pa.table({"k": list(range(ROWS)), "v": list(range(ROWS))})


@pytest.fixture
def master(tmp_path, rows):
    return ss.build_master(rows, tmp_path / "m", key="k", page_bytes=4096)


def start(batches, master, **options):
    wanted = {"on": "k", "algorithm": "meshjoin", "memory": 200_000, "disk": "buffered", "settings": SMALL}
    return ss.join(batches, master, **{**wanted, **options})


def taken(joined, steps):
    """The output of some steps, everything of each."""
    out: Counter = Counter()
    for _ in range(steps):
        for batch in next(joined._steps):
            out += multiset(pa.Table.from_batches([batch]))
    return out


def rest_of(joined):
    return sum((multiset(pa.Table.from_batches([batch])) for batch in joined), Counter())


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "inlj", "cmeshjoin"])
def test_a_batch_is_kept_while_the_old_version_is_drained(master, rows, algorithm):
    """It was taken from the stream, and has not arrived as long as others are answered from the old version."""
    stream = table_of(range(1000))
    first, second = stream.slice(0, 500).to_batches()[0], stream.slice(500).to_batches()[0]

    def source():
        yield first
        master.upsert(pa.table({"k": [1], "v": [-1]}))
        yield second

    options = {"algorithm": algorithm, "versions": "newest", "memory": 300_000}
    for step in range(2, 40):
        joined = start(source(), master, **options)
        out = taken(joined, step)
        if joined._driver.coming is None:
            continue
        kept = joined.snapshot()
        joined._steps.close()
        version = int(kept.schema.metadata[b"semistream.version"])
        resumed = start(
            stream.slice(0, 0), ss.open_master(master.path, version=version), resume=kept, **options
        )
        numbers = Counter(row[1] for row in (out + rest_of(resumed)).elements())
        assert numbers == Counter(stream["n"].to_pylist())
        return
    pytest.fail("no step ended while the old version was drained")


@pytest.mark.parametrize(
    "algorithm", ["hybridjoin", "inlj", "x-hybridjoin", "chybridjoin", "cinlj", "in-memory"]
)
def test_only_a_scan_goes_on_with_tuples_that_have_met_a_part_of_the_master(master, algorithm):
    joined = start(table_of(range(1000)), master)
    taken(joined, 4)
    kept = joined.snapshot()
    with pytest.raises(InvalidInputError, match="Go on with meshjoin, r-meshjoin or cmeshjoin"):
        list(start(table_of([]), master, algorithm=algorithm, memory="4MB", resume=kept))


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "cmeshjoin"])
def test_auto_goes_on_with_the_scan_it_was(master, rows, algorithm):
    stream = table_of(range(1000))
    joined = start(stream, master, algorithm=algorithm)
    out = taken(joined, 4)
    kept = joined.snapshot()
    resumed = start(table_of([]), master, algorithm="auto", settings=None, resume=kept)
    assert resumed.stats.plan.startswith(algorithm)
    assert out + rest_of(resumed) == expected(stream, rows, ["k"], "inner")


@pytest.mark.parametrize("algorithm", ["meshjoin", "hybridjoin", "in-memory"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_tuples_without_a_key_are_kept(master, rows, algorithm, steps):
    """Those of a batch that was taken from the stream to be looked at are in a snapshot as they came."""
    stream = table_of([None, 1, None, 2, ROWS + 1])
    options = {"how": "left", "algorithm": algorithm, "memory": "4MB"}
    joined = start(stream, master, **options)
    out = taken(joined, steps)
    resumed = start(table_of([]), master, resume=joined.snapshot(), **options)
    assert out + rest_of(resumed) == expected(stream, rows, ["k"], "left")
    assert resumed.stats.tuples == resumed.stats.answered


def test_a_join_that_has_not_begun_to_resume_keeps_what_it_resumes(master, rows):
    stream, more = table_of(range(1000)), table_of(range(20, 30))
    joined = start(stream, master)
    out = taken(joined, 4)
    again = start(more, master, resume=joined.snapshot())
    resumed = start(table_of([]), master, resume=again.snapshot())
    both = pa.concat_tables([stream, more])
    assert out + rest_of(resumed) == expected(both, rows, ["k"], "inner")


def test_a_snapshot_of_nobody_is_a_sound_batch(master):
    """Also where memory is not zero when it is given out."""
    code = (
        "import sys, pyarrow as pa, semistream as ss\n"
        "stream = pa.table({'k': pa.array([], pa.int64()), 'n': pa.array([], pa.string())})\n"
        "joined = ss.join(stream, ss.open_master(sys.argv[1]), on='k', algorithm='meshjoin', memory='1MB', disk='buffered')\n"
        "list(joined)\n"
        "joined.snapshot().validate(full=True)\n"
        "assert joined.snapshot().column('n').buffers()[1].to_pybytes()[:4] == bytes(4)\n"
    )
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    subprocess.run([sys.executable, "-c", code, str(master.path)], check=True, env=environment)


@pytest.mark.parametrize("text", ["", "a rather long text before the number " * 20])
def test_a_full_window_is_resumed_in_the_memory_it_had_when_the_stream_has_ended(master, rows, text):
    stream = table_of([key % ROWS for key in range(20_000)], text)
    options = {"algorithm": "r-meshjoin", "settings": Settings(disk_buffer=4096)}
    joined = start(stream, master, **options)
    out = taken(joined, 4)
    assert joined._driver.opened.join.room == 0
    kept, driver = joined.snapshot(), joined._driver
    kept = Snapshot.from_arrow(kept)  # without those that had no room: the stream would bring them again
    count = driver.opened.join.pending
    kept = replace(kept, tuples=kept.tuples[:count], met=kept.met[:count], matched=kept.matched[:count])
    resumed = start(stream.slice(0, 0), master, resume=kept.to_arrow(), **options)
    answered = driver.stats.answered
    assert out + rest_of(resumed) == expected(stream.slice(0, answered + count), rows, ["k"], "inner")


def test_a_plan_that_nobody_wrote_is_refused(master):
    joined = start(table_of(range(1000)), master)
    taken(joined, 4)
    kept = joined.snapshot()
    metadata = kept.schema.metadata
    for bad in (b"[", b"{}", b'{"algorithm": "x", "heap_bytes": 1, "settings": {}}'):
        forged = kept.replace_schema_metadata({**metadata, b"semistream.plan": bad})
        with pytest.raises(InvalidInputError, match=r"Pass what snapshot\(\) gave"):
            start(table_of([]), master, resume=forged)
