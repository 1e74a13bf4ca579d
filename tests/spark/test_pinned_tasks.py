"""A task answers while its pin is made safe, and ends when it is: only then can its micro-batch be committed."""

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
from semistream.spark.worker import Enrichment, Step, Task

QUERY = "0a1b2c3d-0000-4000-8000-123456789abc"


@pytest.fixture
def task(tmp_path, monkeypatch):
    """The batches of a task of micro-batch 5, as Spark takes them."""
    store = ss.build_master(
        pa.table({"k": range(100), "v": [f"{i}" for i in range(100)]}), tmp_path / "m", key="k"
    )
    step = Step(
        "u",
        "m",
        store,
        {"c0": "k"},
        "left",
        ("v",),
        "auto",
        1 << 20,
        "buffered",
        Settings(),
        True,
        (pa.string(),),
    )
    pin(store.storage, QUERY, 4)  # makes the directory
    monkeypatch.setattr(worker, "_kept", {})
    monkeypatch.setattr(
        Task, "current", staticmethod(lambda collected: Task(BatchId(QUERY, 5), Place(), collected))
    )
    yield lambda: Enrichment((step,))(iter([pa.record_batch({"c0": pa.array(range(50), pa.int64())})]))
    for kept in worker._kept.values():
        kept.opened.close()


def test_a_task_ends_when_its_pin_is_safe(task, monkeypatch):
    safe, fsync = threading.Event(), os.fsync

    def slow(descriptor):
        assert safe.wait(30)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    batches, ended = task(), threading.Event()
    rows = 0
    taken = threading.Event()

    def take():
        nonlocal rows
        for batch in batches:
            rows += len(batch)
            taken.set()
        ended.set()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        assert taken.wait(30), "answers do not wait"
        assert not ended.wait(0.2), "the task does"
    finally:
        safe.set()
        thread.join(30)
    assert ended.is_set()
    assert rows == 50


def test_a_pin_that_cannot_be_made_safe_fails_the_task(task, monkeypatch):

    def broken(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreError, match="Input/output error"):
        list(task())
