"""Nodes that need not be written, seen from what is already there.

A lowering knows its own operator only. Where two of them meet (``x.unsqueeze(0).unsqueeze(-1)``)
one node does for two; what is left unused is removed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.weight import Weight

if TYPE_CHECKING:
    from torchferry.converter.block import Block

__all__ = ["plain_weight", "simplified"]

Values = Sequence[ir.Value | None]


def simplified(b: Block, op_type: str, inputs: Values) -> ir.Value | None:
    """A value that is what the node would give; ``None`` when the node has to be written.

    Args:
        b: where a simpler node is added when there is one.
        op_type: an operator of ONNX's own domain without attributes that matter.
        inputs: of the node.
    """
    rule = _RULES.get(op_type)
    return None if rule is None else rule(b, inputs)


def _unsqueeze(b: Block, inputs: Values) -> ir.Value | None:
    """Write Unsqueeze(Unsqueeze(x)) as Unsqueeze(x)."""
    x, outer = inputs[0], _content(inputs[1])
    inner = None if x is None else x.producer()
    if inner is None or inner.op_type != "Unsqueeze" or x is None or x.shape is None:
        return None
    first, axes = inner.inputs[0], _content(inner.inputs[1])
    if first is None or axes is None or outer is None or first.meta.get("complex"):
        return None
    middle, rank = len(x.shape), len(x.shape) + outer.size
    added = {int(axis) % rank for axis in outer}
    rest = [place for place in range(rank) if place not in added]
    added |= {rest[int(axis) % middle] for axis in axes}
    result: ir.Value = b.Unsqueeze(first, sorted(added))
    return result


def _mul(b: Block, inputs: Values) -> ir.Value | None:  # noqa: ARG001  (a rule's parameters)
    """Write x * 1 as x."""
    for x, factor in (inputs, inputs[::-1]):
        if x is None or factor is None:
            continue
        if _is_number(factor, 1, x):
            return x
    return None


def _div(b: Block, inputs: Values) -> ir.Value | None:  # noqa: ARG001  (a rule's parameters)
    """Write x / 1 as x."""
    x, divisor = inputs
    return x if x is not None and divisor is not None and _is_number(divisor, 1, x) else None


def _and(b: Block, inputs: Values) -> ir.Value | None:  # noqa: ARG001  (a rule's parameters)
    """Write x & True as x."""
    for x, other in (inputs, inputs[::-1]):
        if x is not None and other is not None and _is_number(other, True, x):
            return x
    return None


def _reshape(b: Block, inputs: Values) -> ir.Value | None:  # noqa: ARG001  (a rule's parameters)
    """Leave a shape that is the same as it is."""
    x, shape = inputs[0], _content(inputs[1])
    if x is None or shape is None or x.shape is None or len(x.shape) != shape.size:
        return None
    sizes = [int(size) for size in shape]
    free = [place for place, size in enumerate(sizes) if size == -1]
    same = all(size in (0, -1) or x.shape[place] == size for place, size in enumerate(sizes))
    # 0 copies a size; one size that is left to infer is the one x has, as the others are equal
    return x if same and len(free) <= 1 and 0 not in list(x.shape) else None


def _expand(b: Block, inputs: Values) -> ir.Value | None:
    """Write what is expanded to nothing as an empty tensor.

    onnxruntime removes an Expand whose constant sizes are not larger than those of x. It then
    also removes one from (1, 3) to (0, 3), which would change the result.
    """
    x, target = inputs[0], _content(inputs[1])
    if x is None or target is None or x.shape is None or x.dtype is None or 0 not in target:
        return None
    wanted, rank = [int(size) for size in target], len(x.shape)
    own = [b.dim(x, axis) for axis in range(rank)]
    length = max(rank, len(wanted))
    pairs = zip([1] * (length - rank) + own, [1] * (length - len(wanted)) + wanted, strict=True)
    sizes = b.vector([mine if other == 1 else other for mine, other in pairs])
    kind = ir.DataType.FLOAT if x.dtype == ir.DataType.BFLOAT16 else x.dtype
    nothing: ir.Value = b.ConstantOfShape(sizes, value=ir.tensor(np.zeros(1, kind.numpy())))
    result = b.cast(nothing, x.dtype)
    if x.meta.get("complex"):
        result.meta["complex"] = True
    return result


def plain_weight(b: Block, x: ir.Value | None, weight: ir.Value | None) -> ir.Value | None:
    """The operand of a product, (weight - zero point) * scale instead of DequantizeLinear.

    onnxruntime computes arithmetic of constants once, when it loads the model, but dequantizes in
    every call. Worse, it fuses some DequantizeLinear and the product behind it into MatMulNBits,
    which rounds the other operand to eight bits unless the session is told not to. The product of
    two dequantized operands stays, as it multiplies their integers; but for signed weights the
    kernels of processors without VNNI add in 16 bits, and saturate.
    """
    other = None if x is None else x.producer()
    if weight is not None and other is not None and other.op_type == "DequantizeLinear":
        return _unsigned(b, weight) or weight
    return weight if weight is None else _plain(b, weight) or weight


def _unsigned(b: Block, weight: ir.Value) -> ir.Value | None:
    """A dequantized weight of int8 as one of uint8: the same numbers; ``None`` of others."""
    node = weight.producer()
    if node is None or node.op_type not in ("Reshape", "Transpose", "DequantizeLinear"):
        return None
    attributes = {name: item.value for name, item in node.attributes.items()}
    x, *others = node.inputs
    if node.op_type != "DequantizeLinear":
        inner = None if x is None else _unsigned(b, x)
        result = None if inner is None else b.add(node.op_type, [inner, *others], **attributes)
    elif x is None or x.dtype != ir.DataType.INT8 or not _is_weight(x):
        result = None
    else:
        scale, zero = (*others, None)[:2]
        codes, zeros = _raised(b, x), _raised(b, b.constant(0, ir.DataType.INT8)
                                              if zero is None else zero)  # fmt: skip
        if zero is None and scale is not None and scale.shape:
            zeros = b.Expand(zeros, b.shape(scale))
        result = b.DequantizeLinear(codes, scale, zeros, **attributes)
    unsigned: ir.Value | None = result
    return unsigned


def _raised(b: Block, codes: ir.Value) -> ir.Value:
    """Codes of int8 as those of uint8, 128 higher."""
    wide = b.Add(b.cast(codes, ir.DataType.INT32), b.constant(128, ir.DataType.INT32))
    return b.cast(wide, ir.DataType.UINT8)


def _plain(b: Block, weight: ir.Value) -> ir.Value | None:
    node = weight.producer()
    if node is None or node.op_type not in ("Reshape", "Transpose"):
        return None if node is None else _spelled_out(b, node)
    inner = None if node.inputs[0] is None else _plain(b, node.inputs[0])
    if inner is None:
        return None
    attributes = {name: item.value for name, item in node.attributes.items()}
    result: ir.Value = b.add(node.op_type, [inner, *node.inputs[1:]], **attributes)
    return result


def _lookup(b: Block, inputs: Values) -> ir.Value | None:
    """Look rows up in a table of integers, instead of dequantizing all of it in every call.

    Where rows have scales of their own, it is arithmetic, which onnxruntime computes once.
    """
    table, places = inputs
    node = None if table is None else table.producer()
    scale = node.inputs[1] if node is not None and node.op_type == "DequantizeLinear" else None
    plain = None if table is None else _plain(b, table)
    if node is None or plain is None:
        return None
    result: ir.Value
    if scale is not None and scale.shape is not None and not scale.shape:
        result = b.DequantizeLinear(b.Gather(node.inputs[0], places), *node.inputs[1:])
    else:
        result = b.Gather(plain, places)
    return result


def _spelled_out(b: Block, node: ir.Node) -> ir.Value | None:
    """What DequantizeLinear computes of a weight, as arithmetic; ``None`` of other nodes."""
    if node.op_type != "DequantizeLinear" or not _is_weight(node.inputs[0]):
        return None
    x, scale, zero = (*node.inputs, None)[:3]
    if x is None or scale is None or x.shape is None or scale.shape is None:
        return None
    axis, rank = node.attributes.get_int("axis", 1), len(x.shape)
    sizes = [-1 if place == axis % rank else 1 for place in range(rank)]
    along = [sizes] if len(scale.shape) == 1 else []
    distance = b.cast(x, scale)
    if zero is not None:
        wide = b.cast(zero, scale)
        distance = b.Sub(distance, b.Reshape(wide, *along) if along else wide)
    result: ir.Value = b.Mul(distance, b.Reshape(scale, *along) if along else scale)
    return result


def _is_weight(value: ir.Value | None) -> bool:
    """Whether a value is a constant, or is computed from constants."""
    if value is None or value.const_value is not None:
        return True
    node = value.producer()
    return node is not None and all(map(_is_weight, node.inputs))


_RULES: dict[str, Callable[[Block, Values], ir.Value | None]] = {
    "Unsqueeze": _unsqueeze, "Mul": _mul, "Div": _div, "And": _and, "Reshape": _reshape,
    "Expand": _expand, "Gather": _lookup,
}  # fmt: skip


def _content(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """A small constant; ``None`` for everything else."""
    tensor = None if value is None else value.const_value
    if tensor is None or isinstance(tensor, Weight) or tensor.size > 16:
        return None
    return tensor.numpy()


def _is_number(value: ir.Value, number: float, beside: ir.Value) -> bool:
    """Whether a constant is this number, and does not widen the shape of what it stands beside."""
    content = _content(value)
    if content is None or content.size != 1 or beside.shape is None:
        return False
    return content.ndim <= len(beside.shape) and bool(content.reshape(-1)[0] == number)
