"""The master: one version of a store, opened for reading, and the ways to make the next version.

master = open_master("products")            the current version
master.rows, master.pages, master.index     what it is
for batch in master.scan(): ...             its rows
newer = master.upsert(changes)              a new version; `master` itself still reads the old one
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from semistream.arrow import from_numpy
from semistream.errors import InvalidInputError, StoreError
from semistream.master.change import Changes, Kind, change
from semistream.master.disk import Disk
from semistream.master.index import PageIndex
from semistream.master.keyindex import key_index_schema
from semistream.master.keys import KeyCodec
from semistream.master.manifest import (
    Layout,
    Manifest,
    Statistics,
    latest_version,
    list_versions,
    read_manifest,
)
from semistream.master.pageset import PageSet
from semistream.master.schema import MasterSchema
from semistream.master.sources import open_source
from semistream.master.storage import LocalStorage, Storage, open_storage
from semistream.master.vacuum import DEFAULT_KEEP_FOR, Vacuumed, vacuum


@dataclass(frozen=True)
class Verification:
    """What `verify` found: how much was read, and which pages are not what was written."""

    pages: int
    rows: int
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class Master:
    """One version of a master table on disk. It never changes; it can be sent to other processes as it is."""

    storage: Storage
    manifest: Manifest

    @property
    def path(self) -> str:
        """Where the store is, as it was given."""
        return self.storage.location

    @property
    def is_local(self) -> bool:
        """Whether its files are on a file system of this machine, and not in an object store."""
        return isinstance(self.storage, LocalStorage)

    @property
    def version(self) -> int:
        """The number of this version, from 1."""
        return self.manifest.version

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns in stored form."""
        return self.master_schema.arrow

    @cached_property
    def master_schema(self) -> MasterSchema:
        """The columns in stored form, and the key."""
        return self.manifest.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.manifest.key

    @property
    def layout(self) -> Layout:
        """The order of the rows: by key, by access frequency, or as they came."""
        return self.manifest.layout

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.manifest.data.rows

    @property
    def pages(self) -> int:
        """How many pages they are in."""
        return self.manifest.data.pages

    @property
    def page_bytes(self) -> int:
        """The size of a page; a row longer than that has a longer page to itself."""
        return self.manifest.page_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return self.manifest.data.bytes

    @property
    def statistics(self) -> Statistics:
        """What is known of the rows without reading them."""
        return self.manifest.statistics

    @cached_property
    def codec(self) -> KeyCodec:
        """How keys become codes."""
        return KeyCodec(self.master_schema.key_types)

    @cached_property
    def data(self) -> PageSet:
        """The pages of the rows."""
        ordered = self.layout == "key"
        return PageSet(self.storage, self.manifest.data, self.schema, self.codec if ordered else None)

    @cached_property
    def key_index(self) -> PageSet | None:
        """The non-clustered index of layout "frequency": pages of (key, page) sorted by key."""
        record = self.manifest.key_index
        return (
            PageSet(self.storage, record, key_index_schema(self.master_schema).arrow, self.codec)
            if record
            else None
        )

    @property
    def index(self) -> PageIndex:
        """Where keys and pages are; kept in memory once it was asked for."""
        return self.data.index

    def open_disk(self, kind: str = "direct", *, threads: int | None = None) -> Disk:
        """A disk to read this version's pages through: direct, buffered, or a simulated one by its profile's name."""
        return self.data.open_disk(kind, threads=threads)

    def scan(
        self, *, columns: Sequence[str] | None = None, disk: str = "buffered"
    ) -> Iterator[pa.RecordBatch]:
        """All rows in stored order, page by page, copied out of the disk buffer."""
        names = self.schema.names if columns is None else list(columns)
        unknown = [name for name in names if name not in self.schema.names]
        if unknown:
            raise InvalidInputError(
                f"columns {', '.join(unknown)}",
                found=f"columns {', '.join(self.schema.names)}",
                hint="Name existing ones.",
            )
        with self.open_disk(disk) as opened:
            for batches in self.data.scan(opened):
                # take() copies: concat of a single batch would hand out views of the buffer.
                whole = pa.concat_batches([batch.select(names) for batch in batches])
                yield whole if len(batches) > 1 else whole.take(from_numpy(np.arange(len(whole))))

    def to_reader(self) -> pa.RecordBatchReader:
        """All rows as an Arrow stream, which most tools can read."""
        return pa.RecordBatchReader.from_batches(self.schema, self.scan())

    def versions(self) -> list[int]:
        """The versions of this store that can be opened, oldest first."""
        return list_versions(self.storage)

    def at_version(self, version: int) -> Master:
        """Another version of the same store."""
        return Master(self.storage, read_manifest(self.storage, version))

    def refresh(self) -> Master:
        """The current version: this very object if nothing changed."""
        newest = latest_version(self.storage)
        return self if newest == self.version else self.at_version(newest)

    def append(self, rows: object) -> Master:
        """A new version of the store with these rows added to what is current; keys may repeat."""
        return self._changed("append", rows)

    def upsert(self, rows: object) -> Master:
        """A new version in which the rows of every key given are replaced by the rows given; new keys are added."""
        return self._changed("upsert", rows)

    def delete(self, keys: object) -> Master:
        """A new version without the rows of the keys given; columns beside the key are not looked at."""
        return self._changed("delete", keys)

    def _changed(self, kind: Kind, source: object) -> Master:
        current = self.refresh()
        changes = Changes.of(kind, open_source(source).read_all(), current.master_schema)
        return Master(self.storage, change(self.storage, current.manifest, changes))

    def vacuum(self, *, keep_for: timedelta = DEFAULT_KEEP_FOR) -> Vacuumed:
        """Remove versions replaced longer than `keep_for` ago, and what unfinished operations left behind."""
        return vacuum(self.storage, keep_for=keep_for)

    def verify(self, *, progress: Callable[[int], None] | None = None) -> Verification:
        """Read every page of this version and check it; damage is reported, not raised."""
        pages = rows = 0
        damaged: list[str] = []
        for page_set in filter(None, (self.data, self.key_index)):
            try:
                page_set.load_table()
            except StoreError as error:
                damaged.append(str(error))  # without it no page can be found
                continue
            with page_set.open_disk("buffered") as disk:
                for start in range(0, page_set.record.pages, _VERIFY_PAGES):
                    stop = min(start + _VERIFY_PAGES, page_set.record.pages)
                    found, bad = _verify_pages(page_set, disk, start, stop)
                    pages += stop - start
                    rows += found if page_set is self.data else 0
                    damaged += bad
                    if progress is not None:
                        progress(stop - start)
        return Verification(pages=pages, rows=rows, damaged=tuple(damaged))

    def __getstate__(self) -> dict[str, Any]:
        """Send only what identifies the version: an index is loaded where it is used."""
        return {"storage": self.storage, "manifest": self.manifest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return (
            f"Master({self.path!r}, version={self.version}, key={', '.join(self.key)}, layout={self.layout}, "
            f"rows={self.rows:,}, pages={self.pages:,})"
        )


_VERIFY_PAGES = 1024


def open_master(
    path: str | os.PathLike[str], *, version: int | None = None, filesystem: pafs.FileSystem | None = None
) -> Master:
    """Open a store: its current version, or one given."""
    storage = open_storage(path, filesystem=filesystem)
    newest = latest_version(storage)
    return Master(storage, read_manifest(storage, newest if version is None else version))


def _verify_pages(pages: PageSet, disk: Disk, start: int, stop: int) -> tuple[int, list[str]]:
    """Rows in undamaged pages, and a line for each damaged one: a bad stretch is halved until the pages stand alone."""
    try:
        rows = sum(len(batch) for batches in pages.scan(disk, start=start, stop=stop) for batch in batches)
    except StoreError as error:
        if stop - start == 1:
            return 0, [str(error)]
    else:
        return rows, []
    middle = (start + stop) // 2
    left, right = _verify_pages(pages, disk, start, middle), _verify_pages(pages, disk, middle, stop)
    return left[0] + right[0], left[1] + right[1]
