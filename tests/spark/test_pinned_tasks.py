"""A task joins while its pin is made safe; its first answer leaves when it is."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import StoreError
from semistream.joins.registry import Settings
from semistream.master.pins import pin
from semistream.spark import worker
from semistream.spark.metrics import BatchId, Place
from semistream.spark.task import Step, Task
from semistream.spark.worker import Enrichment

QUERY = "0a1b2c3d-0000-4000-8000-123456789abc"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The micro-batch is number 5."""
    store = ss.build_master(
        pa.table({"k": range(100), "v": [f"{i}" for i in range(100)]}), tmp_path / "m", key="k"
    )
    for query in (QUERY, f"{QUERY}-at-1"):
        pin(store.storage, query, 4)  # makes the directory
    monkeypatch.setattr(worker, "_kept", {})
    monkeypatch.setattr(
        Task, "current", staticmethod(lambda collected: Task(BatchId(QUERY, 5), Place(), collected))
    )
    yield store
    for kept in worker._kept.values():
        kept.opened.close()


def task(store, *, follows=True, taken=None, how="left", first=0):
    """The answers of a task, as Spark takes them; 80 tuples, with keys from `first` on."""
    step = Step(
        "u",
        "m",
        store,
        {"c0": "k"},
        how,
        ("v",),
        "auto",
        1 << 20,
        "buffered",
        Settings(),
        follows,
        (pa.string(),),
    )

    def batches():
        for begin in (0, 20, 40, 60):
            yield pa.record_batch({"c0": pa.array(range(first + begin, first + begin + 20), pa.int64())})
            taken.set() if taken is not None and begin == 60 else None

    return Enrichment((step,))(batches())


@pytest.mark.parametrize("found", [False, True])
def test_the_first_answer_leaves_when_the_pin_is_safe(store, monkeypatch, found):
    """Also where another task made the pin: it may not have lived to see it safe."""
    if found:
        pin(store.storage, QUERY, 5)
    safe, all_sent, answered, fsync = threading.Event(), threading.Event(), threading.Event(), os.fsync

    def slow(descriptor):
        assert safe.wait(30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    rows = []

    def take():
        for batch in task(store, taken=all_sent):
            rows.append(len(batch))
            answered.set()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        assert all_sent.wait(30), "tuples are taken meanwhile"
        assert not answered.wait(0.2)
    finally:
        safe.set()
        thread.join(30)
    assert sum(rows) == 80


def broken(descriptor):
    raise OSError(5, "Input/output error")


def test_a_pin_that_cannot_be_made_safe_fails_the_task(store, monkeypatch):
    monkeypatch.setattr(os, "fsync", broken)
    for _ in range(2):  # another try finds the file, which is no safer for that
        with pytest.raises(StoreError, match="Input/output error"):
            list(task(store))


def test_that_there_is_no_answer_is_said_when_the_pin_is_safe(store, monkeypatch):
    assert list(task(store, how="inner", first=1000)) == []
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreError, match="Input/output error"):
        list(task(store, how="inner", first=1000))


def test_a_version_that_is_given_need_not_be_pinned(store, monkeypatch):
    """Vacuum would like to know; the answers are the same."""
    monkeypatch.setattr(os, "fsync", broken)
    assert sum(map(len, task(store, follows=False))) == 80
