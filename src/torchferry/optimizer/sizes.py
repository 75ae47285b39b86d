"""What is in vectors of sizes: ``Concat(Shape(x)[0:1], [64])`` is ``(batch, 64)``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import reduce

import numpy as np
import onnx_ir as ir

from torchferry.dims import Size, maximum, minimum, names_in
from torchferry.dims.dim import Atom
from torchferry.optimizer import facts
from torchferry.optimizer.rule import Declined

__all__ = ["INFERRED", "INTEGERS", "contents", "forget", "is_told", "not_negative"]

Sizes = tuple[Size, ...]

_KNOWN = "torchferry.sizes"
_MOST = 64
_LARGE = 2**31
INFERRED = "unk__"
"""How onnx's inference begins the names of sizes it has none for."""
INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
"""The types that sizes have."""


def contents(value: ir.Value | None) -> Sizes | None:
    """The integers of a scalar or a vector, as sizes; ``None`` when they are not known.

    Args:
        value: of int64 or int32. What was found is remembered, since no rewrite changes it.
    """
    if value is None or value.dtype not in INTEGERS:
        return None
    if _KNOWN not in value.meta:
        value.meta[_KNOWN] = None  # what leads back to itself is not known
        with suppress(Declined, ArithmeticError):
            found = _find(value)
            if found is not None and all(_is_within(size, value.dtype) for size in found):
                value.meta[_KNOWN] = found
    known: Sizes | None = value.meta[_KNOWN]
    return known


def is_told(size: Size) -> bool:
    """Whether a size is one that the model tells, or follows from these."""
    return not any("\0" in name or name.startswith(INFERRED) for name in names_in(size))


def forget(values: Iterable[ir.Value]) -> None:
    """Let what was not known be looked for again: more shapes may be known now."""
    for value in values:
        known = value.meta.get(_KNOWN, ())
        if known is None or not all(map(is_told, known)):
            del value.meta[_KNOWN]


def _is_within(size: Size, dtype: ir.DataType) -> bool:
    """Whether a number does not wrap in its type; of a size, its factors are no large numbers."""
    if isinstance(size, int):
        limits = np.iinfo(dtype.numpy())
        return bool(limits.min <= size <= limits.max)
    return max(map(abs, size.terms.values())) < _LARGE


def _find(value: ir.Value) -> Sizes | None:
    tensor = facts.constant(value)
    if tensor is not None:
        small = tensor.size <= _MOST and len(tensor.shape) <= 1
        return tuple(facts.ints(value)) if small else None
    node = value.producer()
    if node is None or node.domain or node.op_type not in _OPERATORS:
        return None
    if value.shape is not None and len(value.shape) > 1:
        return None
    return _OPERATORS[node.op_type](node)


def _needed(node: ir.Node, index: int) -> Sizes:
    found = contents(node.inputs[index]) if index < len(node.inputs) else None
    if found is None:
        raise Declined(f"input {index} of {node.op_type} is not known")
    return found


def _shape(node: ir.Node) -> Sizes:
    sizes = facts.shape(node.inputs[0])
    start, end = facts.attribute(node, "start", 0), facts.attribute(node, "end")
    return sizes[start:end]


def _size(node: ir.Node) -> Sizes:
    return (math.prod(facts.shape(node.inputs[0])),)


def _gather(node: ir.Node) -> Sizes:
    sizes = _needed(node, 0)
    if facts.rank(node.inputs[0]) != 1:
        raise Declined("it gathers from no vector")
    return tuple(sizes[i] for i in facts.ints(node.inputs[1]) if -len(sizes) <= i < len(sizes))


def _slice(node: ir.Node) -> Sizes:
    if len(node.inputs) < 3:
        raise Declined("it takes attributes, as before opset 10")
    starts, ends = facts.ints(node.inputs[1]), facts.ints(node.inputs[2])
    steps = facts.ints(node.inputs[4]) if len(node.inputs) > 4 else [1]
    if (len(starts), len(ends), steps) != (1, 1, [1]):
        raise Declined("it takes steps, or is no slice of a vector")
    return _needed(node, 0)[starts[0] : ends[0]]


def _concat(node: ir.Node) -> Sizes:
    return tuple(size for index in range(len(node.inputs)) for size in _needed(node, index))


def _same(node: ir.Node) -> Sizes:
    return _needed(node, 0)


def _negated(node: ir.Node) -> Sizes:
    return tuple(-size for size in _needed(node, 0))


def _reduce_prod(node: ir.Node) -> Sizes:
    if facts.attribute(node, "noop_with_empty_axes", 0):
        raise Declined("it may be asked to do nothing")
    return (math.prod(_needed(node, 0)),)


def _divide(a: Size, b: Size) -> Size:
    """ONNX rounds to zero and ``//`` down: the same where nothing is negative."""
    if not (not_negative(a) and not_negative(b)) or b == 0:
        raise Declined("it may divide something negative")
    return a // b


def _remain(a: Size, b: Size) -> Size:
    if not (not_negative(a) and not_negative(b)) or b == 0:
        raise Declined("it may divide something negative")
    return a % b


def not_negative(size: Size) -> bool:
    """Whether a size is none that might be negative, as a difference."""
    if isinstance(size, int):
        return size >= 0
    return min(size.terms.values()) >= 0 and all(
        _never_below(atom) for monomial in size.terms for atom in monomial
    )


def _never_below(atom: Atom) -> bool:
    sizes = [size for size in atom.args if not isinstance(size, str)]
    if atom.op == "max":
        return any(map(not_negative, sizes))
    return all(map(not_negative, sizes))  # of a name there are none


def _each(operation: Callable[[Size, Size], Size]) -> Callable[[ir.Node], Sizes]:
    def find(node: ir.Node) -> Sizes:
        sides = [_needed(node, index) for index in range(len(node.inputs))]
        length = max(map(len, sides)) if all(sides) else 0
        if any(len(side) not in (1, length) for side in sides):
            raise Declined("lengths differ")
        columns = zip(*(side * length if len(side) == 1 else side for side in sides), strict=True)
        return tuple(reduce(operation, column) for column in columns)

    return find


def _where(node: ir.Node) -> Sizes:
    chosen, other = _needed(node, 1), _needed(node, 2)
    equal = node.inputs[0].producer() if node.inputs[0] is not None else None
    if equal is None or equal.op_type != "Equal" or equal.domain:
        raise Declined("what is chosen by is no comparison of sizes")
    left, right = _needed(equal, 0), _needed(equal, 1)
    length = max(map(len, (left, right, chosen, other)))
    left, right, chosen, other = (
        side * length if len(side) == 1 else side for side in (left, right, chosen, other)
    )
    pairs = zip(left, right, chosen, other, strict=True)
    return tuple(x if _equal(a, b) else y for a, b, x, y in pairs)


def _equal(a: Size, b: Size) -> bool:
    if a == b:
        return True
    numbers = isinstance(a, int) and isinstance(b, int)
    if numbers or (not_negative(a) and b == -1) or (not_negative(b) and a == -1):
        return False
    raise Declined("two sizes may be equal")


def _fill(node: ir.Node) -> Sizes:
    sizes = _needed(node, 0)
    value = facts.attribute(node, "value")
    count = math.prod(sizes)
    if len(sizes) > 1 or value is None or not isinstance(count, int) or count > _MOST:
        raise Declined("it makes no known vector")
    return (int(value.numpy().item()),) * count


_OPERATORS: dict[str, Callable[[ir.Node], Sizes]] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Identity": _same,
    "Neg": _negated,
    "Cast": _same,
    "Squeeze": _same,
    "Unsqueeze": _same,
    "Reshape": _same,
    "ReduceProd": _reduce_prod,
    "ConstantOfShape": _fill,
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": _each(_divide),
    "Mod": _each(_remain),
    "Max": _each(maximum),
    "Min": _each(minimum),
    "Where": _where,
}
"""How operators make sizes of sizes."""
