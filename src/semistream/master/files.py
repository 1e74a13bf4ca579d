"""Masters from files: Parquet, or whatever pyarrow.dataset reads."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as pads

from semistream.errors import InvalidInputError
from semistream.master.sources import ArrowSource


def open_files(source: pads.Dataset | str | os.PathLike[str] | list[object]) -> ArrowSource:
    """The rows of a dataset, or of Parquet files."""
    return _dataset_source(source) if isinstance(source, pads.Dataset) else _parquet_source(source)


def _parquet_source(source: str | os.PathLike[str] | list[object]) -> ArrowSource:
    try:
        paths = [os.fspath(path) for path in source] if isinstance(source, list) else os.fspath(source)  # type: ignore[call-overload]
        dataset = pads.dataset(paths, format="parquet", partitioning="hive", exclude_invalid_files=False)
        # All columns of all files, not those of the first one; files that disagree on a type are an error.
        schemas = [fragment.physical_schema for fragment in dataset.get_fragments()]
        return _dataset_source(dataset.replace_schema(pa.unify_schemas([dataset.schema, *schemas])))
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"the Parquet files of {source}",
            found="no such file",
            hint="Give a Parquet file or a directory of them; patterns are not expanded.",
        ) from error
    except (OSError, TypeError, pa.ArrowInvalid) as error:
        raise InvalidInputError(
            f"the Parquet files of {source}",
            found=str(error),
            hint="Give a Parquet file or a directory of them.",
        ) from error


def _dataset_source(dataset: pads.Dataset) -> ArrowSource:
    def batches() -> Iterator[pa.RecordBatch]:
        scan = dataset.to_batches(batch_readahead=4, fragment_readahead=1)
        while True:
            try:
                batch = next(scan, None)
            except (OSError, pa.ArrowException) as error:
                raise InvalidInputError(
                    f"the rows of {', '.join(dataset.files) if hasattr(dataset, 'files') else dataset}",
                    found=str(error),
                    hint="Repair or replace the damaged file.",
                ) from error
            if batch is None:
                return
            yield batch

    return ArrowSource(dataset.schema, batches, dataset.count_rows())
