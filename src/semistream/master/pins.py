"""Which version of a master each micro-batch of a query was answered from.

A micro-batch that is run again, by another task, after a crash or elsewhere, must see the rows it saw first. So the first
task of a micro-batch pins the version that is current then, in a file of the store that only one of them can create;
everybody else goes by it. Vacuum keeps what the last micro-batches of a query were pinned to.

    pins/<query>/<micro-batch>.json     {"version": 3}
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

from semistream.errors import ConcurrentChangeError, InvalidInputError, StoreError
from semistream.master.manifest import latest_version
from semistream.master.storage import Storage

FOLDER = "pins"
KEPT_BATCHES = 100  # as many as Spark's own logs hold
KEPT_FOR = timedelta(days=30)  # a query that has not run for so long will not replay
_REPLAYABLE = 2  # micro-batches of a query that may still be run again


def pin(storage: Storage, query: str, batch: int) -> int:
    """The version that a micro-batch is answered from: pinned now, or earlier."""
    if not re.fullmatch(r"[0-9a-zA-Z-]{1,64}", query) or batch < 0:
        raise InvalidInputError(
            f"pinning micro-batch {batch} of query {query!r}", found="no query id", hint="Use Spark's."
        )
    name = _name(query, batch)
    found = _read(storage, name)
    if found is not None:
        return found
    version = latest_version(storage)
    try:
        storage.put_new(name, json.dumps({"version": version}).encode())
    except ConcurrentChangeError:
        found = _read(storage, name)
        if found is None:
            raise
        return found
    if batch >= KEPT_BATCHES:
        storage.delete(_name(query, batch - KEPT_BATCHES))
    return version


def pinned_versions(storage: Storage, *, now: datetime | None = None) -> tuple[set[int], list[str]]:
    """Versions that a query may have to read again, and the files of pins that nobody needs any more."""
    deadline = (now or datetime.now(UTC)) - KEPT_FOR
    by_query: dict[str, list[tuple[str, datetime]]] = {}
    for stored in storage.list(FOLDER):
        by_query.setdefault(stored.name.rsplit("/", 1)[0], []).append((stored.name, stored.modified))
    needed: set[int] = set()
    stale: list[str] = []
    for pins in by_query.values():
        pins.sort()
        if pins[-1][1] <= deadline:
            stale += [name for name, _ in pins]
            continue
        for name, _ in pins[-_REPLAYABLE:]:
            version = _read(storage, name)
            needed |= {version} if version is not None else set()
    return needed, stale


def _name(query: str, batch: int) -> str:
    return f"{FOLDER}/{query}/{batch:012d}.json"


def _read(storage: Storage, name: str) -> int | None:
    try:
        data = storage.get(name)
    except FileNotFoundError:
        return None
    try:
        version = json.loads(data)["version"]
    except (ValueError, KeyError, TypeError):
        version = None
    if not isinstance(version, int) or version < 1:
        raise StoreError(
            f"the pin {name} of {storage.location}", found="no version in it", hint="Remove the file."
        )
    return version
