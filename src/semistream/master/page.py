"""One page: an Arrow record batch message, padded to a whole number of disk blocks and sealed by a checksum.

    | FFFFFFFF | length | metadata (flatbuffer) | body: the columns' buffers | padding | checksum |
    |<--------------------------- page_bytes, a multiple of 4096 ------------------------------->|

The padding belongs to the message's body, so a page is a valid Arrow message as it stands and a file of pages is a
valid Arrow file (see pagefile.py). A row too long for a page gets a longer page to itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from numpy.typing import NDArray

from semistream.arrow import from_numpy
from semistream.errors import InvalidInputError
from semistream.master.disk import ALIGNMENT

CHECKSUM_BYTES = 8
DEFAULT_PAGE_BYTES = 16 * 1024
MAX_PAGE_BYTES = 1 << 30
_BODY_LENGTH_FIELD = 3  # of the flatbuffer table Message: version, header_type, header, bodyLength


@dataclass(frozen=True)
class PlannedPage:
    """Rows start .. stop of a batch, as the message that goes into a page of `bytes` bytes."""

    start: int
    stop: int
    message: pa.Buffer
    bytes: int


def check_page_bytes(page_bytes: int) -> int:
    """A page size that a disk can read directly, or an error."""
    if page_bytes % ALIGNMENT or not 0 < page_bytes <= MAX_PAGE_BYTES:
        raise InvalidInputError(
            f"page_bytes={page_bytes}",
            found="a size that disks cannot read directly",
            hint=f"Use a multiple of {ALIGNMENT}, such as {DEFAULT_PAGE_BYTES}.",
        )
    return page_bytes


def plan_pages(batch: pa.RecordBatch, page_bytes: int) -> Iterator[PlannedPage]:
    """Fill pages with consecutive rows, as many as fit."""
    bits, buffers = np.zeros(len(batch) + 1, dtype=np.int64), 0
    for column in batch.columns:
        column_bits, column_buffers = _cumulative_bits(column)
        bits, buffers = bits + column_bits, buffers + column_buffers
    # Arrow pads every buffer of a slice to eight bytes and some to 64, as it finds convenient; so the first guess is
    # a little high, and the message itself says whether it fits.
    room = page_bytes - CHECKSUM_BYTES - _empty_message_bytes(batch.schema) - 8 * buffers
    # Of a list that has no element in a page's rows Arrow writes all data there is; a copy of the rows has none.
    nested = any(pat.is_nested(kind) for kind in batch.schema.types)

    def message_of(start: int, stop: int) -> pa.Buffer:
        rows = batch.slice(start, stop - start)
        return (rows.take(from_numpy(np.arange(len(rows)))) if nested else rows).serialize()

    start = 0
    while start < len(batch):
        stop = int(np.searchsorted(bits, bits[start] + 8 * room, side="right")) - 1
        stop = min(max(stop, start + 1), len(batch))
        message = message_of(start, stop)
        while (excess := message.size + CHECKSUM_BYTES - page_bytes) > 0 and stop - start > 1:
            row_bits = max(1, int(bits[stop] - bits[start]) // (stop - start))
            stop = max(start + 1, stop - max(1, excess * 8 // row_bits))
            message = message_of(start, stop)
        size = max(page_bytes, -(-(message.size + CHECKSUM_BYTES) // ALIGNMENT) * ALIGNMENT)
        yield PlannedPage(start, stop, message, size)
        start = stop


def write_page(message: pa.Buffer, target: NDArray[np.uint8]) -> int:
    """Lay a message into `target`, a whole page but for its checksum; give the bytes before its body."""
    size = message.size
    target[:size] = np.frombuffer(message, dtype=np.uint8)
    target[size:] = 0
    (metadata_bytes,) = struct.unpack_from("<i", message, 4)
    body_length_at = _field_position(message, 8, _BODY_LENGTH_FIELD)
    struct.pack_into("<q", target.data, body_length_at, len(target) - 8 - metadata_bytes)
    return int(metadata_bytes) + 8


def read_page(page: NDArray[np.uint8], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a page, as views of its bytes; they live only as long as the bytes stay."""
    return pa.ipc.read_record_batch(pa.py_buffer(page), schema)


def _field_position(buffer: pa.Buffer | bytes, start: int, field: int) -> int:
    """Where a field of the root table of a flatbuffer that begins at `start` is stored."""
    table = start + struct.unpack_from("<I", buffer, start)[0]
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    return int(table + struct.unpack_from("<H", buffer, vtable + 4 + 2 * field)[0])


def _empty_message_bytes(schema: pa.Schema) -> int:
    # Not a slice of no rows: Arrow writes such a slice's string data whole.
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    return int(pa.ipc.get_record_batch_size(empty))


def _cumulative_bits(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    """For each row the bits of all rows before it, and the number of buffers, of this column and all inside it."""
    kind, count = column.type, len(column)
    steps = np.arange(count + 1, dtype=np.int64)
    nulls = 1 if column.null_count and not pat.is_null(kind) else 0
    if pat.is_null(kind):
        return np.zeros(count + 1, dtype=np.int64), 0
    if pat.is_struct(kind):
        bits, buffers = steps * nulls, 1
        for index in range(kind.num_fields):
            child_bits, child_buffers = _cumulative_bits(column.field(index))
            bits, buffers = bits + child_bits, buffers + child_buffers
        return bits, buffers
    if pat.is_string(kind) or pat.is_binary(kind) or pat.is_list(kind) or pat.is_map(kind):
        offsets = _offsets(column)
        bits = steps * (32 + nulls)
        if pat.is_string(kind) or pat.is_binary(kind):
            return bits + 8 * (offsets - offsets[0]), 3
        child_bits, child_buffers = _cumulative_bits(column.values)
        return bits + child_bits[offsets] - child_bits[offsets[0]], 2 + child_buffers
    return steps * (int(kind.bit_width) + nulls), 2


def _offsets(column: pa.Array) -> NDArray[np.int64]:
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(column) + 1, dtype=np.int64)
    raw = np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return raw.astype(np.int64)
