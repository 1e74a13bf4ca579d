"""The loops that read: machine code that calls the operating system itself, so that no Python runs per page.

Three ways to read a batch of calls:

- `read_cached`: takes what the page cache has, without waiting, and leaves the rest to another.
- `read_in_turn`: pread after pread; several threads, each with its own slice, keep a device busy.
- `read_queued`: Linux's kernel queue (io_submit, io_getevents): one thread keeps up to a hundred reads in flight. It is
  asynchronous only for descriptors opened with O_DIRECT. Measured here, random 16 KiB pages: 120-150 k reads/s on half a
  core, where 16 threads of pread reach 60-90 k on one and a quarter.

All mark the calls whose bytes all landed and check their pages at once, while they are in cache. They return how many
landed and the first bad page (or -1). What did not land is for the caller to try again, more slowly and with better
words.
"""

from __future__ import annotations

import ctypes
import errno
from typing import TypeAlias

import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from semistream.kernel import kernel
from semistream.master.disk.calls import DESCRIPTOR, FIRST, LANDED, LENGTH, OFFSET, TARGET
from semistream.master.disk.checksum import first_bad_page

# Symbols of libc, looked up by name when a kernel is linked: that is what lets compiled kernels be cached.
_pread = types.ExternalFunction("pread", types.int64(types.int32, types.uintp, types.uintp, types.int64))
_preadv2 = types.ExternalFunction(
    "preadv2", types.int64(types.int32, types.uintp, types.int32, types.int64, types.int32)
)
_syscall = types.ExternalFunction("syscall", types.int64(*[types.int64] * 6))
_errno_location = types.ExternalFunction("__errno_location", types.CPointer(types.int32)())

_EINTR = errno.EINTR
_RWF_NOWAIT = 8  # of linux/fs.h
HAS_PREADV2 = hasattr(ctypes.CDLL(None), "preadv2")
_ATTEMPTS = 3

# Completions are collected a quarter of the queue at a time: one by one, system calls cost more than they hide.
_COLLECT = 4

LOST_QUEUE = -2

# What the kernels are given of a batch: the table of calls (see calls.py), the buffer, target and length of the extents,
# and their seeds or none.
Batch: TypeAlias = tuple[
    NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]
]


@kernel
def read_in_turn(
    todo: NDArray[np.int64],
    begin: int,
    end: int,
    table: NDArray[np.int64],
    words: NDArray[np.uint64],
    page_target: NDArray[np.int64],
    page_length: NDArray[np.int64],
    seeds: NDArray[np.uint64],
) -> tuple[int, int]:
    """Read the calls todo[begin] .. todo[end - 1], one after the other."""
    base = words.ctypes.data
    count = 0
    bad = -1
    for k in range(begin, end):
        call = todo[k]
        length = table[LENGTH, call]
        got = 0
        failures = 0
        while got < length and failures < _ATTEMPTS:
            more = _pread(
                np.int32(table[DESCRIPTOR, call]),
                np.uintp(base + table[TARGET, call] + got),
                np.uintp(length - got),
                table[OFFSET, call] + got,
            )
            if more > 0:
                got += more
            else:
                failures += 1
        if got == length:
            count += 1
            bad = _land(call, bad, table, words, page_target, page_length, seeds)
    return count, bad


@kernel
def read_cached(
    todo: NDArray[np.int64],
    table: NDArray[np.int64],
    words: NDArray[np.uint64],
    page_target: NDArray[np.int64],
    page_length: NDArray[np.int64],
    seeds: NDArray[np.uint64],
) -> tuple[int, int]:
    """Read what is in the page cache already, and leave the rest alone: nothing here waits for a device."""
    base = words.ctypes.data
    part = np.empty(2, dtype=np.int64)  # struct iovec
    count = 0
    bad = -1
    for call in todo:
        part[0] = base + table[TARGET, call]
        part[1] = table[LENGTH, call]
        got = _preadv2(
            np.int32(table[DESCRIPTOR, call]),
            np.uintp(part.ctypes.data),
            np.int32(1),
            table[OFFSET, call],
            np.int32(_RWF_NOWAIT),
        )
        if got == part[1]:
            count += 1
            bad = _land(call, bad, table, words, page_target, page_length, seeds)
    return count, bad


@kernel
def read_queued(
    todo: NDArray[np.int64],
    context: int,
    submit_number: int,
    collect_number: int,
    window_bytes: int,
    blocks: NDArray[np.int64],
    pointers: NDArray[np.int64],
    events: NDArray[np.int64],
    table: NDArray[np.int64],
    words: NDArray[np.uint64],
    page_target: NDArray[np.int64],
    page_length: NDArray[np.int64],
    seeds: NDArray[np.uint64],
) -> tuple[int, int]:
    """Read the calls of `todo` through one queue; returns only when nothing is in flight any more."""
    base = words.ctypes.data
    depth = pointers.size
    submitted = 0
    in_flight = 0
    bytes_in_flight = 0
    arrived = 0
    count = 0
    bad = -1
    while True:
        # Refill the queue first, so that the device works while the pages that arrived are verified.
        slots = 0
        planned = bytes_in_flight
        while slots < depth - in_flight and submitted + slots < todo.size and planned < window_bytes:
            # struct iocb. The kernel copies it while it takes it, so the blocks are free again at once.
            call = todo[submitted + slots]
            blocks[slots, 0] = call
            blocks[slots, 2] = table[DESCRIPTOR, call] << 32  # beside it the operation: 0 is a read
            blocks[slots, 3] = base + table[TARGET, call]
            blocks[slots, 4] = table[LENGTH, call]
            blocks[slots, 5] = table[OFFSET, call]
            planned += table[LENGTH, call]
            slots += 1
        refused = False
        if slots > 0:
            took = max(0, _syscall(submit_number, context, slots, pointers.ctypes.data, 0, 0))
            for slot in range(took):
                bytes_in_flight += blocks[slot, 4]
            submitted += took
            in_flight += took
            refused = took == 0
        for e in range(arrived):
            call = events[e, 0]
            if events[e, 2] == table[LENGTH, call]:
                count += 1
                bad = _land(call, bad, table, words, page_target, page_length, seeds)
        arrived = 0
        if in_flight == 0:
            if refused or submitted == todo.size:
                return count, bad
            continue
        arrived = _syscall(
            collect_number, context, max(1, in_flight // _COLLECT), depth, events.ctypes.data, 0
        )
        if arrived < 0:
            if carray(_errno_location(), 1)[0] != _EINTR:
                return count, LOST_QUEUE
            arrived = 0
        in_flight -= arrived
        for e in range(arrived):
            bytes_in_flight -= table[LENGTH, events[e, 0]]


@kernel
def _land(
    call: int,
    bad: int,
    table: NDArray[np.int64],
    words: NDArray[np.uint64],
    page_target: NDArray[np.int64],
    page_length: NDArray[np.int64],
    seeds: NDArray[np.uint64],
) -> int:
    """Mark a call as landed, check its pages, and return the first bad page so far."""
    table[LANDED, call] = 1
    if seeds.size == 0:
        return bad
    page = first_bad_page(words, page_target, page_length, seeds, table[FIRST, call], table[FIRST, call + 1])
    return page if page >= 0 and (bad < 0 or page < bad) else bad
