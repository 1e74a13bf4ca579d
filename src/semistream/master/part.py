"""One part of a build: a run of rows that one task writes as one file of pages.

A local build writes its parts one after the other, a Spark build writes one per partition; either way the results are
put together by `page_table` on the side that commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow import from_numpy, to_numpy
from semistream.errors import InvalidInputError
from semistream.master.index import PageTable
from semistream.master.keys import KeyCodec, Keys, shortest_separators
from semistream.master.pagefile import PageFile, PageFileWriter
from semistream.master.schema import MasterSchema
from semistream.master.storage import Storage

Progress = Callable[[int], None]  # told of rows as they are written
_SLICE_BYTES = 32 << 20


@dataclass(frozen=True)
class Part:
    """What a task wrote: a file of pages (none if there were no rows) and what it learnt about the keys."""

    file: PageFile | None
    first: Keys | None  # the first key of each page and the last, where rows are sorted by key
    last: Keys | None
    rows: int
    null_keys: int
    distinct_keys: int | None
    max_rows_per_key: int | None
    min_key: str | None
    max_key: str | None

    def to_bytes(self) -> bytes:
        """As Arrow data, to travel from an executor to the driver."""
        scalars = {name: getattr(self, name) for name in _SCALARS}
        columns: dict[str, pa.Array] = {}
        if self.file is not None:
            scalars |= {"name": self.file.name, "bytes": self.file.bytes}
            columns = {name: from_numpy(getattr(self.file, name)) for name in ("offsets", "lengths", "rows")}
        if self.first is not None and self.last is not None:
            columns |= {"first": self.first.to_arrow(), "last": self.last.to_arrow()}
        table = pa.table(columns).replace_schema_metadata({"part": json.dumps(scalars)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def from_bytes(data: bytes, codec: KeyCodec) -> Part:
        """What `to_bytes` gave."""
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        scalars = json.loads(table.schema.metadata[b"part"])
        file = first = last = None
        if "name" in scalars:
            arrays = {name: to_numpy(table.column(name)) for name in ("offsets", "lengths", "rows")}
            file = PageFile(name=scalars["name"], bytes=scalars["bytes"], **arrays)
        if "first" in table.column_names:
            first, last = (
                codec.concat([codec.from_arrow(chunk) for chunk in table.column(name).chunks])
                for name in ("first", "last")
            )
        return Part(file=file, first=first, last=last, **{name: scalars[name] for name in _SCALARS})


_SCALARS = ("rows", "null_keys", "distinct_keys", "max_rows_per_key", "min_key", "max_key")


@dataclass(frozen=True)
class PartWriter:
    """Writes rows as pages: `writer(batches)` gives the part. Sent to executors as it is."""

    storage: Storage
    schema: MasterSchema
    page_bytes: int
    ordered: bool  # rows arrive sorted by key, and their keys are to be indexed
    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch], progress: Progress | None = None) -> Part:
        """Write all rows of the batches; on any error nothing is left behind."""
        return self.write_groups([batches], progress)[0]

    def write_groups(
        self, groups: Iterable[Iterable[pa.RecordBatch]], progress: Progress | None = None
    ) -> tuple[Part, list[int]]:
        """Write groups of rows that share a file but no page; also give the number of pages after each group."""
        task = _Task(self)
        try:
            ends = []
            for batches in groups:
                for batch in batches:
                    for piece in _slices(batch):
                        task.take(piece)
                        if progress is not None:
                            progress(len(piece))
                ends.append(task.cut())
            return task.finish(), ends
        except BaseException:
            task.abort()
            raise


@dataclass
class _Task:
    """The state of one part being written: what did not fill a page yet is carried to the next batch."""

    writer: PartWriter
    codec: KeyCodec = field(init=False)
    pages: PageFileWriter | None = None
    carried: pa.RecordBatch | None = None
    first: list[Keys] = field(default_factory=list)
    last: list[Keys] = field(default_factory=list)
    rows: int = 0
    null_keys: int = 0
    distinct_keys: int = 0
    max_rows_per_key: int = 0
    run_rows: int = 0  # rows seen so far of the key that the last batch ended with
    previous: Keys | None = None
    ends: list[pa.RecordBatch] = field(default_factory=list)  # the first and the last row

    def __post_init__(self) -> None:
        self.codec = KeyCodec(self.writer.schema.key_types)

    def take(self, batch: pa.RecordBatch) -> None:
        batch = self.writer.schema.normalise(batch)
        kept = drop_null_keys(batch, self.writer.schema.key)
        self.null_keys += len(batch) - len(kept)
        if not len(kept):
            return
        self.rows += len(kept)
        self.ends = [*(self.ends[:1] or [kept.slice(0, 1)]), kept.slice(len(kept) - 1)]
        if self.writer.ordered:
            self._learn(key_codes(kept, self.writer.schema.key, self.codec))
        if self.carried is not None:
            kept = pa.concat_batches([self.carried, kept])
        self._write(kept, keep_tail=True)

    def _learn(self, keys: Keys) -> None:
        """Check the order, count keys and how often the most frequent one occurs."""
        known = keys if self.previous is None else self.codec.concat([self.previous, keys])
        if not known.is_sorted():
            raise InvalidInputError(
                "rows sorted by key",
                found="a key below the one before it",
                hint="This is how the source sorted its rows; report it with the key's type and collation.",
            )
        starts = np.flatnonzero(known.starts())
        new = len(starts) - (0 if self.previous is None else 1)
        self.distinct_keys += new
        lengths = np.diff(np.append(starts, len(known)))
        if self.previous is not None:
            lengths[0] += self.run_rows - 1
        self.max_rows_per_key = max(self.max_rows_per_key, int(lengths.max()))
        self.run_rows = int(lengths[-1])
        self.previous = keys.take(np.array([len(keys) - 1]))

    def _write(self, batch: pa.RecordBatch, *, keep_tail: bool) -> None:
        if self.pages is None:
            self.pages = PageFileWriter(
                self.writer.storage, self.writer.folder, self.writer.schema.arrow, self.writer.page_bytes
            )
        rows = self.pages.write(batch, keep_tail=keep_tail)
        done = int(rows[-1])
        self.carried = batch.slice(done) if done < len(batch) else None
        if self.writer.ordered and done:
            keys = key_codes(batch.slice(0, done), self.writer.schema.key, self.codec)
            self.first.append(keys.take(rows[:-1]))
            self.last.append(keys.take(rows[1:] - 1))

    def cut(self) -> int:
        """Let no later row into the last page; give the number of pages so far."""
        if self.carried is not None:
            self._write(self.carried, keep_tail=False)
        return self.pages.count if self.pages is not None else 0

    def finish(self) -> Part:
        file = self.pages.close() if self.pages is not None else None
        ordered = self.writer.ordered
        return Part(
            file=file,
            first=self.codec.concat(self.first) if ordered else None,
            last=self.codec.concat(self.last) if ordered else None,
            rows=self.rows,
            null_keys=self.null_keys,
            distinct_keys=self.distinct_keys if ordered else None,
            max_rows_per_key=self.max_rows_per_key if ordered else None,
            min_key=key_text(self.ends[0], self.writer.schema.key) if ordered and self.ends else None,
            max_key=key_text(self.ends[-1], self.writer.schema.key) if ordered and self.ends else None,
        )

    def abort(self) -> None:
        if self.pages is not None:
            self.pages.abort()


def drop_null_keys(batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """The rows whose key has no null in it: the others match nothing."""
    columns = [batch.column(batch.schema.get_field_index(name)) for name in key]
    return batch.filter(has_key(batch, key)) if any(column.null_count for column in columns) else batch


def has_key(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Array:
    """Which rows have no null in their key."""
    valid = batch.column(batch.schema.get_field_index(key[0])).is_valid()
    for name in key[1:]:
        valid = pc.and_(valid, batch.column(batch.schema.get_field_index(name)).is_valid())
    return valid


def key_codes(batch: pa.RecordBatch, key: Sequence[str], codec: KeyCodec) -> Keys:
    """The codes of the key columns of a batch."""
    return codec.encode([batch.column(batch.schema.get_field_index(name)) for name in key])


def key_text(row: pa.RecordBatch, key: Sequence[str]) -> str:
    """The key of the first row of a batch, for people."""
    return ", ".join(str(row.column(row.schema.get_field_index(name))[0]) for name in key)


def page_table(parts: Sequence[Part], codec: KeyCodec, *, ordered: bool) -> tuple[PageTable, tuple[str, ...]]:
    """The pages of all parts as one table, in the order of the parts, and the files it refers to."""
    files = [part.file for part in parts if part.file is not None]
    sizes = [len(file.offsets) for file in files]
    separators, continues = None, np.zeros(sum(sizes), dtype=np.bool_)
    if ordered:
        first = codec.concat(
            [part.first for part in parts if part.file is not None and part.first is not None]
        )
        last = codec.concat([part.last for part in parts if part.file is not None and part.last is not None])
        separators, continues = separate(first, last, codec)
    empty = [np.empty(0, dtype=np.int64)]
    table = PageTable(
        file=np.repeat(np.arange(len(files), dtype=np.int64), sizes),
        offset=np.concatenate([file.offsets for file in files] or empty),
        length=np.concatenate([file.lengths for file in files] or empty),
        rows=np.concatenate([file.rows for file in files] or empty),
        separators=separators,
        continues=continues,
    )
    return table, tuple(file.name for file in files)


def separate(first: Keys, last: Keys, codec: KeyCodec) -> tuple[Keys, np.typing.NDArray[np.bool_]]:
    """The separators of consecutive pages with these first and last keys, and which pages go on with a key."""
    count = len(first)
    if not count:
        return first, np.zeros(0, dtype=np.bool_)
    head, later, earlier = np.arange(1), np.arange(1, count), np.arange(count - 1)
    between = shortest_separators(last.take(earlier), first.take(later))
    pairs = np.empty(2 * count - 2, dtype=np.int64)
    pairs[0::2], pairs[1::2] = earlier, later + count
    same = ~codec.concat([last, first]).take(pairs).starts()[1::2]
    return codec.concat([first.take(head), between]), np.concatenate([[False], same])


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of bounded size, so that nothing that is copied per batch grows with the source's batches."""
    if not len(batch):
        return
    rows = max(1, len(batch) * _SLICE_BYTES // max(batch.get_total_buffer_size(), 1))
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)
