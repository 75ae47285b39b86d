"""Sizes that follow from sizes computed in the graph, which ONNX's own inference leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import onnx_ir as ir

from torchferry.dims import Dim, Size, names_in
from torchferry.optimizer import facts
from torchferry.optimizer.rule import Declined
from torchferry.optimizer.sizes import contents

__all__ = ["name_sizes"]

Sizes = Sequence[Size | None]

_INFERRED = "unk__"
"""How onnx's inference begins the names of sizes it has none for."""

_ELEMENTWISE = (
    "Abs Add And Cos Div Equal Erf Exp Gelu Greater GreaterOrEqual Identity IsInf IsNaN Less "
    "LessOrEqual Log Max Min Mod Mul Neg Not Or Pow Reciprocal Relu Sigmoid Sin Sqrt Sub Sum Tanh "
    "Where Xor"
)


def name_sizes(nodes: Iterable[ir.Node]) -> int:
    """Name the sizes of values that have none, where they follow from what goes into a node.

    What is declared already stays as it is, and so do the outputs of the graph.

    Args:
        nodes: of a model, each after those it reads.

    Returns:
        How many values were told more about.
    """
    return sum(_name(node) for node in nodes if node.op_type in _OPERATORS and not node.domain)


def _name(node: ir.Node) -> bool:
    value = node.outputs[0]
    if value.is_graph_output() or value.shape is None or not _open(value.shape):
        return False
    with suppress(Declined):
        found = _OPERATORS[node.op_type](node)
        if len(found) == len(value.shape):
            told = [_told(a, b) for a, b in zip(value.shape, found, strict=True)]
            value.shape = ir.Shape(told)
            return True
    return False


def _open(shape: ir.Shape) -> bool:
    return any(isinstance(item, ir.SymbolicDim) and _is_open(item) for item in shape)


def _is_open(size: ir.SymbolicDim) -> bool:
    return size.value is None or size.value.startswith(_INFERRED)


def _told(old: int | ir.SymbolicDim, found: Size | None) -> int | ir.SymbolicDim:
    """A size that is declared, or else what was found if it can be written."""
    if isinstance(old, int) or not _is_open(old) or found is None:
        return old
    if isinstance(found, int):
        return found
    return ir.SymbolicDim(str(found)) if _has_name(found) else old


def _has_name(size: Dim) -> bool:
    return not any("\0" in name for name in names_in(size))


# What operators make of sizes -------------------------------------------------------------------


def _broadcast(*shapes: Sizes) -> list[Size | None]:
    """Sizes after broadcasting; ``None`` where one of two sizes may be 1."""
    around = max(map(len, shapes))
    padded: list[list[Size | None]] = [[*[1] * (around - len(sizes)), *sizes] for sizes in shapes]
    return [_joint(column) for column in zip(*padded, strict=True)]


def _joint(sizes: Sizes) -> Size | None:
    others = {item for item in sizes if item != 1}
    numbers = [item for item in others if isinstance(item, int)]
    if not others:
        return 1
    if numbers:
        return numbers[0]
    return others.pop() if len(others) == 1 else None


def _elementwise(node: ir.Node) -> Sizes:
    return _broadcast(*(facts.shape(value) for value in node.inputs if value is not None))


def _first(node: ir.Node) -> Sizes:
    return facts.shape(node.inputs[0])


def _expand(node: ir.Node) -> Sizes:
    return _broadcast(facts.shape(node.inputs[0]), _target(node))


def _target(node: ir.Node) -> tuple[Size, ...]:
    found = contents(node.inputs[1])
    if found is None:
        raise Declined("the sizes asked for are not known")
    return found


def _transpose(node: ir.Node) -> Sizes:
    sizes = facts.shape(node.inputs[0])
    perm = facts.attribute(node, "perm", list(range(len(sizes)))[::-1])
    return [sizes[axis] for axis in perm]


def _matmul(node: ir.Node) -> Sizes:
    left, right = facts.shape(node.inputs[0]), facts.shape(node.inputs[1])
    if len(left) < 2 or len(right) < 2:
        raise Declined("it is a product with a vector")
    batch = _broadcast(left[:-2], right[:-2]) if len(left) + len(right) > 4 else []
    return [*batch, left[-2], right[-1]]


def _concat(node: ir.Node) -> Sizes:
    shapes = [facts.shape(value) for value in node.inputs]
    axis = facts.attribute(node, "axis")
    joined = list(shapes[0])
    joined[axis] = sum((sizes[axis] for sizes in shapes[1:]), start=shapes[0][axis])
    return joined


def _reshape(node: ir.Node) -> Sizes:
    have, wanted = facts.shape(node.inputs[0]), list(_target(node))
    if not facts.attribute(node, "allowzero", 0):
        wanted = [
            have[i] if item == 0 and i < len(have) else item for i, item in enumerate(wanted)
        ]
    rest = [item for item in wanted if item != -1]
    return [_left(have, rest) if item == -1 else item for item in wanted]


def _left(have: Sequence[Size], taken: Sequence[Size]) -> Size | None:
    """The product of some sizes without the factors of another."""
    if 0 in taken:
        return None
    rest, over = list(have), []
    for item in taken:
        if item in rest:
            rest.remove(item)
        else:
            over.append(item)
    return math.prod(rest, start=1) // math.prod(over, start=1)


_OPERATORS: dict[str, Callable[[ir.Node], Sizes]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _elementwise),
    **dict.fromkeys(("Cast", "Clip", "LogSoftmax", "Softmax", "Trilu"), _first),
    "Concat": _concat,
    "Expand": _expand,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Transpose": _transpose,
}
