"""Changing a master: append, upsert and delete make a new version out of the pages they touch.

Pages are never written twice. A change finds the pages that its keys belong to, writes them again with the change made,
and the new version's table points to the new pages and to all the old ones that stayed. So the rows of layout "key"
are sorted in every version, a key is found as before, and the cost is that of the pages touched. The other layouts have
no order to find a key by: they are read whole, and layout "frequency" gets its index anew.

    version 1   [ a ][ b ][ c ][ d ]
    upsert of keys in b, c:            [ b' ][ c' ]           a new file
    version 2   [ a ]------^-----^---[ d ]                    the old file, minus two pages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.master.disk import aligned_buffer
from semistream.master.index import PageTable
from semistream.master.keyindex import build_key_index
from semistream.master.keys import KeyCodec, Keys, is_in, positions_of
from semistream.master.manifest import Manifest, Statistics
from semistream.master.operation import Operation, operation
from semistream.master.pageset import PageSet, save_page_set
from semistream.master.part import Part, PartWriter, drop_null_keys, key_codes, key_text, page_table
from semistream.master.schema import MasterSchema
from semistream.master.sort import take
from semistream.master.storage import Storage
from semistream.ranges import spread

Kind = Literal["append", "upsert", "delete"]
_GROUP_BYTES = 32 << 20
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Changes:
    """Rows to be added and keys to be replaced, sorted by key; for a delete there are keys only."""

    kind: Kind
    key: tuple[str, ...]
    rows: pa.RecordBatch
    keys: Keys
    arrival: I64  # the place each row had as it was given
    null_keys: int

    @staticmethod
    def of(kind: Kind, table: pa.Table, schema: MasterSchema) -> Changes:
        """Check and sort what the user gave; a delete needs the key columns only."""
        wanted = (
            schema
            if kind != "delete"
            else MasterSchema(pa.schema([schema.arrow.field(n) for n in schema.key]), schema.key)
        )
        batches = [wanted.normalise(batch) for batch in table.to_batches()]
        whole = pa.concat_batches(batches) if batches else _empty(wanted.arrow)
        kept = drop_null_keys(whole, schema.key)
        codec = KeyCodec(schema.key_types)
        order = key_codes(kept, schema.key, codec).argsort()
        kept = take(kept, order)
        keys = key_codes(kept, schema.key, codec)
        return Changes(kind, schema.key, kept, keys, order, len(whole) - len(kept))

    def select(self, start: int, stop: int) -> Changes:
        """The changes start .. stop, in key order."""
        at = np.arange(start, stop, dtype=np.int64)
        rows = self.rows.slice(start, stop - start)
        return Changes(self.kind, self.key, rows, self.keys.take(at), self.arrival[at], 0)


def change(storage: Storage, manifest: Manifest, changes: Changes) -> Manifest:
    """Make the version after `manifest`; if another writer makes it first, nothing of this one remains."""
    schema = manifest.schema
    codec = KeyCodec(schema.key_types)
    ordered = manifest.layout == "key"
    data = PageSet(storage, manifest.data, schema.arrow, codec if ordered else None)
    with operation(storage) as op:
        rewrite = _Rewrite(op, schema, codec, manifest.page_bytes, data)
        table, files, grown = rewrite.by_key(changes) if ordered else rewrite.in_place(changes)
        saved = save_page_set(storage, table, files, folder=op.folder)
        pages = replace(data, record=saved)
        statistics, key_index = _statistics(manifest.statistics, pages, changes, grown), None
        if manifest.key_index is not None:
            index = build_key_index(op, schema, pages, page_bytes=manifest.page_bytes)
            key_index = index.record
            statistics = replace(
                statistics, distinct_keys=index.distinct_keys, max_rows_per_key=index.max_rows_per_key
            )
        changed = replace(
            manifest,
            version=manifest.version + 1,
            created_at=datetime.now(UTC),
            operation=changes.kind,
            statistics=statistics,
            data=saved,
            key_index=key_index,
        )
        op.commit(changed)
    return changed


@dataclass(frozen=True)
class _Rewrite:
    """The pages of the old version, and how groups of them are written again."""

    op: Operation
    schema: MasterSchema
    codec: KeyCodec
    page_bytes: int
    data: PageSet

    def by_key(self, changes: Changes) -> tuple[PageTable, tuple[str, ...], int | None]:
        """Layout "key": each changed key goes where its key order puts it. Also: by how much distinct keys grew."""
        old = self.data.load_table()
        index = self.data.index
        if not len(old):
            part, _ = self._write([[] if changes.kind == "delete" else [changes.rows]], ordered=True)
            table, files = page_table([part], self.codec, ordered=True)
            return table, files, part.distinct_keys
        found = index.find(changes.keys)
        home = np.maximum(found.last, 0)  # where a new row of the key goes
        touched = _covered(home if changes.kind == "append" else found.first, home, index.pages)
        groups = list(_groups(touched, old.length))
        known = np.zeros(len(changes.keys), dtype=np.bool_)

        def merged(first: int, last: int) -> Iterator[pa.RecordBatch]:
            rows = self._read(first, last)
            keys = key_codes(rows, self.schema.key, self.codec)
            start, stop = _overlapping(found.first, home, first, last)
            known[start:stop] |= is_in(changes.select(start, stop).keys, keys)
            added = changes.select(*np.searchsorted(home, [first, last + 1]).tolist())
            yield self._merged(rows, keys, changes.select(start, stop), added)

        part, ends = self._write((merged(first, last) for first, last in groups), ordered=True)
        table, files = self._spliced(old, groups, part, ends)
        starts = changes.keys.starts()
        grown = -(starts & known).sum() if changes.kind == "delete" else (starts & ~known).sum()
        return table, files, int(grown)

    def _merged(self, rows: pa.RecordBatch, keys: Keys, changes: Changes, added: Changes) -> pa.RecordBatch:
        """The rows of a group of pages with the keys of `changes` replaced and the rows of `added` put in."""
        if changes.kind != "append":
            kept = np.flatnonzero(~is_in(keys, changes.keys))
            rows, keys = take(rows, kept), keys.take(kept)
        if changes.kind != "delete" and len(added.rows):
            # Stable: among rows of one key those that were there come first.
            order = self.codec.concat([keys, added.keys]).argsort()
            rows = take(pa.concat_batches([rows, added.rows]), order)
        return rows

    def in_place(self, changes: Changes) -> tuple[PageTable, tuple[str, ...], int | None]:
        """Layouts "frequency" and "heap": a replaced row keeps its place, a new one goes to the end."""
        old = self.data.load_table()
        groups: list[tuple[int, int]] = []
        placed = np.zeros(len(changes.keys), dtype=np.bool_)

        def rewritten() -> Iterator[list[pa.RecordBatch]]:
            if changes.kind != "append":
                for first, last in _groups(np.ones(len(old), dtype=np.bool_), old.length):
                    rows = self._replaced(self._read(first, last), changes, placed)
                    if rows is not None:
                        groups.append((first, last))
                        yield [rows]
            if changes.kind != "delete":
                groups.append((len(old), len(old) - 1))
                new = np.flatnonzero(~placed)
                yield [take(changes.rows, new[np.argsort(changes.arrival[new])])]

        part, ends = self._write(rewritten(), ordered=False)
        table, files = self._spliced(old, groups, part, ends)
        return table, files, None

    def _replaced(
        self, rows: pa.RecordBatch, changes: Changes, placed: NDArray[np.bool_]
    ) -> pa.RecordBatch | None:
        """The rows with changed keys taken out and, at the first place of each key, its new rows; None if untouched."""
        keys = key_codes(rows, self.schema.key, self.codec)
        hit = is_in(keys, changes.keys)
        if not hit.any():
            return None
        at = np.flatnonzero(hit)
        kept = np.flatnonzero(~hit)
        if changes.kind == "delete":
            return take(rows, kept)
        # The first hit of each key not placed yet, and the changes of that key.
        start = positions_of(keys.take(at), changes.keys, side="left")
        stop = positions_of(keys.take(at), changes.keys, side="right")
        _, once = np.unique(start, return_index=True)
        once = once[~placed[start[once]]]
        counts = stop[once] - start[once]
        new = spread(start[once], counts)
        placed[new] = True
        position = np.concatenate([kept, np.repeat(at[once], counts)])
        both = pa.concat_batches([take(rows, kept), take(changes.rows, new)])
        return take(both, np.argsort(position, kind="stable"))

    def _read(self, first: int, last: int) -> pa.RecordBatch:
        """The rows of pages first .. last, in memory of their own."""
        pages = np.arange(first, last + 1, dtype=np.int64)
        buffer = aligned_buffer(int(self.data.index.extents(pages).length.sum()))
        with self.data.open_disk("buffered") as disk:
            return pa.concat_batches(self.data.read(pages, disk, buffer))

    def _write(self, groups: Iterable[Iterable[pa.RecordBatch]], *, ordered: bool) -> tuple[Part, list[int]]:
        writer = PartWriter(
            self.op.storage, self.schema, self.page_bytes, ordered=ordered, folder=self.op.folder
        )
        return writer.write_groups(groups)

    def _spliced(
        self, old: PageTable, groups: Sequence[tuple[int, int]], part: Part, ends: Sequence[int]
    ) -> tuple[PageTable, tuple[str, ...]]:
        """The old table with each group of pages replaced by the new pages up to its end."""
        new, new_files = page_table([part], self.codec, ordered=old.separators is not None)
        bounds = np.array([0, *ends], dtype=np.int64)
        pieces: list[I64] = []  # positions in old followed by new
        done = 0
        for i, (first, last) in enumerate(groups):
            pieces += [np.arange(done, first), len(old) + np.arange(bounds[i], bounds[i + 1])]
            done = last + 1
        at = np.concatenate([*pieces, np.arange(done, len(old))]).astype(np.int64)
        separators, continues = None, np.concatenate([old.continues, new.continues])
        if old.separators is not None and new.separators is not None:
            separators = self._separators(old, new, groups, bounds)
            for i, (first, _) in enumerate(groups):
                if bounds[i] < bounds[i + 1]:
                    follows = i > 0 and groups[i - 1][1] + 1 == first  # a long run of pages, cut into groups
                    continues[len(old) + bounds[i]] = (
                        bounds[i - 1] < bounds[i] and new.continues[bounds[i]]
                        if follows
                        else first > 0 and old.continues[first]
                    )
        joined = PageTable(
            file=np.concatenate([old.file, new.file + len(self.data.record.files)]),
            offset=np.concatenate([old.offset, new.offset]),
            length=np.concatenate([old.length, new.length]),
            rows=np.concatenate([old.rows, new.rows]),
            separators=separators,
            continues=continues,
        )
        return joined.select(at), (*self.data.record.files, *new_files)

    def _separators(
        self, old: PageTable, new: PageTable, groups: Sequence[tuple[int, int]], bounds: NDArray[np.int64]
    ) -> Keys:
        """Old separators, then new ones; a group's first page keeps that of the page it replaces.

        The separator is still above the page before and not above the group's first key, except on the very first page,
        where a smaller key may have come in and the new first key is taken.
        """
        assert old.separators is not None  # noqa: S101 - for the type checker
        assert new.separators is not None  # noqa: S101
        source = len(old) + np.arange(len(new), dtype=np.int64)
        for i, (first, _) in enumerate(groups):
            if first > 0 and bounds[i] < bounds[i + 1]:
                source[bounds[i]] = first
        both = self.codec.concat([old.separators, new.separators])
        return both.take(np.concatenate([np.arange(len(old), dtype=np.int64), source]))


def _covered(first: I64, last: I64, pages: int) -> NDArray[np.bool_]:
    """Which pages are in at least one of the ranges."""
    depth = np.zeros(pages + 1, dtype=np.int64)
    np.add.at(depth, np.minimum(first, last), 1)
    np.add.at(depth, last + 1, -1)
    return np.cumsum(depth[:-1]) > 0


def _groups(touched: NDArray[np.bool_], lengths: I64) -> Iterator[tuple[int, int]]:
    """Runs of touched pages, first and last, none larger than what is rewritten at once."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], touched, [False]]).astype(np.int8)))
    for first, end in edges.reshape(-1, 2).tolist():
        total, start = 0, first
        for page in range(first, end):
            if total and total + lengths[page] > _GROUP_BYTES:
                yield start, page - 1
                total, start = 0, page
            total += int(lengths[page])
        yield start, end - 1


def _overlapping(first: I64, last: I64, group_first: int, group_last: int) -> tuple[int, int]:
    """The changes, which are sorted, whose pages overlap a group of pages."""
    start = int(np.searchsorted(last, group_first, side="left"))
    stop = int(np.searchsorted(first, group_last, side="right"))
    return start, max(start, stop)


def _statistics(old: Statistics, data: PageSet, changes: Changes, grown: int | None) -> Statistics:
    """Exact where the change shows it, unknown where only a scan would."""
    ends: list[str | None] = [None, None]
    if data.codec is not None and data.record.pages:
        with data.open_disk("buffered") as disk:
            for which, page in enumerate((0, data.record.pages - 1)):
                buffer = aligned_buffer(data.index.max_page_bytes)
                (rows,) = data.read(np.array([page]), disk, buffer)
                ends[which] = key_text(rows.slice(len(rows) - 1 if which else 0, 1), changes.key)
    return Statistics(
        rows=data.record.rows,
        null_keys=old.null_keys + (changes.null_keys if changes.kind != "delete" else 0),
        distinct_keys=None if grown is None or old.distinct_keys is None else old.distinct_keys + grown,
        max_rows_per_key=None,
        min_key=ends[0],
        max_key=ends[1],
    )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)
