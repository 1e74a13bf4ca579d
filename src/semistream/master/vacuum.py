"""Removing what no reader may need any more."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from semistream.errors import InvalidInputError, NotAStoreError
from semistream.master.manifest import list_versions, manifest_name, read_manifest
from semistream.master.pins import pinned_versions
from semistream.master.storage import Storage, is_of_operation

DEFAULT_KEEP_FOR = timedelta(hours=24)


@dataclass(frozen=True)
class Vacuumed:
    """What vacuum removed."""

    versions: tuple[int, ...]
    files: int
    bytes: int


def vacuum(
    storage: Storage, *, keep_for: timedelta = DEFAULT_KEEP_FOR, now: datetime | None = None
) -> Vacuumed:
    """Remove versions that were replaced longer than `keep_for` ago, and files of operations that never finished.

    A reader that opened a version goes on as long as it is kept. An operation at work is told from one that died by the
    age of its files, so `keep_for` must be longer than any build or change takes. The current version always stays, and so
    do those that the last micro-batches of a query were answered from (pins.py).
    """
    if keep_for < timedelta(0):
        raise InvalidInputError(
            f"keep_for={keep_for}", found="a negative time", hint="Use timedelta(0) to keep nothing old."
        )
    deadline = (now or datetime.now(UTC)) - keep_for
    versions = list_versions(storage)
    if not versions:
        raise NotAStoreError(
            f"vacuuming {storage.location}",
            found="no version",
            hint="Only a store that can be opened can be cleaned.",
        )
    manifests = {version: read_manifest(storage, version) for version in versions}
    pinned, stale_pins = pinned_versions(storage, now=now)
    # A version is needed until the deadline has passed since the next one replaced it, or a query may still replay it.
    old = [
        v
        for v, successor in itertools.pairwise(versions)
        if manifests[successor].created_at <= deadline and v not in pinned
    ]
    listed = storage.list()
    # Manifests go first: a version that can be opened can be read.
    for version in old:
        storage.delete(manifest_name(version))
    needed = {name for v in versions if v not in old for name in manifests[v].files()}
    known = {name for manifest in manifests.values() for name in manifest.files()} - needed
    # Files that no operation of ours writes (notes, a store inside the store) are not ours to remove.
    left = {
        s.name for s in listed if is_of_operation(s.name) and s.name not in needed and s.modified <= deadline
    }
    gone = [s for s in listed if s.name in known | left]
    for name in [*(stored.name for stored in gone), *stale_pins]:
        storage.delete(name)
    return Vacuumed(
        versions=tuple(old), files=len(gone) + len(old), bytes=sum(stored.bytes for stored in gone)
    )
