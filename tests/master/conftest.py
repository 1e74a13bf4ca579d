"""What several tests of the master store share: reading a store back in plain Python, and looking at its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.master import Master
from semistream.master.disk import aligned_buffer
from semistream.master.pageset import PageSet

Rows = list[dict[str, Any]]


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Master], Rows]:
    """All rows of a master in stored order, as dicts."""

    def rows(master: Master) -> Rows:
        return pa.Table.from_batches(list(master.scan()), schema=master.schema).to_pylist()

    return rows


@pytest.fixture(scope="session")
def pages_of() -> Callable[[PageSet], list[Rows]]:
    """The rows of every page of a set, one list a page, each page read by itself."""

    def pages(page_set: PageSet) -> list[Rows]:
        found = []
        with page_set.open_disk("buffered") as disk:
            for page in range(page_set.record.pages):
                buffer = aligned_buffer(page_set.index.max_page_bytes)
                (batch,) = page_set.read(np.array([page], dtype=np.int64), disk, buffer)
                found.append(batch.to_pylist())
        return found

    return pages


@pytest.fixture(scope="session")
def tree_of() -> Callable[[Path], dict[str, bytes | None]]:
    """Every file below a directory with its bytes, and every directory with None: equal trees are equal stores."""

    def tree(root: Path) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
            for path in sorted(root.rglob("*"))
        }

    return tree
