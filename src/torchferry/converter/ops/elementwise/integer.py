"""Integers as bits and as products of primes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.control.repetition import repeated
from torchferry.converter.write.kernel import widened
from torchferry.seams.operators import aten

__all__: list[str] = []

UNSIGNED: dict[Any, ir.DataType] = {
    ir.DataType.INT8: ir.DataType.UINT8, ir.DataType.INT16: ir.DataType.UINT16,
    ir.DataType.INT32: ir.DataType.UINT32, ir.DataType.INT64: ir.DataType.UINT64,
}  # fmt: skip
_BITWISE = {
    "and": ("BitwiseAnd", "And"), "or": ("BitwiseOr", "Or"), "xor": ("BitwiseXor", "Xor"),
}  # fmt: skip


def _bitwise(op_type: str, logical: str) -> Callable[..., ir.Value]:
    def write(b: Block, x: Any, other: Any) -> ir.Value:
        like = x if isinstance(x, ir.Value) else other
        return b.add(logical if like.dtype == ir.DataType.BOOL else op_type, (x, other))

    return write


for _name, _op_types in _BITWISE.items():
    _packet, _dunder = getattr(aten, f"bitwise_{_name}"), getattr(aten, f"__{_name}__")
    lowers(
        _packet.Tensor, _packet.Scalar, _packet.Scalar_Tensor, _dunder.Tensor, _dunder.Scalar,
        promote="default",
    )(_bitwise(*_op_types))  # fmt: skip


@lowers(aten.bitwise_not.default)
def bitwise_not(b: Block, x: ir.Value) -> ir.Value:
    return b.Not(x) if x.dtype == ir.DataType.BOOL else b.BitwiseNot(x)


# Shifts --------------------------------------------------------------------------------------


@lowers(
    aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor, aten.__lshift__.Tensor, aten.__lshift__.Scalar,
    promote="default",
)  # fmt: skip
def bitwise_left_shift(b: Block, x: Any, other: Any) -> ir.Value:
    like = x if isinstance(x, ir.Value) else other
    x, other = b.cast(x, like), b.cast(other, like)
    bits = _bits(like)
    unsigned = UNSIGNED.get(like.dtype) or like
    count = _within(b, other, bits)
    shifted = b.BitShift(b.cast(x, unsigned), b.cast(count, unsigned), direction="LEFT")
    return widened(b, "Where", _fits(b, other, bits), b.cast(shifted, like), b.constant(0, like))


@lowers(
    aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor, aten.__rshift__.Tensor, aten.__rshift__.Scalar,
    promote="default",
)  # fmt: skip
def bitwise_right_shift(b: Block, x: Any, other: Any) -> ir.Value:
    like = x if isinstance(x, ir.Value) else other
    x, other = b.cast(x, like), b.cast(other, like)
    bits = _bits(like)
    unsigned = UNSIGNED.get(like.dtype)
    if unsigned is None:
        moved = b.BitShift(x, _within(b, other, bits), direction="RIGHT")
        return b.Where(_fits(b, other, bits), moved, b.constant(0, like))
    # The sign fills: a negative number is shifted as its complement.
    sign = b.Neg(b.cast(b.Less(x, b.constant(0, x)), x))
    count = widened(b, "Where", _fits(b, other, bits), other, b.constant(bits - 1, like))
    plain = b.cast(b.BitwiseXor(x, sign), unsigned)
    moved = b.BitShift(plain, b.cast(count, unsigned), direction="RIGHT")
    return b.BitwiseXor(b.cast(moved, like), sign)


def _bits(x: ir.Value) -> int:
    if x.dtype is None or x.dtype == ir.DataType.BOOL or x.dtype.is_floating_point():
        raise ValueError("only integers are shifted by bits: make it an integer first")
    return int(x.dtype.itemsize * 8)


def _fits(b: Block, count: ir.Value, bits: int) -> ir.Value:
    """Where a number of bits is one that an integer of this size can be shifted by."""
    return b.And(
        b.GreaterOrEqual(count, b.constant(0, count)), b.Less(count, b.constant(bits, count))
    )


def _within(b: Block, count: ir.Value, bits: int) -> ir.Value:
    return widened(b, "Clip", count, b.constant(0, count), b.constant(bits - 1, count))


# Divisors ------------------------------------------------------------------------------------


@lowers(aten.gcd.default, promote="default")
def gcd(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    """Euclid's algorithm, in a loop that ends when no pair has a remainder."""
    wide = [b.Abs(b.cast(v, ir.DataType.INT64)) for v in (x, other)]
    shape = b.shape(b.Add(*wide))
    first, second = (b.Expand(v, shape) for v in wide)
    return b.cast(_euclid(b, first, second), x)


@lowers(aten.lcm.default, promote="default")
def lcm(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    x, other = (b.cast(v, ir.DataType.INT64) for v in (x, other))
    divisor = b.Max(gcd(b, x, other), 1)
    return b.Abs(b.Mul(b.Div(x, divisor), other))


def _euclid(b: Block, first: ir.Value, second: ir.Value) -> ir.Value:
    def step(b: Block, count: ir.Value, x: ir.Value, y: ir.Value) -> Sequence[ir.Value]:
        done = b.Equal(y, 0)
        rest = b.Where(done, 0, b.Mod(x, b.Where(done, 1, y)))
        return _some(b, rest), b.Where(done, x, y), rest

    return repeated(b, "euclid", (first, second), step, going=_some(b, second))[0]


def _some(b: Block, x: ir.Value) -> ir.Value:
    """Whether any element is not zero; false for none."""
    return b.Greater(b.ReduceSum(b.cast(b.Greater(x, 0), x), keepdims=0), 0)
