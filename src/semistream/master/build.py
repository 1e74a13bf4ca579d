"""Building a store: rows in, pages out, a manifest last.

source --(sorted, partitioned)--> parts (page files) --> page table --> manifest: only now is there a store
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pyarrow.fs as pafs

from semistream.config import parse_bytes
from semistream.errors import InvalidInputError, StoreExistsError, check_choice
from semistream.master.keyindex import build_key_index, count_distinct_keys
from semistream.master.keys import KeyCodec
from semistream.master.manifest import (
    LAYOUTS,
    Layout,
    Manifest,
    Statistics,
    describe_columns,
    encode_schema,
    is_claimed,
    list_versions,
)
from semistream.master.operation import operation
from semistream.master.page import DEFAULT_PAGE_BYTES, check_page_bytes
from semistream.master.pageset import PageSet, save_page_set
from semistream.master.part import Part, PartWriter, Progress, page_table
from semistream.master.schema import master_schema
from semistream.master.sources import ArrowSource, SortBy, check_frequency, open_source
from semistream.master.storage import LocalStorage, Storage, open_storage
from semistream.master.store import Master


def build_master(
    source: object,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    layout: Layout = "key",
    page_bytes: int | str = DEFAULT_PAGE_BYTES,
    frequency: str | None = None,
    if_exists: Literal["error", "replace"] = "error",
    filesystem: pafs.FileSystem | None = None,
    progress: Progress | None = None,
) -> Master:
    """Write a master store.

    Args:
        source: A Spark DataFrame (built by a Spark job), an Arrow table, batch, reader or dataset, or Parquet paths.
        path: A local directory, or a URI that pyarrow.fs knows, such as ``s3://bucket/products``.
        key: The column that the stream will be joined on, or several.
        layout: "key" sorts by key and needs almost no memory to find a page; "frequency" keeps the most frequently
            used rows first, with an index beside them; "heap" keeps the order of the source.
        page_bytes: The unit of reading, a multiple of 4096.
        frequency: For layout "frequency", the integer column to order by, highest first; without it the source is
            taken to be in that order.
        if_exists: "replace" makes a new version of an existing store; readers of the old one go on.
        filesystem: For object stores that need more than a URI can say.
        progress: Called with the number of rows written since the last call.

    Returns:
        The new version, opened.
    """
    return build_in(
        open_storage(path, filesystem=filesystem),
        source,
        key=key,
        layout=layout,
        page_bytes=page_bytes,
        frequency=frequency,
        if_exists=if_exists,
        progress=progress,
    )


def build_in(
    storage: Storage,
    source: object,
    *,
    key: str | Sequence[str],
    layout: Layout,
    page_bytes: int | str,
    frequency: str | None = None,
    if_exists: Literal["error", "replace"] = "error",
    progress: Progress | None = None,
) -> Master:
    """`build_master` in a storage of the caller's."""
    _check_choices(layout, frequency, if_exists)
    size = check_page_bytes(parse_bytes(page_bytes, name="page_bytes"))
    opened = open_source(source)
    schema = master_schema(opened.schema, key)
    sort_by = SortBy(schema.key) if layout == "key" else None
    if frequency is not None:
        check_frequency(schema.arrow, frequency)
        sort_by = SortBy((frequency,), descending=True)
    version = _next_version(storage, if_exists)
    with operation(storage) as op:
        writer = PartWriter(storage, schema, size, ordered=layout == "key", folder=op.folder)
        parts = opened.write(writer, sort_by=sort_by, scratch=op.scratch, progress=progress)
        codec = KeyCodec(schema.key_types)
        table, files = page_table(parts, codec, ordered=layout == "key")
        data = save_page_set(storage, table, files, folder=op.folder)
        statistics, key_index = _statistics(parts), None
        pages = PageSet(storage, data, schema.arrow, None)
        if layout == "frequency":
            index = build_key_index(op, schema, pages, page_bytes=size)
            key_index = index.record
            statistics = replace(
                statistics, distinct_keys=index.distinct_keys, max_rows_per_key=index.max_rows_per_key
            )
        elif layout == "heap" and isinstance(opened, ArrowSource):
            # Where no key repeats, the front stage may keep any row; a Spark source may be too large to count here.
            statistics = replace(statistics, distinct_keys=count_distinct_keys(op, schema, pages))
        manifest = Manifest(
            version=version,
            created_at=datetime.now(UTC),
            operation="build" if version == 1 else "replace",
            key=schema.key,
            layout=layout,
            page_bytes=size,
            schema_ipc=encode_schema(schema.arrow),
            statistics=statistics,
            data=data,
            key_index=key_index,
            columns=describe_columns(schema.arrow),
        )
        op.commit(manifest)
    return Master(storage, manifest)


def _check_choices(layout: str, frequency: str | None, if_exists: str) -> None:
    check_choice(f"{layout=}", layout, LAYOUTS, what="layout", hint="names")
    if frequency is not None and layout != "frequency":
        raise InvalidInputError(
            f"frequency={frequency!r}",
            found=f"layout={layout!r}",
            hint="Only layout='frequency' orders rows by it.",
        )
    check_choice(f"{if_exists=}", if_exists, ("error", "replace"), hint="either")


def _next_version(storage: Storage, if_exists: str) -> int:
    """The version to be built, or an error if the path is not ours to build in."""
    asked = f"building a master at {storage.location}"
    if isinstance(storage, LocalStorage) and Path(storage.root).exists() and not Path(storage.root).is_dir():
        raise StoreExistsError(asked, found="a file", hint="Choose another path, or remove it.")
    if not storage.is_empty() and not is_claimed(storage):
        raise StoreExistsError(
            asked,
            found="other files, and no store",
            hint="Choose an empty or new directory; nothing was changed.",
        )
    versions = list_versions(storage)
    if versions and if_exists == "error":
        raise StoreExistsError(
            asked,
            found=f"a store with version {versions[-1]}",
            hint="Pass if_exists='replace' to make a new version, or choose another path.",
        )
    return versions[-1] + 1 if versions else 1


def _statistics(parts: Sequence[Part]) -> Statistics:
    filled = [part for part in parts if part.rows]
    known = bool(filled) and all(part.distinct_keys is not None for part in filled)
    return Statistics(
        rows=sum(part.rows for part in parts),
        null_keys=sum(part.null_keys for part in parts),
        distinct_keys=sum(part.distinct_keys or 0 for part in filled) if known or not filled else None,
        max_rows_per_key=max(part.max_rows_per_key or 0 for part in filled) if known else None,
        min_key=filled[0].min_key if known else None,
        max_key=filled[-1].max_key if known else None,
    )
