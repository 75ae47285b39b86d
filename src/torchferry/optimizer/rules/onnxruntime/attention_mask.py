"""What masks of attention hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.facts import array, attribute, constant, ints, number
from torchferry.optimizer.sizes import contents

__all__ = [
    "hides",
    "hides_or_keeps",
    "is_causal",
    "is_finite",
    "is_number",
    "least",
    "made_by",
    "sees",
]

_FINITE = {
    "Where": (1, 2), "Add": (0, 1), "Cast": (0,), "Expand": (0,), "Gather": (0,), "Slice": (0,),
    "Reshape": (0,), "Transpose": (0,), "Unsqueeze": (0,), "Squeeze": (0,), "Identity": (0,),
    "ScatterND": (0, 2), "Trilu": (0,), "ConstantOfShape": (),
}  # fmt: skip
"""Operators of finite values that give these, or 0, and which inputs those values are."""

_RANGE = {
    ir.DataType.BOOL: 0, ir.DataType.FLOAT16: 1, ir.DataType.BFLOAT16: 2, ir.DataType.FLOAT: 3,
    ir.DataType.DOUBLE: 4,
}  # fmt: skip
"""Types in the order of their largest numbers: a Cast to an earlier one may make infinity."""

_LEAST = float(np.finfo(np.float32).min) * (1 + 1e-8)
"""What is rounded to the least float32 is no less than this."""

_MOST = 1 << 24  # elements of a mask that is looked at


def made_by(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node of ONNX's own that makes a value, if it is one of these operators."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type in op_types and not node.domain else None


def is_number(value: ir.Value | None) -> bool:
    """Whether a value is a constant of one element."""
    tensor = constant(value)
    return tensor is not None and tensor.size == 1


def is_finite(value: ir.Value | None) -> bool:
    """Whether a value is made of finite constants only, so that it hides nothing for good."""
    tensor = constant(value)
    if tensor is not None:
        return bool(np.isfinite(array(value, most=_MOST)).all())
    if (kept := _kept(value)) is not None:
        return is_finite(kept)
    node = _chooser(value)
    if node is None:
        return False
    if node.op_type == "ConstantOfShape":
        fill = attribute(node, "value")
        return fill is None or bool(np.isfinite(fill.numpy()).all())
    if node.op_type == "Add" and least(value) < _LEAST:
        return False  # what two masks hide may be -inf
    return all(is_finite(node.inputs[i]) for i in _FINITE[node.op_type])


def _chooser(value: ir.Value | None) -> ir.Node | None:
    """The node that makes a value of nothing but elements of its inputs, sums of them, or 0."""
    node = None if value is None else value.producer()
    if node is None or node.domain or node.op_type not in _FINITE:
        return None
    if node.op_type == "Cast":
        of, to = (
            None if item is None or item.dtype is None else _RANGE.get(item.dtype)
            for item in (node.inputs[0], node.outputs[0])
        )
        return node if of is not None and to is not None and of <= to else None
    replaces = attribute(node, "reduction", "none") == "none"  # a ScatterND may also add
    return node if replaces else None


def hides_or_keeps(value: ir.Value | None) -> bool:
    """Whether a value is made of 0 and -inf only: no score is rounded where it is added."""
    tensor = constant(value)
    if tensor is not None:
        content = array(value, most=_MOST)
        return bool(((content == 0) | (content == -np.inf)).all())
    node = made_by(value, "Where", "Expand", "Unsqueeze")
    if node is None:
        return False
    return all(hides_or_keeps(node.inputs[index]) for index in _FINITE[node.op_type])


def least(value: ir.Value | None) -> float:
    """A number that no element of a value is below, as far as constants tell; else -inf."""
    tensor = constant(value)
    if tensor is not None:
        content = array(value, most=_MOST)
        return float(content.min()) if content.size else np.inf
    if (kept := _kept(value)) is not None:
        return min(least(kept), 0.0)
    node = _chooser(value)
    if node is None:
        return -np.inf
    if node.op_type == "ConstantOfShape":
        fill = attribute(node, "value")
        return 0.0 if fill is None else float(fill.numpy().item())
    bounds = [least(node.inputs[index]) for index in _FINITE[node.op_type]]
    if node.op_type == "Trilu":
        bounds.append(0.0)
    return sum(bounds) if node.op_type == "Add" else min(bounds)


def _kept(value: ir.Value | None) -> ir.Value | None:
    """What is multiplied by 0 or 1 somewhere."""
    node = made_by(value, "Mul")
    for chosen, other in () if node is None else (node.inputs[:2], node.inputs[1::-1]):
        cast = made_by(other, "Cast")
        if cast is not None and cast.inputs[0] is not None and (
            cast.inputs[0].dtype == ir.DataType.BOOL
        ):  # fmt: skip
            return chosen
    return None


def sees(condition: ir.Value | None, mask: ir.Value) -> bool:
    """Whether a condition asks if anything in the last axis of a mask is not hidden.

    Args:
        condition: keeps the last axis.
        mask: true where a score counts, or added to it, -inf where not.
    """
    chain: list[str] = []
    value = condition
    while value is not mask:
        node = made_by(value, "Greater", "Cast", "ReduceSum", "ReduceMax")
        if node is None or len(chain) == _STEPS:
            return False
        chain.append(_asked(node))
        value = node.inputs[0]
    return tuple(chain) in (_OF_BOOL if mask.dtype == ir.DataType.BOOL else _OF_ADDED)


def _asked(node: ir.Node) -> str:
    if node.op_type == "Greater":
        return f"> {number(node.inputs[1])}" if is_number(node.inputs[1]) else ""
    if node.op_type.startswith("Reduce"):
        last = len(node.inputs) > 1 and ints(node.inputs[1]) in ([-1], [3])
        return node.op_type if last and attribute(node, "keepdims", 1) else ""
    return node.op_type


_STEPS = 4
_OF_BOOL = {("ReduceMax",)} | {
    (asked, most, "Cast")
    for asked in ("> 0", "> 0.0", "Cast")
    for most in ("ReduceSum", "ReduceMax")
}
_OF_ADDED = {("> -inf", "ReduceMax")} | {(*chain, "> -inf") for chain in _OF_BOOL}
"""What makes the condition of the mask, the last first."""


def hides(content: np.ndarray[Any, Any]) -> bool:
    """Whether a score that this number is added to has no weight, be it the only one of a row."""
    return content.size == 1 and bool(content.item() <= np.finfo(np.float32).min)


def is_causal(bias: ir.Value | None, rows: Size, columns: Size) -> bool:
    """Whether a term hides the keys behind each query and nothing else: as many of both.

    Args:
        bias: is added to the scores.
        rows: the number of queries.
        columns: the number of keys.
    """
    if rows != columns or bias is None:
        return False
    if constant(bias) is not None:
        content = array(bias, most=_MOST)
        if content.shape != (rows, columns):
            return False
        behind = np.triu(np.ones(content.shape, bool), 1)
        hiding = content[behind] <= np.finfo(np.float32).min
        return bool(hiding.all() and not content[~behind].any())
    node = made_by(bias, "Trilu", "Where")
    if node is None:
        return False
    if node.op_type == "Trilu":
        hidden = _fill(node.inputs[0], rows, columns)
        corner = _triangle(node) == (True, 1)
        return corner and hidden is not None and hides(np.asarray(hidden))
    condition, yes, no = node.inputs
    if (equal := made_by(condition, "Equal")) is not None and _is(equal.inputs[1], 0):
        condition, yes, no = equal.inputs[0], no, yes
    triangle = made_by(condition, "Trilu")
    if triangle is None or not (is_number(yes) and is_number(no)):
        return False
    ones = _fill(triangle.inputs[0], rows, columns)
    lower = _triangle(triangle) == (False, 0) and ones == 1
    return lower and _is(yes, 0) and hides(array(no))


def _is(value: ir.Value | None, wanted: float) -> bool:
    return is_number(value) and bool(number(value) == wanted)


def _triangle(node: ir.Node) -> tuple[bool, int | None]:
    """Which half a Trilu keeps, and from which diagonal on."""
    offset = node.inputs[1] if len(node.inputs) > 1 else None
    at = 0 if offset is None else int(number(offset)) if is_number(offset) else None
    return bool(attribute(node, "upper", 1)), at


def _fill(value: ir.Value | None, rows: Size, columns: Size) -> float | None:
    """The number that fills a matrix of this size."""
    node = made_by(value, "Expand")
    if node is None or not is_number(node.inputs[0]):
        return None
    return float(number(node.inputs[0])) if contents(node.inputs[1]) == (rows, columns) else None
