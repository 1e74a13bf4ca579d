"""How an algorithm divides its memory: opening a join and predicting its cost go by the same rules.

In the order in which the parts are taken: ordered output, index buffer, index, disk buffer, pinned pages or front stage, and
the window gets what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from semistream.config import format_bytes
from semistream.errors import TooLittleMemoryError
from semistream.front import BYTES_PER_ROW, SKETCH_BYTES_PER_ROW
from semistream.joins.hotrows import HotRows
from semistream.joins.pagefinder import index_buffer_bytes
from semistream.joins.reader import buffer_sizes, index_bytes
from semistream.joins.registry import BATCH_LOOKUP, FRONTED, LOOKING_UP, SCANNING, Settings
from semistream.joins.sides import JoinShape
from semistream.master import Master
from semistream.memory.rowtable import RowTable
from semistream.memory.window import Window

_ONE_ARM = "hdd-2007"  # where a block of one page would cost a seek
# Of a disk buffer: bytes, both halves where there are two, and the most of the budget. By the models they lose little against the
# best one for each budget from 20 to 320 MB (tests/cost/test_defaults.py); on a real disk smaller reads keep neither the disk
# busy nor the joining thread. An object store's is all that it keeps in flight, as far as memory allows.
_USUAL_SCAN = (12 << 20, 1 / 5)
_SCAN = {
    "hdd-2007": (512 << 10, 1 / 5),
    "ssd-sata": (3 << 20, 1 / 5),
    "nvme": (6 << 20, 1 / 5),
    "object-store": (32 << 20, 2 / 5),
}
_USUAL_BLOCKS = (8 << 20, 1 / 8)  # single pages, many together
_BLOCKS = {_ONE_ARM: (6 << 20, 1 / 8)}
_FRONT_SHARE = 0.35
_PINNED_SHARE = 0.25
_LOOKUP_FRONT_SHARE = 0.97  # there is no window; what is left is for rounding


def reads_ahead(name: str, disk_kind: str, settings: Settings) -> bool:
    """Whether pages are read while others are joined.

    A simulated disk's time passes in turn: there it would change nothing but the counts.
    """
    blocks = name not in ("inlj", "cinlj", BATCH_LOOKUP) and settings.parallel > 1
    return disk_kind in ("direct", "buffered") and (name in (*SCANNING, "in-memory") or blocks)


def default_disk(master: Master, disk_kind: str) -> str:
    """Whose defaults a disk has: a real one's those of where the master is, which may be an object store."""
    return "object-store" if disk_kind in ("direct", "buffered") and not master.is_local else disk_kind


def disk_buffer_bytes(name: str, total_bytes: int, disk_kind: str, settings: Settings) -> int:
    """Of both halves, where there are two; `disk_kind` is that of `default_disk`."""
    if settings.disk_buffer:
        return settings.disk_buffer
    if name in (*SCANNING, "in-memory"):
        nbytes, share = _SCAN.get(disk_kind, _USUAL_SCAN)
    else:
        nbytes, share = _BLOCKS.get(disk_kind, _USUAL_BLOCKS)
    return min(nbytes, int(share * total_bytes))


def block_pages(pages_at_once: int, disk_kind: str, settings: Settings) -> int:
    """B of the hybrid family: single pages by default, but where each would cost a seek, all that the buffer holds."""
    if settings.block_pages is not None:
        return settings.block_pages
    return pages_at_once if disk_kind == _ONE_ARM and not settings.disk_buffer else 1


def pinned_bytes(master: Master, total_bytes: int, left_bytes: int, settings: Settings) -> int:
    """X-HYBRIDJOIN's pages that are never swapped."""
    share = settings.front_share if settings.front_share is not None else _PINNED_SHARE
    most = min(share * total_bytes, 0.75 * left_bytes)  # the window needs some too
    pages = max(1, int(most) // master.page_bytes)
    return min(pages, max(master.pages, 1)) * master.page_bytes


def front_rows(name: str, shape: JoinShape, left_bytes: int, heap_bytes: float, settings: Settings) -> int:
    """Rows that the front stage has room for; `heap_bytes` are of the strings of a row."""
    default = _LOOKUP_FRONT_SHARE if name == BATCH_LOOKUP else _FRONT_SHARE
    nbytes = int((settings.front_share if settings.front_share is not None else default) * left_bytes)
    if nbytes <= 0:
        return 0
    layout = RowTable.layout(HotRows.leaves(shape))
    rows = RowTable.capacity_for(layout, nbytes, heap_bytes)
    return RowTable.capacity_for(layout, nbytes - _recorder_bytes(name, rows), heap_bytes)


def _too_little(asked: str, *, found: str, least_bytes: int) -> TooLittleMemoryError:
    hint = f"Raise memory= to at least {format_bytes(least_bytes, up=True)}."
    error = TooLittleMemoryError(asked, found=found, hint=hint)
    error.least_bytes = least_bytes
    return error


def _hot_bytes(shape: JoinShape, rows: int, heap_bytes: float) -> int:
    return RowTable.bytes_for(RowTable.layout(HotRows.leaves(shape)), rows, heap_bytes)


def _recorder_bytes(name: str, rows: int) -> int:
    return rows * (BYTES_PER_ROW + (SKETCH_BYTES_PER_ROW if name == BATCH_LOOKUP else 0))


@dataclass(frozen=True)
class Division:
    """What an algorithm has to work with; `parts` are the bytes of each structure, by the name it has in the budget."""

    pages_at_once: int  # b: that one read may bring
    pinned_pages: int  # l
    front_rows: int  # h_R
    window_tuples: int  # h_S
    total_bytes: int
    block_pages: int = 1  # k
    parts: dict[str, int] = field(default_factory=dict, hash=False)


def divide(
    name: str,
    master: Master,
    shape: JoinShape,
    *,
    memory_bytes: int,
    disk_kind: str,
    settings: Settings,
    row_heap_bytes: float,
    tuple_heap_bytes: float,
) -> Division:
    """The parts that `open_join` would give, without opening anything."""
    parts: dict[str, int] = {}
    if name in LOOKING_UP and index_buffer_bytes(master):
        parts["index buffer"] = index_buffer_bytes(master)
    parts["index"] = index_bytes(master)
    halves = 2 if reads_ahead(name, disk_kind, settings) else 1
    wanted = disk_buffer_bytes(name, memory_bytes, default_disk(master, disk_kind), settings)
    size, rows = buffer_sizes(master, wanted, halves)
    parts["disk buffer"] = halves * (size + 8 * rows)
    left = memory_bytes - sum(parts.values())
    pinned = front = 0
    if name == "x-hybridjoin":
        nbytes, rows = buffer_sizes(master, pinned_bytes(master, memory_bytes, left, settings), 1)
        pinned = nbytes // master.page_bytes
        parts["pinned pages"] = nbytes + 8 * rows
    elif name in FRONTED and shape.is_keyed:
        front = front_rows(name, shape, left, row_heap_bytes, settings)
        if front:
            parts["front stage"] = _hot_bytes(shape, front, row_heap_bytes) + _recorder_bytes(name, front)
    if name == "in-memory":
        parts["master"] = _hot_bytes(shape, master.rows, row_heap_bytes)
    left = memory_bytes - sum(parts.values())
    if name == "in-memory" and left < 0:
        raise _too_little(
            f"in-memory within {format_bytes(memory_bytes)}",
            found=f"{master.rows:,} rows, which do not fit",
            least_bytes=memory_bytes - left,
        )
    window = 0
    if name not in ("in-memory", BATCH_LOOKUP):
        layout = Window.layout(shape.window_leaves)
        window = Window.capacity_for(layout, max(left, 0), tuple_heap_bytes)
        if window < 1:
            raise _too_little(
                f"{name} within {format_bytes(memory_bytes)}",
                found="no room for a single waiting tuple",
                least_bytes=memory_bytes - left + Window.bytes_for(layout, 1, tuple_heap_bytes),
            )
        parts["window"] = Window.bytes_for(layout, window, tuple_heap_bytes)
    at_once = max(1, size // master.page_bytes)
    blocks = min(block_pages(at_once, disk_kind, settings), at_once)
    return Division(at_once, pinned, front, window, memory_bytes, blocks, parts)
