"""The manifest: everything about one version that is not in a page, as JSON that a person can read.

A store is a directory of

    semistream-master.json      says that this is a store, and of which format
    versions/00000001.json      a manifest a version; the highest number is the current one
    pages/<operation>/          what one build or change wrote:
        <id>.arrow              page files, shared by all versions that still use some of their pages
        table-<id>.arrow        the page table of a version: where each page is, where its keys begin

Nothing in it is ever executed: JSON, and Arrow data whose checksums are verified.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from semistream.errors import (
    ConcurrentChangeError,
    InvalidInputError,
    NewerFormatError,
    NotAStoreError,
    StoreError,
)
from semistream.master.disk import checksum
from semistream.master.schema import MasterSchema
from semistream.master.storage import Storage

FORMAT = "semistream-master"
FORMAT_VERSION = 1
MARKER = "semistream-master.json"
Layout = Literal["key", "frequency", "heap"]
LAYOUTS: tuple[Layout, ...] = ("key", "frequency", "heap")
# What parsing raises where a file does not say what it should.
_DAMAGE = (AttributeError, LookupError, TypeError, ValueError, RecursionError, pa.ArrowException)


@dataclass(frozen=True)
class PageSetRecord:
    """Pages of one schema: their files, and the table that says where each page is."""

    files: tuple[str, ...]
    table: str
    table_checksum: int
    pages: int
    rows: int
    bytes: int  # of the pages this version uses, not of the files they are in


@dataclass(frozen=True)
class Statistics:
    """What is known of the rows without reading them."""

    rows: int
    null_keys: int  # rows left out because a key column is null: they match nothing
    distinct_keys: (
        int | None
    )  # exact where keys were sorted: always but for a heap that Spark built or that was changed
    max_rows_per_key: int | None
    min_key: str | None
    max_key: str | None


@dataclass(frozen=True)
class Manifest:
    """One version of a master."""

    version: int
    created_at: datetime
    operation: str
    key: tuple[str, ...]
    layout: Layout
    page_bytes: int
    schema_ipc: str
    statistics: Statistics
    data: PageSetRecord
    key_index: PageSetRecord | None = None
    columns: tuple[str, ...] = field(default=())  # for people; the schema proper is schema_ipc

    @property
    def schema(self) -> MasterSchema:
        """The stored columns and the key."""
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema_ipc, validate=True)))
        return MasterSchema(arrow=arrow, key=self.key)

    def files(self) -> set[str]:
        """Every file that this version needs."""
        sets = [self.data] + ([self.key_index] if self.key_index else [])
        return {name for pages in sets for name in (*pages.files, pages.table)}


def encode_schema(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def describe_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns as a person reads them."""
    return tuple(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in schema)


def manifest_name(version: int) -> str:
    """The file of a version's manifest."""
    return f"versions/{version:08d}.json"


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Make a version current, all at once; ConcurrentChangeError if it exists already."""
    # The file of this version may be gone again: made by another writer, replaced, and vacuumed.
    newest = max(list_versions(storage), default=0)
    if newest >= manifest.version:
        raise ConcurrentChangeError(
            f"making version {manifest.version} of {storage.location}",
            found=f"version {newest}",
            hint="Another writer was faster: refresh() and try again.",
        )
    record = {"format": FORMAT, "format_version": FORMAT_VERSION} | asdict(manifest)
    record["created_at"] = manifest.created_at.isoformat()
    record["checksum"] = _checksum(record)
    storage.put_new(manifest_name(manifest.version), json.dumps(record, indent=2).encode())


def read_manifest(storage: Storage, version: int) -> Manifest:
    """The manifest of a version."""
    asked = f"opening version {version} of {storage.location}"
    if not isinstance(version, int):
        raise InvalidInputError(asked, found=f"a {type(version).__name__}", hint="Give its number.")
    name = manifest_name(version)
    try:
        raw = storage.get(name)
    except FileNotFoundError as error:
        raise StoreError(
            asked,
            found=f"versions {', '.join(map(str, list_versions(storage))) or '(none)'}",
            hint="Open one of these; vacuum removes old ones.",
        ) from error
    try:
        record = json.loads(raw)
        check_format(record, asked)
        if record.pop("checksum") != _checksum(record):
            raise ValueError("its checksum does not match")
        manifest = _manifest(record)
        if not manifest.schema.key_types:  # read here, where damage to it can be told
            raise ValueError("no key")
        return manifest
    except StoreError:
        raise
    except (*_DAMAGE, OSError) as error:
        raise StoreError(
            asked,
            found=f"a damaged manifest {name} ({error!r})",
            hint="Restore that file, or open an older version.",
        ) from error


def list_versions(storage: Storage) -> list[int]:
    """The versions that can be opened, oldest first."""
    names = (stored.name.removeprefix("versions/") for stored in storage.list("versions"))
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def latest_version(storage: Storage) -> int:
    """The current version; NotAStoreError where there is no store."""
    asked = f"opening {storage.location} as a master store"
    if not is_claimed(storage):
        found = "nothing" if storage.is_empty() else "other files"
        raise NotAStoreError(
            asked, found=found, hint="Make a store with build_master(source, path, key=...)."
        )
    versions = list_versions(storage)
    if not versions:
        raise NotAStoreError(
            asked,
            found="a build that was not finished",
            hint="Run build_master again; it uses the same path.",
        )
    return versions[-1]


def is_claimed(storage: Storage) -> bool:
    """Whether a store is there, or was begun; an error if it is one that this software cannot read."""
    asked = f"opening {storage.location} as a master store"
    try:
        record = json.loads(storage.get(MARKER))
    except FileNotFoundError:
        return False
    except (*_DAMAGE, NotADirectoryError) as error:
        raise NotAStoreError(asked, found=str(error), hint="Give the directory of a store.") from error
    except OSError as error:
        raise StoreError(asked, found=str(error), hint="Check the path and your rights to it.") from error
    check_format(record, asked)
    return True


def write_marker(storage: Storage) -> None:
    """Claim a path for a store, before anything else is written to it."""
    record = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "about": "A master table of semistream: see versions/ for its manifests; the pages are Arrow files.",
    }
    storage.put_new(MARKER, json.dumps(record, indent=2).encode())


def check_format(record: object, asked: str) -> None:
    """Refuse what this version of the software cannot read."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise NotAStoreError(asked, found="a file that is not ours", hint="Give the directory of a store.")
    if not isinstance(record.get("format_version"), int) or record["format_version"] > FORMAT_VERSION:
        raise NewerFormatError(
            asked,
            found=f"format {record.get('format_version')}, newer than {FORMAT_VERSION}",
            hint="Upgrade semistream, or build the store again with this version.",
        )


def _checksum(record: dict[str, Any]) -> int:
    """Of what the record says, however it is laid out: a wrong type of column would be read from pages as garbage."""
    return checksum(np.frombuffer(json.dumps(record, sort_keys=True).encode(), dtype=np.uint8), 0)


def _manifest(record: dict[str, Any]) -> Manifest:
    if record["layout"] not in LAYOUTS:
        raise InvalidInputError(
            f"layout {record['layout']!r}", found="an unknown layout", hint="Upgrade semistream."
        )
    return Manifest(
        version=int(record["version"]),
        created_at=datetime.fromisoformat(record["created_at"]).astimezone(UTC),
        operation=str(record["operation"]),
        key=tuple(record["key"]),
        layout=record["layout"],
        page_bytes=int(record["page_bytes"]),
        schema_ipc=str(record["schema_ipc"]),
        statistics=Statistics(**record["statistics"]),
        data=_page_set(record["data"]),
        key_index=_page_set(record["key_index"]) if record["key_index"] else None,
        columns=tuple(record["columns"]),
    )


def _page_set(record: dict[str, Any]) -> PageSetRecord:
    for name in (*record["files"], record["table"]):
        # A name is joined to the store's path: one that leaves it is an attack, not a file.
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"file name {name!r} leaves the store")
    return PageSetRecord(**{**record, "files": tuple(record["files"])})
