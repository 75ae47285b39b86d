"""Products with integers of four bits that are scaled, in every spelling, as MatMulNBits.

The kernel unpacks the weight as it multiplies, in float32, so that it is as near as a product is.
With eight bits it takes many times as long as with floats, which is why those stay as they are.
Source: com.microsoft.MatMulNBits in
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, constant, rank, shape, tensor_of
from torchferry.optimizer.folding import VIEWS, compute
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require

__all__ = ["RULES"]

Array = np.ndarray[Any, Any]

_MS = "com.microsoft"
_OTHER = "the weight is not computed of integers"
_STEPS = 15  # between the least and the greatest code
_MIDDLE = 8  # the zero point of the kernel when it is given none
_BLOCKS = (256, 128, 64, 32, 16)
_ROUNDING = 2e-6
_ARITHMETIC: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract,
}  # fmt: skip


@dataclass(frozen=True)
class _Scaled:
    """A weight that is computed of integers.

    Attributes:
        name: of the initializer that holds them.
        codes: the integers, laid out as the weight.
        content: the weight itself, float32.
    """

    name: str
    codes: Array
    content: Array


class MatMulFourBits(Rule):
    """x @ ((w - zero) * scale), w of four bits  →  com.microsoft.MatMulNBits(x, w, scale, zero)"""

    keeps_interior = True

    def pattern(self, p: Ops, x: Var, w: Var, bias: Var) -> Any:
        return p.any_of(
            p.MatMul(x, w, name="product"), p.Gemm(x, w, p.optional(bias), name="product")
        )

    def starts(self, node: ir.Node) -> bool:
        """Whether the weight is a computed one."""
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        maker = None if weight is None else weight.producer()
        return maker is not None and maker.op_type in {*VIEWS, *_ARITHMETIC, "DequantizeLinear"}

    def check(self, x: ir.Value, w: ir.Value, product: ir.Node) -> None:
        require(x.dtype == ir.DataType.FLOAT and rank(x) >= 2, "x is no matrix of float32")
        require(rank(w) == 2, "the weight is no matrix")
        require(len(w.uses()) == 1, "the weight is read elsewhere too")
        if product.op_type == "Gemm":
            factors = attribute(product, "alpha", 1.0), attribute(product, "beta", 1.0)
            require(factors == (1.0, 1.0), "the product is scaled")
            require(not attribute(product, "transA", 0), "x is transposed")

    def rewrite(
        self, b: Block, x: ir.Value, w: ir.Value, product: ir.Node, bias: ir.Value | None = None
    ) -> Any:
        weight = _scaled(w, b.opset)
        if product.op_type == "MatMul" or not attribute(product, "transB", 0):
            weight = replace(weight, codes=weight.codes.T, content=weight.content.T)
        codes, low = weight.codes, int(weight.codes.min(initial=0))
        require(int(weight.codes.max(initial=0)) - low <= _STEPS, "it has more than four bits")
        size, scales, zeros = _blocks(weight)
        low = min(low, -_MIDDLE) if low >= -_MIDDLE and not zeros.any() else low
        zeros = zeros - low
        require(((zeros >= 0) & (zeros <= _STEPS)).all(), "a zero point has more than four bits")
        packed = _pairs((codes.astype(np.int16) - low).astype(np.uint8))
        (rows, columns), halves = codes.shape, _pairs(zeros.astype(np.uint8))
        blocks = ir.Tensor(packed.reshape(rows, -1, size // 2), name=f"{weight.name}.packed")
        result = b.MatMulNBits(
            x, b.constant(blocks), b.constant(ir.Tensor(scales, name=f"{weight.name}.scales")),
            None if (zeros == _MIDDLE).all() else b.constant(halves),
            domain=_MS, K=columns, N=rows, bits=4, block_size=size, like=product.outputs[0],
        )  # fmt: skip
        return result if bias is None else b.Add(result, bias)


def _scaled(value: ir.Value | None, opset: int) -> _Scaled:
    """The integers that a weight is computed of.

    Raises:
        Declined: it is not computed of integers, or not by operators that only scale them.
    """
    node = None if value is None else value.producer()
    if node is None or node.domain:
        raise Declined(_OTHER)
    if node.op_type in VIEWS:
        inner, view = _scaled(node.inputs[0], opset), VIEWS[node.op_type]
        return replace(inner, codes=view(inner.codes, node), content=view(inner.content, node))
    if node.op_type == "DequantizeLinear":
        return _dequantized(node, opset)
    if node.op_type == "Cast":
        codes = _codes(node.inputs[0], opset)
        require(attribute(node, "to") == ir.DataType.FLOAT, "the weight is not float32")
        return _Scaled(_name(node.inputs[0]), codes, codes.astype(np.float32))
    moving = [place for place, item in enumerate(node.inputs) if constant(item) is None]
    if len(moving) == 2:  # one is a zero point that is cast, and kept as it was
        size = math.prod(map(_length, shape(value)))
        moving = [p for p in moving if math.prod(map(_length, shape(node.inputs[p]))) == size]
    require(node.op_type in _ARITHMETIC and len(moving) == 1, _OTHER)
    inner = _scaled(node.inputs[moving[0]], opset)
    left, right = (
        inner.content if place in moving else compute(item, opset).numpy()
        for place, item in enumerate(node.inputs)
    )
    content = _ARITHMETIC[node.op_type](left, right)
    require(content.shape == inner.codes.shape, "the weight is broadcast")
    return replace(inner, content=content)


def _length(size: Size) -> int:
    if not isinstance(size, int):
        raise Declined(_OTHER)
    return size


def _dequantized(node: ir.Node, opset: int) -> _Scaled:
    source, scale, zero = (*node.inputs, None)[:3]
    codes, steps = _codes(source, opset), tensor_of(scale).numpy()
    places = np.zeros_like(steps) if zero is None else _codes(zero, opset)
    require(steps.dtype == np.float32, "the weight is not float32")
    axis, size = attribute(node, "axis", 1), attribute(node, "block_size", 0)
    if size:
        length = codes.shape[axis]
        steps, places = (
            np.repeat(a, size, axis).take(range(length), axis) for a in (steps, places)
        )
    elif steps.size > 1:
        sizes = [-1 if place == axis % codes.ndim else 1 for place in range(codes.ndim)]
        steps, places = steps.reshape(sizes), places.reshape(sizes)
    content = (codes.astype(np.float32) - places.astype(np.float32)) * steps
    return _Scaled(_name(source), codes, content)


def _codes(value: ir.Value | None, opset: int) -> Array:
    dtype = None if value is None else value.dtype
    if dtype is None or not dtype.is_integer():
        raise Declined(_OTHER)
    require(dtype.bitwidth <= 8, "its integers have more than eight bits")
    return compute(value, opset).numpy().astype(np.int16)


def _name(value: ir.Value | None) -> str:
    """The name of the initializer that integers are computed of."""
    while value is not None and (node := value.producer()) is not None and node.inputs:
        value = node.inputs[0]
    return "weight" if value is None else str(value.name)


def _blocks(weight: _Scaled) -> tuple[int, Array, Array]:
    """The largest blocks of a row with a scale and a zero point each.

    Returns:
        The size of a block, scales and zero points ``[rows, blocks]``.
    """
    rows, columns = weight.codes.shape
    for size in _BLOCKS:
        if columns % size == 0:
            sizes = rows, columns // size, size
            found = _fitted(weight.codes.reshape(sizes), weight.content.reshape(sizes))
            if found is not None:
                return size, *found
    raise Declined("no blocks of 16 numbers or more have a scale each")


def _fitted(codes: Array, content: Array) -> tuple[Array, Array] | None:
    """The scale and zero point of each block; ``None`` if they do not give the content."""

    def at(place: Array) -> list[Array]:
        places = place[..., None]
        return [np.take_along_axis(each, places, -1)[..., 0] for each in (codes, content)]

    (low, least), (high, most) = at(codes.argmin(-1)), at(codes.argmax(-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        step = (most - least) / (high - low)
        zero = low - np.rint(least / step)
    same = ~np.isfinite(zero)  # every code of the block is one, or every number is 0
    zero = np.where(same, np.where(least == 0, low, low - 1), zero)
    code, number = at(np.abs(codes - zero[..., None]).argmax(-1))
    scale = np.where(code == zero, 0, number / np.where(code == zero, 1, code - zero))
    scale = scale.astype(np.float32)
    given = (codes - zero[..., None]).astype(np.float32) * scale[..., None]
    close = np.abs(given - content) <= _ROUNDING * np.abs(content).max(-1, keepdims=True)
    return (scale, zero.astype(np.int16)) if close.all() else None


def _pairs(codes: Array) -> Array:
    """Two of four bits in a byte along the last axis, the first in the lower half."""
    even = np.pad(codes, [(0, 0), (0, codes.shape[-1] % 2)])
    packed: Array = even[:, ::2] | even[:, 1::2] << 4
    return packed


RULES: tuple[Rule, ...] = (MatMulFourBits(),)
