"""The LLVM vocabulary of the kernels: memory at an address, eight lanes of 64 bits, rotations, transposes.

Numba compiles plain loops over arrays of lanes to scalar code, so the kernels say what they mean in LLVM's own
vectors: ``<8 x i64>`` holds one number of eight keys, ``<8 x i32>`` one block. LLVM lowers them to what the CPU has.

Two kinds of functions:

- **emitters** take an `ir.IRBuilder` and LLVM values, and append instructions; those that compute work alike on one
  lane (``i64``) and on eight (``<8 x i64>``);
- **operations**, made of emitters by `operation`, are what a kernel calls, with uint64 arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from zonebloom.bloom.kernels import subroutine

Value: TypeAlias = Any
Builder: TypeAlias = Any
Emitter: TypeAlias = Callable[..., Value]

I1: Value = ir.IntType(1)
I8: Value = ir.IntType(8)
I32: Value = ir.IntType(32)
I64: Value = ir.IntType(64)
I32X8: Value = ir.VectorType(I32, 8)
I64X4: Value = ir.VectorType(I64, 4)
I64X8: Value = ir.VectorType(I64, 8)


def operation(returns: Any = types.void) -> Callable[[Emitter], Callable[..., Any]]:
    """Makes an emitter callable from kernels: each argument after the builder becomes a uint64."""

    def decorate(emitter: Emitter) -> Callable[..., Any]:
        signature = returns(*[types.uint64] * (len(inspect.signature(emitter).parameters) - 1))

        def generate(context: Any, builder: Builder, _signature: Any, arguments: Sequence[Value]) -> Value:
            result = emitter(builder, *arguments)
            return context.get_dummy_value() if result is None else result

        def define(_typing_context: Any, *_arguments: Any) -> tuple[Any, Any]:
            return signature, generate

        # Numba packs *arguments into a tuple unless the signature names each.
        define.__signature__ = inspect.signature(emitter)  # type: ignore[attr-defined]
        define.__name__ = emitter.__name__
        define.__doc__ = emitter.__doc__
        operation_: Callable[..., Any] = intrinsic(define)
        return operation_

    return decorate


# --- emitters ---------------------------------------------------------------------------------------------------------


def constant(value: int, like: Any = I64X8) -> Value:
    """`value` modulo the width of the lanes, in every lane of a value of type `like`."""
    lane = like.element if isinstance(like, ir.VectorType) else like
    value &= (1 << lane.width) - 1
    return ir.Constant(like, [value] * like.count if isinstance(like, ir.VectorType) else value)


def offset(b: Builder, address: Value, num_bytes: int) -> Value:
    """The address `num_bytes` further on."""
    return b.add(address, constant(num_bytes, I64))


def load(b: Builder, address: Value, kind: Any) -> Value:
    """The value of type `kind` at any address, aligned or not."""
    return b.load(b.inttoptr(address, kind.as_pointer()), align=1)


def store(b: Builder, value: Value, address: Value) -> None:
    """Writes `value` at any address, aligned or not."""
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=1)


def splat(b: Builder, value: Value) -> Value:
    """`value` in each of eight lanes."""
    kind = ir.VectorType(value.type, 8)
    undefined = ir.Constant(kind, ir.Undefined)
    return b.shuffle_vector(b.insert_element(undefined, value, constant(0, I32)), undefined, constant(0, I32X8))


def shuffle(b: Builder, left: Value, right: Value, lanes: Sequence[int]) -> Value:
    """The chosen lanes of `left` (numbered from 0) and `right` (numbered on from there)."""
    return b.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def lane(b: Builder, vector: Value, index: int) -> Value:
    """One lane of a vector."""
    return b.extract_element(vector, constant(index, I32))


def _call(b: Builder, name: str, returns: Any, arguments: Sequence[Value]) -> Value:
    kind = ir.FunctionType(returns, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(b.module, kind, name)  # type: ignore[no-untyped-call]
    return b.call(function, list(arguments))


def any_lane(b: Builder, mask: Value) -> Value:
    """Whether any of eight 1-bit lanes is set."""
    return b.icmp_unsigned("!=", b.bitcast(mask, I8), constant(0, I8))


def rotate_left(b: Builder, value: Value, bits: int) -> Value:
    """Each lane rotated; a funnel shift, as LLVM turns shift-or back into a multiplication at times."""
    name = "llvm.fshl.v8i64" if value.type == I64X8 else "llvm.fshl.i64"
    return _call(b, name, value.type, [value, value, constant(bits, value.type)])


def maximum(b: Builder, value: Value) -> Value:
    """The largest of eight unsigned lanes."""
    return _call(b, "llvm.vector.reduce.umax.v8i64", I64, [value])


def transpose_4x8(b: Builder, rows: Sequence[Value]) -> tuple[Value, Value, Value, Value]:
    """Eight rows of four words become four columns of eight: lane i of column c is word c of row i."""
    pairs = [shuffle(b, rows[i], rows[i + 4], range(8)) for i in range(4)]
    even_lanes, odd_lanes = (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15)
    low_lanes, high_lanes = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    even = [shuffle(b, pairs[i], pairs[i + 1], even_lanes) for i in (0, 2)]
    odd = [shuffle(b, pairs[i], pairs[i + 1], odd_lanes) for i in (0, 2)]
    return (
        shuffle(b, even[0], even[1], low_lanes),
        shuffle(b, odd[0], odd[1], low_lanes),
        shuffle(b, even[0], even[1], high_lanes),
        shuffle(b, odd[0], odd[1], high_lanes),
    )


def stack_slot(b: Builder, kind: Any) -> Value:
    """A pointer to uninitialised memory for one value of type `kind`, the same however often this is reached.

    Numba's own `alloca_once` clears the memory, byte by byte for an array: slow to run, and a minute to compile.
    """
    with b.goto_entry_block():
        return b.alloca(kind)


def stack_bytes(num_bytes: int) -> Callable[..., Any]:
    """An operation that returns the address of `num_bytes` on the stack of the kernel, aligned to 64."""

    def stack_buffer(b: Builder) -> Value:
        buffer = stack_slot(b, ir.ArrayType(I8, num_bytes))
        buffer.align = 64
        return b.ptrtoint(buffer, I64)

    return operation(types.uint64)(stack_buffer)


# --- operations -------------------------------------------------------------------------------------------------------


@operation(types.uint64)
def load_u64(b: Builder, address: Value, index: Value) -> Value:
    """Word `index` of the uint64 array at `address`."""
    return load(b, b.add(address, b.shl(index, constant(3, I64))), I64)


@operation(types.uint64)
def load_u32(b: Builder, address: Value, index: Value) -> Value:
    """Word `index` of the uint32 array at `address`."""
    return b.zext(load(b, b.add(address, b.shl(index, constant(2, I64))), I32), I64)


@operation(types.uint64)
def load_u8(b: Builder, address: Value, index: Value) -> Value:
    """Byte `index` of the array at `address`."""
    return b.zext(load(b, b.add(address, index), I8), I64)


def _array_of(kind: Any, item: Any) -> Callable[..., Any]:
    kind_of_pointer = types.CPointer(item)  # type: ignore[no-untyped-call]
    pointer = operation(kind_of_pointer)(lambda b, address: b.inttoptr(address, kind.as_pointer()))

    def array(address: Any, count: Any) -> Any:
        return carray(pointer(address), count)

    return subroutine(array)


u8_array: Callable[..., Any] = _array_of(I8, types.uint8)
"""The `count` bytes at an address as an array: of a loop over arrays LLVM makes vectors, of one over addresses not."""
u32_array: Callable[..., Any] = _array_of(I32, types.uint32)
"""As `u8_array`, of 32-bit words at an address that is a multiple of 4."""
u64_array: Callable[..., Any] = _array_of(I64, types.uint64)
"""As `u8_array`, of 64-bit words at an address that is a multiple of 8."""


@operation()
def store_u8(b: Builder, address: Value, index: Value, value: Value) -> None:
    """Sets byte `index` of the array at `address`."""
    store(b, b.trunc(value, I8), b.add(address, index))


@operation()
def store_u32(b: Builder, address: Value, index: Value, value: Value) -> None:
    """Sets word `index` of the uint32 array at `address`."""
    store(b, b.trunc(value, I32), b.add(address, b.shl(index, constant(2, I64))))


@operation()
def store_u64(b: Builder, address: Value, index: Value, value: Value) -> None:
    """Sets word `index` of the uint64 array at `address`."""
    store(b, value, b.add(address, b.shl(index, constant(3, I64))))


@operation()
def zero_bytes(b: Builder, address: Value, num_bytes: Value) -> None:
    """Clears `num_bytes` at `address`."""
    cgutils.memset(b, b.inttoptr(address, I8.as_pointer()), num_bytes, 0)  # type: ignore[no-untyped-call]


@operation()
def copy_bytes(b: Builder, target: Value, source: Value, num_bytes: Value) -> None:
    """Copies `num_bytes` from one place to another that does not overlap it."""
    target, source = (b.inttoptr(place, I8.as_pointer()) for place in (target, source))
    cgutils.raw_memcpy(b, target, source, num_bytes, 1)  # type: ignore[no-untyped-call]


@operation(types.uint64)
def count_ones(b: Builder, value: Value) -> Value:
    """How many of the 64 bits are set."""
    return _call(b, "llvm.ctpop.i64", I64, [value])


@operation(types.uint64)
def count_trailing_zeros(b: Builder, value: Value) -> Value:
    """The position of the lowest bit that is set; 64 if none is."""
    return _call(b, "llvm.cttz.i64", I64, [value, ir.Constant(I1, 0)])
