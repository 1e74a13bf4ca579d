"""Everything that may have become of a file of soft state."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from enriching import replace_bytes

from semistream.spark.softstate import digest_of

HEADER_BYTES = 4096


def flipped(at: int):
    def damage(path: Path) -> None:
        replace_bytes(path, at, bytes([path.read_bytes()[at] ^ 0x41]))

    return damage


def cut(to: int):
    return lambda path: os.truncate(path, to)


def header(change):
    def damage(path: Path) -> None:
        said = json.loads(path.read_bytes()[:HEADER_BYTES])
        changed = change(said)
        said = said if changed is None else changed
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        replace_bytes(path, 0, text.ljust(HEADER_BYTES)[:HEADER_BYTES])

    return damage


def place(**changes):
    return header(lambda said: said["arrays"]["entries"].update(changes))


def linked(path: Path) -> None:
    real = path.parent.parent / "elsewhere"
    path.rename(real)
    path.symlink_to(real)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another_users(path: Path) -> None:
    os.chown(path, 12345, 12345)


DAMAGE = {
    "magic flipped": flipped(12),
    "digest flipped": flipped(60),
    "records flipped": flipped(HEADER_BYTES + 5_000),
    "last array flipped": lambda path: flipped(path.stat().st_size - HEADER_BYTES)(path),
    "emptied": cut(0),
    "cut in the header": cut(100),
    "cut after the header": cut(HEADER_BYTES),
    "cut in an array": cut(HEADER_BYTES + 5_000),
    "cut at its end": lambda path: cut(path.stat().st_size - 5000)(path),
    "foreign digest": header(lambda said: said.update(digest=digest_of("another master"))),
    "no json": header(lambda _: b"\xff" * 100),
    "a list": header(lambda _: []),
    "a number": header(lambda _: 3),
    "no arrays": header(lambda said: {name: value for name, value in said.items() if name != "arrays"}),
    "arrays as a list": header(lambda said: said.update(arrays=[1])),
    "deeply nested": header(lambda _: b"[" * HEADER_BYTES),
    "objects": place(dtype="|O"),
    "no such type": place(dtype="<q9"),
    "a negative place": place(at=-8),
    "a place beyond": place(at=1 << 40),
    "a negative count": place(count=-1),
    "a count beyond": place(count=1 << 40),
    "a count beyond words": place(count=1e34),
    "a count that is no number": place(count="many"),
    "an endless count": place(count=float("inf")),
    "a link": linked,
    "a directory": a_directory,
    "anybody may write": lambda path: path.chmod(0o666),
    "the group may write": lambda path: path.chmod(0o620),
    "another's": another_users,
}


def damages() -> list:
    root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
    return [
        pytest.param(damage, id=name, marks=[root] if name == "another's" else [])
        for name, damage in DAMAGE.items()
    ]
