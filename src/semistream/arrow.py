"""Numbers between NumPy and Arrow, without a copy and without pandas; strings in one form.

pyarrow's own conversions load pandas where it is installed: 40 MB in every worker, for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

_KINDS = {
    pa.from_numpy_dtype(name): np.dtype(name)
    for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
}
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def from_numpy(values: NDArray[Any]) -> pa.Array:
    """An Arrow array over the memory of numbers or truth values.

    >>> from_numpy(np.array([3, 1]) > 2).to_pylist(), from_numpy(np.array([3, 1], dtype="i2")).type
    ([True, False], DataType(int16))
    """
    if values.dtype == np.bool_:
        packed = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])
    numbers = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(numbers)]
    )


def to_numpy(array: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The numbers, or truth values, of a column without nulls; numbers of one array where they are.

    >>> to_numpy(pa.chunked_array([[1, 2], [3]])).tolist(), to_numpy(pa.array([True, False])[1:]).tolist()
    ([1, 2, 3], [False])
    """
    if isinstance(array, pa.ChunkedArray):
        pieces = [to_numpy(chunk) for chunk in array.chunks]
        return np.concatenate(pieces) if pieces else to_numpy(pa.nulls(0, array.type))
    if array.null_count:
        raise ValueError(f"{array.null_count} nulls among the numbers")
    begin, count, buffer = array.offset, len(array), array.buffers()[1]
    if not count:
        return np.empty(0, dtype=np.bool_ if array.type == pa.bool_() else _KINDS[array.type])
    if array.type == pa.bool_():
        bits = np.unpackbits(np.frombuffer(buffer, dtype=np.uint8), bitorder="little")
        return bits[begin : begin + count].view(np.bool_)
    kind = _KINDS[array.type]
    return np.frombuffer(buffer, dtype=kind, count=count, offset=begin * kind.itemsize)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose strings have the one form that joins know; dictionaries are written out.

    >>> plain(pa.record_batch({"a": pa.array(["x"]).dictionary_encode()})).schema.field("a").type
    DataType(string)
    """
    schema = plain_schema(batch.schema)
    return batch if schema.types == batch.schema.types else batch.cast(schema)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of batches that `plain` gives."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema], schema.metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    return _plain_type(kind.value_type) if pat.is_dictionary(kind) else _PLAIN.get(kind, kind)
