"""Which version of a master each micro-batch of a query was answered from.

A micro-batch that is run again, by another task, after a crash or elsewhere, must see the rows it saw first. So the first
task of a micro-batch pins the version that is current then, in a file of the store that only one of them can create;
everybody else goes by it. Vacuum keeps what the last micro-batches of a query were pinned to.

    pins/<query>/<micro-batch>.json     {"version": 3}
"""

from __future__ import annotations

import contextlib
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


def pin(storage: Storage, query: str, batch: int, version: int | None = None) -> int:
    """The version that a micro-batch is answered from: pinned earlier, or now, the newest one if none is given."""
    if not re.fullmatch(r"[0-9a-zA-Z-]{1,64}", query) or batch < 0:
        raise InvalidInputError(
            f"pinning micro-batch {batch} of query {query!r}", found="no query id", hint="Use Spark's."
        )
    name = _name(query, batch)
    found = _read(storage, name)
    if found is not None:
        return found
    version = latest_version(storage) if version is None else version
    with contextlib.suppress(ConcurrentChangeError):  # another task of the micro-batch was first
        try:
            storage.put_new(name, json.dumps({"version": version}).encode())
        except ConcurrentChangeError:
            raise
        except StoreError as error:
            raise StoreError(
                f"pinning the version that answers micro-batch {batch} in {storage.location}",
                found=error.found,
                hint="Workers must be able to write to the store, or use versions='pinned'.",
            ) from error
    if batch >= KEPT_BATCHES:
        storage.delete(_name(query, batch - KEPT_BATCHES))
    # Read again: where a store cannot create a file exclusively, the last writer's is what a replay will see.
    found = _read(storage, name)
    return version if found is None else found


def pinned_versions(storage: Storage, *, now: datetime | None = None) -> tuple[set[int], list[str]]:
    """Versions that a query may have to read again, and the files of pins that nobody needs any more."""
    deadline = (now or datetime.now(UTC)) - KEPT_FOR
    by_query: dict[str, list[tuple[str, datetime]]] = {}
    for stored in storage.list(FOLDER):
        if re.fullmatch(rf"{FOLDER}/[0-9a-zA-Z-]{{1,64}}/\d{{12}}\.json", stored.name):
            by_query.setdefault(stored.name.rsplit("/", 1)[0], []).append((stored.name, stored.modified))
    needed: set[int] = set()
    stale: list[str] = []
    for pins in by_query.values():
        pins.sort()
        kept = pins[-KEPT_BATCHES:] if pins[-1][1] > deadline else []
        stale += [name for name, _ in pins[: len(pins) - len(kept)]]
        for name, _ in kept[-_REPLAYABLE:]:
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
    found = re.fullmatch(rb'\{"version": ([1-9]\d{0,17})\}', data.strip())
    if found is None:
        raise StoreError(
            f"the pin {name} of {storage.location}", found="no version in it", hint="Remove the file."
        )
    return int(found[1])
