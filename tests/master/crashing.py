"""A process whose children kill themselves: test_crashes.py runs it.

    crashing.py OPERATION TEMPLATE WORK [OPERATION TEMPLATE WORK ...]

For each three arguments it copies the store TEMPLATE (if it exists) to WORK/1, WORK/2, ... and runs the operation on the
n-th copy in a child of its own that is killed just before the n-th change it makes to the file system; the last child
comes to its end. A write is two changes: its first half, and the whole.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

import semistream as ss
from semistream.master import sources
from semistream.master.sort import ExternalSort

ROWS = pa.table({"id": range(40, 0, -1), "n": range(40), "v": ["old" * 100] * 40})
CHANGED = pa.table({"id": [7, 41, 8], "n": [1, 2, 3], "v": ["new" * 100] * 3})
BUILD = {"key": "id", "page_bytes": 4096}
OPERATIONS = {
    "build": lambda path: ss.build_master(ROWS, path, **BUILD),
    "build by frequency": lambda path: ss.build_master(
        ROWS, path, layout="frequency", frequency="n", **BUILD
    ),
    "build with spilled rows": lambda path: ss.build_master(ROWS, path, **BUILD),
    "replace": lambda path: ss.build_master(CHANGED, path, if_exists="replace", **BUILD),
    "append": lambda path: ss.open_master(path).append(CHANGED),
    "upsert": lambda path: ss.open_master(path).upsert(CHANGED),
    "vacuum": lambda path: ss.open_master(path).vacuum(keep_for=timedelta(0)),
}
_CHANGES = (
    "mkdir",
    "link",
    "unlink",
    "rmdir",
    "open",
)  # a sync changes nothing that a killed process could miss


def kill_before(step: int) -> None:
    """Let this process die just before its `step`-th change."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(real):
        @functools.wraps(real)
        def call(*args, **kwargs):
            if real.__name__ != "open" or args[1] & os.O_CREAT:
                count()
            return real(*args, **kwargs)

        return call

    def write(descriptor: int, data: memoryview, real=os.write) -> int:
        count()
        half = real(descriptor, data[: len(data) // 2])
        count()
        return half + real(descriptor, data[half:])

    for name in _CHANGES:
        setattr(os, name, counted(getattr(os, name)))
    os.write = write


def crash_at_every_step(operation: str, template: Path, work: Path) -> None:
    for step in range(1, 1000):
        path = work / str(step)
        if template.exists():
            shutil.copytree(template, path)
        child = os.fork()
        if child == 0:
            if operation == "build with spilled rows":
                sources.ExternalSort = functools.partial(ExternalSort, memory_bytes=1)
            kill_before(step)
            OPERATIONS[operation](path)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return
        if code != -signal.SIGKILL:
            sys.exit(f"{operation} failed at step {step}")
    sys.exit(f"{operation} never came to its end")


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        OPERATIONS["build"](Path(scratch, "warm-up"))  # so that children have nothing to load or compile
    for operation, template, work in zip(*[iter(arguments)] * 3, strict=True):
        crash_at_every_step(operation, Path(template), Path(work))


if __name__ == "__main__":
    main(sys.argv[1:])
