"""The factors of the models on the machine and disk at hand, measured; or those of a simulated disk.

`calibrate(master)` times the operators' own steps on the master's own pages: reads of one page and of blocks, alone and many
together (c_IO), and per tuple or row c_S, c_A, c_P, c_H, c_O, c_E, and what only joins that run tell (overheads.py). It takes some seconds, and is kept per machine and device in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from semistream.cost.disks import DiskCosts, MeasuredCosts, ProfileCosts
from semistream.cost.overheads import scan_turns, step_turns
from semistream.cost.prices import PRICES, Prices, prices_of
from semistream.errors import InvalidInputError
from semistream.joins.join import string_bytes_of
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.opening import Opening, open_join
from semistream.joins.registry import Settings
from semistream.joins.sides import shape_join
from semistream.master import Master, build_master
from semistream.master.disk import aligned_buffer
from semistream.master.disk.profiles import PROFILES
from semistream.master.storage import LocalStorage, ObjectStorage
from semistream.workload import Uniform, Workload

_BLOCK_PAGES = (1, 8, 64, 512)
_TOGETHER = (1, 16, 256)
_MOST_BYTES = 32 << 20  # of one read
_LEAST_PAGES = 4 * _BLOCK_PAGES[-1]
_READ_FOR_S = 0.15  # a place of the curve
_REPEATS = 7
_TUPLES = 1 << 16
_RUN = ("meshjoin", "cmeshjoin", "hybridjoin", "inlj")
_TEMPORARY_ROWS = 400_000
_FORMAT = 4
DEFAULTS = "defaults: never calibrated here"
Beside = tuple[tuple[int, float], ...]  # bytes of a scan's read, how many times as long as alone


@dataclass(frozen=True)
class Calibration:
    """The factors, and how far they spread: the middle half of the measurements over their median."""

    disk: DiskCosts
    prices: Prices
    spread: dict[str, float]
    origin: str  # where they come from


def check_disk(disk: str) -> None:
    """One that there is."""
    if disk not in ("direct", "buffered", *PROFILES):
        raise InvalidInputError(
            f"disk={disk!r}", found="no such disk", hint=f"Choose direct, buffered, {', '.join(PROFILES)}."
        )


def costs_of(master: Master, disk: str) -> Calibration:
    """A profile's factors, those kept for this machine and disk, or the defaults."""
    if disk in PROFILES:
        return _of_profile(disk)
    usual = "nvme" if master.is_local else "object-store"
    return _load(_place(master, disk)) or Calibration(
        ProfileCosts(PROFILES[usual]), PRICES["default"], {}, f"{DEFAULTS}, reads as on {usual}"
    )


def _of_profile(disk: str) -> Calibration:
    return Calibration(ProfileCosts(PROFILES[disk]), prices_of(disk), {}, disk)


def calibrate(master: Master | None = None, *, disk: str = "direct", remember: bool = True) -> Calibration:
    """Measure this machine and the disk that a master is on; without one, the disk of the temporary directory.

    Args:
        master: Any master on the disk in question; it is only read.
        disk: "direct" or "buffered"; a profile's factors are returned as they are.
        remember: Keep the result for `tune` and `join` on this machine and disk; of an object store, per bucket. Where the cache
            directory cannot be written, `origin` says so.
    """
    check_disk(disk)
    if disk in PROFILES:
        return _of_profile(disk)
    if master is not None and not master.pages:
        raise InvalidInputError(
            f"calibrating with {master.path}", found="an empty master", hint="Give one with rows, or none."
        )
    with tempfile.TemporaryDirectory(prefix="semistream-calibration-") as folder:
        small = _temporary_master(Path(folder))
        there = small if master is None else master
        if there.pages < _LEAST_PAGES:  # too few to read blocks of, or many at once
            if _device(there) != _device(small):
                raise InvalidInputError(
                    f"calibrating with {there.path}",
                    found=f"{there.pages:,} pages, on another disk than the temporary directory",
                    hint=f"Give a master of at least {_LEAST_PAGES:,} pages on that disk.",
                )
            there = small
        reads, read_spread = _read_curve(there, disk)
        # What joins read is the small master, which may be on another disk, or in the page cache.
        alone = reads if there is small else _read_curve(small, disk)[0]
        prices, beside, spread = _measured(small, disk, alone)
        reads = replace(reads, slowed=beside)
        found = Calibration(reads, prices, {**spread, "c_IO": read_spread}, "measured")
        if remember:
            try:
                _keep(_place(there, disk), found)
            except OSError as error:  # what was measured is not lost with the place to keep it
                hint = "set SEMISTREAM_CACHE_DIR to a directory that can be written"
                return replace(found, origin=f"measured, but not kept ({error}): {hint}")
        return found


def _temporary_master(folder: Path) -> Master:
    rows = np.arange(_TEMPORARY_ROWS, dtype=np.int64)
    columns = {"id": rows}
    columns.update({f"v{i}": rows * i for i in range(1, 15)})  # 120 B a row
    return build_master(pa.table(columns), folder / "master", key="id", page_bytes=4096)


def _read_curve(master: Master, disk: str) -> tuple[MeasuredCosts, float]:
    """Seconds of a batch of random blocks, by size of the block and number of them."""
    rng, page = np.random.default_rng(1), master.page_bytes
    buffer = aligned_buffer(max(_MOST_BYTES, page))
    curve, spreads = [], []
    with closing(master.open_disk(disk)) as device:
        for pages in [p for p in _BLOCK_PAGES if p <= master.pages and p * page <= _MOST_BYTES]:
            for together in [n for n in _TOGETHER if n * pages * page <= _MOST_BYTES]:
                times: list[float] = []
                while sum(times) < _READ_FOR_S or len(times) < 3:
                    starts = np.sort(
                        rng.choice(
                            max(1, master.pages // pages),
                            min(together, max(1, master.pages // pages)),
                            replace=False,
                        )
                    )
                    wanted = (starts[:, None] * pages + np.arange(pages)).ravel().astype(np.int64)
                    wanted = wanted[wanted < master.pages]
                    began = perf_counter()
                    master.data.load(wanted, device, buffer)
                    times.append((perf_counter() - began) * together / len(starts))
                curve.append((pages * page, together, float(np.median(times))))
                spreads.append(_spread(times))
    return MeasuredCosts(tuple(curve)), float(np.median(spreads))


def _measured(master: Master, disk: str, reads: MeasuredCosts) -> tuple[Prices, Beside, dict[str, float]]:
    """Per tuple and row, by the operators' own steps on pages in memory; then what joins that run tell.

    `reads` are of this master.
    """
    stream = Workload(Uniform(2 * master.rows), seed=1)
    batches = [stream.slice(i * _TUPLES, (i + 1) * _TUPLES) for i in range(1 + _REPEATS)]
    on = {"product_id": "id"}
    shape = shape_join(batches[0].schema, master, on=on)
    opening = Opening(
        "meshjoin",
        master,
        shape,
        64 << 20,
        "buffered",
        string_bytes_of(shape, batches[0]),
        Settings(disk_buffer=8 << 20),
    )
    opened = open_join(opening)
    taken: dict[str, list[float]] = {name: [] for name in ("c_S", "c_A", "c_P", "c_H", "c_O", "c_E")}
    try:
        join = opened.join
        if not isinstance(join, MeshJoin):
            raise AssertionError("as opened")
        waiting, reader = join.waiting, join.waiting.reader
        pages = np.arange(reader.pages_at_once, dtype=np.int64)
        for batch in batches:
            began = perf_counter()
            tuples, _ = shape.keyed(batch)
            taken["c_S"].append((perf_counter() - began) / len(batch))
            began = perf_counter()
            count = waiting.admit(tuples, len(tuples))
            taken["c_A"].append((perf_counter() - began) / count)
            before, disk_before = waiting.stats.rows, reader.disk.stats.seconds
            began = perf_counter()
            loaded = reader.load(pages)
            parsed = perf_counter() - began - (reader.disk.stats.seconds - disk_before)
            began = perf_counter()
            for slots, _rows in waiting._pairs(loaded, None):
                del slots
            probed = perf_counter() - began
            taken["c_P"].append(parsed / loaded.found.rows)
            taken["c_H"].append(probed / loaded.found.rows)
            began = perf_counter()
            for _ in waiting.match(loaded):
                pass
            out = perf_counter() - began - probed
            taken["c_O"].append(max(out, 0.0) / max(waiting.stats.rows - before, 1))
            leaving = waiting.window.oldest(count)
            began = perf_counter()
            for _ in waiting.leave(leaving, np.ones(len(leaving), dtype=np.bool_)):
                pass
            taken["c_E"].append((perf_counter() - began) / count)
    finally:
        opened.close()
    taken = {name: values[1:] for name, values in taken.items()}  # the first loads the kernels
    middle = {name: float(np.median(values)) for name, values in taken.items()}
    prices = Prices(
        probe_s=middle["c_H"],
        output_s=middle["c_O"],
        remove_s=middle["c_E"],
        read_s=middle["c_S"],
        append_s=middle["c_A"],
        parse_s=middle["c_P"],
    )
    turns = step_turns(_RUN, master, shape, disk, prices, reads)
    steps = {name: [turn.step_s for turn in turns[name]] for name in _RUN}
    scan, fronted, block, lookup = (float(np.median(steps[name])) for name in _RUN)
    prices = replace(
        prices,
        scan_step_s=scan,
        block_step_s=block,
        lookup_step_s=lookup,
        front_step_s=max(0.0, fronted - scan),
    )
    slowed: dict[int, list[float]] = {}
    for turn in scan_turns(master, shape, disk, prices, reads):
        slowed.setdefault(turn.read_bytes, []).append(turn.slowed)
    # Below 1 it is noise: no read becomes faster by what goes on beside it.
    beside = tuple((size, max(1.0, float(np.median(factors)))) for size, factors in sorted(slowed.items()))
    taken |= {f"step of {name}": values for name, values in steps.items()}
    taken["beside"] = [factor for factors in slowed.values() for factor in factors]
    return prices, beside, {name: _spread(values) for name, values in taken.items()}


def _spread(values: list[float]) -> float:
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle) if middle else 0.0


def _place(master: Master, disk: str) -> Path | None:
    """The file for this machine and where a master is; None where that is nowhere any more."""
    own, usual = os.environ.get("SEMISTREAM_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    root = Path(own) if own else Path(usual or Path.home() / ".cache") / "semistream"
    try:
        device = _device(master)
    except OSError:
        return None
    what = f"{platform.node()} {platform.machine()} {os.cpu_count()} {device} {disk} {_FORMAT}"
    return Path(root, "calibration", f"{hashlib.blake2b(what.encode(), digest_size=8).hexdigest()}.json")


def _device(master: Master) -> str:
    """What reads go to: a device of this machine, or a bucket."""
    storage = master.storage
    if isinstance(storage, LocalStorage):
        return str(Path(storage.root).stat().st_dev)
    if not isinstance(storage, ObjectStorage):
        return master.path
    filesystem, path = storage.filesystem, storage.root
    while isinstance(filesystem, pafs.SubTreeFileSystem):
        filesystem, path = filesystem.base_fs, f"{filesystem.base_path}{path}"
    return f"{filesystem.type_name}://{path.strip('/').split('/')[0]}"


def _keep(place: Path | None, found: Calibration) -> None:
    if place is None or not isinstance(found.disk, MeasuredCosts):
        return
    content = {
        "format": _FORMAT,
        "prices": asdict(found.prices),
        "reads": [list(point) for point in found.disk.curve],
        "slowed": [list(point) for point in found.disk.slowed],
        "spread": found.spread,
    }
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = place.with_suffix(f".{os.getpid()}.aside")
    aside.write_text(json.dumps(content, indent=1))
    aside.replace(place)


def _load(place: Path | None) -> Calibration | None:
    """What was kept, if it is what it should be; anything else is as if it were not there."""
    try:
        content = json.loads(place.read_text()) if place is not None else None
        if not isinstance(content, dict) or content["format"] != _FORMAT:
            return None
        prices = Prices(**{field.name: _positive(content["prices"][field.name]) for field in fields(Prices)})
        reads = tuple((int(size), int(count), _positive(s)) for size, count, s in content["reads"])
        slowed = tuple((int(size), _positive(factor)) for size, factor in content["slowed"])
        spread = {str(name): float(value) for name, value in content["spread"].items()}
        return Calibration(MeasuredCosts(reads, slowed), prices, spread, "measured") if reads else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _positive(value: float) -> float:
    number = float(value)
    if not (math.isfinite(number) and 0.0 <= number < 1e3):
        raise ValueError(f"{value!r} is no number of seconds")
    return number
