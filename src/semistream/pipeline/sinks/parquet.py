"""A folder of Parquet files, one a micro-batch: it appears whole, by a rename, under a name that a second one would have too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow.dataset as pads
import pyarrow.parquet as pq


@dataclass(frozen=True)
class ParquetSink:
    """The folder. What ends in .tmp is not finished; readers of such folders leave names with a dot at the front out."""

    folder: Path

    @staticmethod
    def open(path: str) -> ParquetSink:
        """The folder, made if there is none."""
        Path(path).mkdir(parents=True, exist_ok=True)
        return ParquetSink(Path(path))

    def write(
        self, files: list[str], *, query: str, batch: int
    ) -> Literal["written", "there already", "nothing to write"]:
        """Add the rows of a micro-batch, unless they are there."""
        if not files:
            return "nothing to write"
        name = f"{batch:012d}-{query}.parquet"
        if (self.folder / name).exists():
            return "there already"
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{name}.tmp"  # no pattern of Parquet files finds it
        reader = pads.dataset(files).scanner().to_reader()
        with pq.ParquetWriter(aside, reader.schema) as writer:
            for rows in reader:
                writer.write_batch(rows)
        handle = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        aside.rename(self.folder / name)
        return "written"
