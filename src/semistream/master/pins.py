"""Which version of a master each micro-batch of a query was answered from.

A micro-batch that is run again, by another task, after a crash or elsewhere, must see the rows it saw first. So the first
task of a micro-batch pins the version that is current then, in a file of the store that only one of them can create;
everybody else goes by it. Vacuum keeps what the last micro-batches of a query were pinned to.

    pins/<query>/<micro-batch>.json     {"version": 3}

To wait until a file is safe on the disk may take as long as to answer a micro-batch, and only has to have happened before the
first answer leaves. Whoever goes by a pin, its own or one it found, sees to that and can do something else meanwhile. Where the
machine loses power before, the file may be there with nothing in it, or with zeros. It then says no more than if it were not
there, and the micro-batch is pinned again, under the next name.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

from semistream.errors import ConcurrentChangeError, InvalidInputError, StoreError
from semistream.master.manifest import latest_version
from semistream.master.storage import Storage, StoredFile

FOLDER = "pins"
KEPT_BATCHES = 100  # as many as Spark's own logs hold
KEPT_FOR = timedelta(days=30)  # a query that has not run for so long will not replay
_REPLAYABLE = 2  # micro-batches of a query that may still be run again


def pin(
    storage: Storage,
    query: str,
    batch: int,
    version: int | None = None,
    *,
    meanwhile: Callable[[Callable[[], None]], None] | None = None,
) -> int:
    """The version that a micro-batch is answered from: pinned earlier, or now, the newest one if none is given.

    `meanwhile` is given what makes the pin durable, to be done before an answer leaves; without it that is done before this
    returns.
    """
    if not re.fullmatch(r"[0-9a-zA-Z-]{1,64}", query) or batch < 0:
        raise InvalidInputError(
            f"pinning micro-batch {batch} of query {query!r}", found="no query id", hint="Use Spark's."
        )
    name, found = _current(storage, query, batch)
    if found is None:
        version = latest_version(storage) if version is None else version
        try:
            storage.claim(name, json.dumps({"version": version}).encode())
        except ConcurrentChangeError:
            pass  # another task of the micro-batch was first
        except StoreError as error:
            raise StoreError(
                f"pinning the version that answers micro-batch {batch} in {storage.location}",
                found=error.found,
                hint="Workers must be able to write to the store, or use versions='pinned'.",
            ) from error
        if batch >= KEPT_BATCHES:
            storage.delete(_name(query, batch - KEPT_BATCHES))
        # Read again: where a store cannot create a file exclusively, the last writer's is what a replay will see.
        name, found = _current(storage, query, batch)
        found = version if found is None else found
    make_durable = partial(storage.sync, name)
    meanwhile(make_durable) if meanwhile is not None else make_durable()
    return found


def pinned_versions(storage: Storage, *, now: datetime | None = None) -> tuple[set[int], list[str]]:
    """Versions that a query may have to read again, and the files of pins that nobody needs any more."""
    deadline = (now or datetime.now(UTC)) - KEPT_FOR
    by_query: dict[str, list[tuple[int, StoredFile]]] = {}
    for stored in storage.list(FOLDER):
        found = re.fullmatch(rf"{FOLDER}/([0-9a-zA-Z-]{{1,64}})/(\d{{12}})(-\d+)?\.json", stored.name)
        if found is not None:
            by_query.setdefault(found[1], []).append((int(found[2]), stored))
    needed: set[int] = set()
    stale: list[str] = []
    for pins in by_query.values():
        batches = sorted({batch for batch, _ in pins})
        last = max(stored.modified for batch, stored in pins if batch == batches[-1])
        kept = batches[-KEPT_BATCHES:] if last > deadline else []
        stale += [stored.name for batch, stored in pins if batch not in kept]
        for batch, stored in pins:
            if batch in kept[-_REPLAYABLE:]:
                with contextlib.suppress(FileNotFoundError):
                    version = _read(storage, stored.name)
                    needed |= {version} if version is not None else set()
    return needed, stale


def _name(query: str, batch: int, attempt: int = 0) -> str:
    return f"{FOLDER}/{query}/{batch:012d}{f'-{attempt}' if attempt else ''}.json"


def _current(storage: Storage, query: str, batch: int) -> tuple[str, int | None]:
    """The file of a micro-batch, and its version; None where there is no such file yet."""
    for attempt in count():
        name = _name(query, batch, attempt)
        try:
            version = _read(storage, name)
        except FileNotFoundError:
            return name, None
        if version is not None:
            return name, version
    raise AssertionError("counting ends")


def _read(storage: Storage, name: str) -> int | None:
    """The version in a file; None where power was lost before it was written."""
    data = storage.claimed(name)
    if data is None:
        return None
    found = re.fullmatch(rb'\{"version": ([1-9]\d{0,17})\}', data.strip())
    if found is None:
        raise StoreError(
            f"the pin {name} of {storage.location}", found="no version in it", hint="Remove the file."
        )
    return int(found[1])
