"""Memory by address, for kernels over columns whose number and widths are known only when they run.

A compiled kernel takes arrays one by one; rows of any schema are as many arrays as it has columns. So they are handed over
as a table of addresses. Whoever takes an address keeps the array alive until the kernel is done.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from semistream.kernel import inlined


def address_of(array: NDArray[Any]) -> int:
    """Where an array's memory begins."""
    return int(array.__array_interface__["data"][0])


def _loader(bits: int) -> Any:
    def load(typingctx: object, address: object) -> tuple[object, object]:  # noqa: ARG001
        def generate(context: object, builder: Any, signature: object, args: Any) -> object:  # noqa: ARG001
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            return builder.zext(builder.load(pointer, align=1), ir.IntType(64))

        return types.int64(types.int64), generate

    return intrinsic(load)


def _storer(bits: int) -> Any:
    def store(typingctx: object, address: object, value: object) -> tuple[object, object]:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: object, args: Any) -> object:  # noqa: ARG001
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            builder.store(builder.trunc(args[1], ir.IntType(bits)), pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return intrinsic(store)


def _copier() -> Any:
    def copy(typingctx: object, to: object, source: object, nbytes: object) -> tuple[object, object]:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: object, args: Any) -> object:  # noqa: ARG001
            byte = ir.IntType(8).as_pointer()
            target, start = builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte)
            cgutils.raw_memmove(builder, target, start, args[2], 1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    return intrinsic(copy)


def _prefetcher() -> Any:
    def prefetch(typingctx: object, address: object) -> tuple[object, object]:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: object, args: Any) -> object:  # noqa: ARG001
            number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            called = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(called, [builder.inttoptr(args[0], byte), number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return intrinsic(prefetch)


load8, load16, load32 = _loader(8), _loader(16), _loader(32)  # as unsigned numbers
load64 = _loader(64)
store8, store16, store32, store64 = _storer(8), _storer(16), _storer(32), _storer(64)
copy_bytes = _copier()  # (to, source, nbytes); the two may overlap
prefetch = _prefetcher()  # ask for a cache line that is needed soon; any address will do


@inlined
def copy_short(to: int, source: int, nbytes: int) -> None:
    """Copy some bytes, eight at a time: for short strings faster than a call."""
    if nbytes > 64:
        copy_bytes(to, source, nbytes)
    else:
        done = 0
        while done + 8 <= nbytes:
            store64(to + done, load64(source + done))
            done += 8
        while done < nbytes:
            store8(to + done, load8(source + done))
            done += 1


@inlined
def same_bytes(one: int, other: int, nbytes: int) -> bool:
    """Whether two runs of bytes are the same."""
    done = 0
    while done + 8 <= nbytes:
        if load64(one + done) != load64(other + done):
            return False
        done += 8
    while done < nbytes:
        if load8(one + done) != load8(other + done):
            return False
        done += 1
    return True
