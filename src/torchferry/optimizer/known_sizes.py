"""Sizes that follow from sizes computed in the graph, which ONNX's own inference leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import onnx_ir as ir

from torchferry.dims import Size, names_in
from torchferry.optimizer import facts
from torchferry.optimizer.inference import infer_node, told_of
from torchferry.optimizer.place import all_nodes
from torchferry.optimizer.rule import Declined
from torchferry.optimizer.sizes import INFERRED, contents, forget, not_negative

__all__ = ["name_sizes", "sliced"]

Sizes = Sequence[Size | None]

_FAR = 2**31 - 1  # an end at or over this means the end

_ELEMENTWISE = (
    "Abs Add And Cos Div Equal Erf Exp Gelu Greater GreaterOrEqual Identity IsInf IsNaN Less "
    "LessOrEqual Log Max Min Mod Mul Neg Not Or Pow Reciprocal Relu Sigmoid Sin Sqrt Sub Sum Tanh "
    "Where Xor"
)


def name_sizes(model: ir.Model) -> int:
    """Name the sizes of values that have none, where they follow from what goes into a node.

    What is declared already stays as it is, and so do the outputs of the graph.

    Args:
        model: each of its nodes stands after those it reads.

    Returns:
        How many values were told more about.
    """
    forget(value for node in all_nodes(model) for value in node.outputs)
    return sum(_name(node, model.opset_imports) for node in all_nodes(model) if not node.domain)


def _name(node: ir.Node, opsets: Mapping[str, int]) -> int:
    bare = sum(value.shape is None for value in node.outputs)
    if bare:
        infer_node(node, opsets)
    told = bare - sum(value.shape is None for value in node.outputs)
    if not any(map(_is_open, node.outputs)):
        return told
    if node.op_type in _OPERATORS and _is_open(node.outputs[0]):
        with suppress(Declined):
            told += _tell(node.outputs[0], _OPERATORS[node.op_type](node))
    if any(map(_is_open, node.outputs)):  # its inputs may be known better than they were
        for value, proto in told_of(node, opsets):
            shape = ir.serde.deserialize_type_proto_for_shape(proto)
            if _is_open(value) and shape is not None:
                told += _tell(value, [_as_size(item) for item in shape])
    return told


def _tell(value: ir.Value, found: Sizes) -> bool:
    """Give a value the sizes that were found, where it has none; whether there were any."""
    old = value.shape
    if old is None or len(found) != len(old):
        return False
    value.shape = ir.Shape([_told(a, b) for a, b in zip(old, found, strict=True)])
    return tuple(value.shape) != tuple(old)


def _as_size(item: int | ir.SymbolicDim) -> Size | None:
    if isinstance(item, int):
        return item
    return None if item.value is None else facts.size_of_text(item.value)


def _is_open(value: ir.Value) -> bool:
    """Whether a value has an axis whose size has no name, and may be given one."""
    return value.shape is not None and not value.is_graph_output() and any(
        isinstance(item, ir.SymbolicDim) and _is_nameless(item) for item in value.shape
    )  # fmt: skip


def _is_nameless(size: ir.SymbolicDim) -> bool:
    return size.value is None or size.value.startswith(INFERRED)


def _told(old: int | ir.SymbolicDim, found: Size | None) -> int | ir.SymbolicDim:
    """A size that is declared, or else what was found if it can be written.

    Of names that onnx's inference made up the earlier one stays, or this would never end.
    """
    if isinstance(old, int) or not _is_nameless(old) or found is None:
        return old
    if isinstance(found, int):
        return found
    names = names_in(found)
    written = not any("\0" in name for name in names)
    earlier = all(_number(name) < _number(old.value) for name in names)
    return ir.SymbolicDim(str(found)) if written and earlier else old


def _number(name: str | None) -> float:
    """The order in which inference made a name up; others come before these, none at all last."""
    if name is None:
        return math.inf
    digits = name.removeprefix(INFERRED)
    return int(digits) if name.startswith(INFERRED) and digits.isdecimal() else -1


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


def _expand(node: ir.Node) -> Sizes:
    return _broadcast(facts.shape(node.inputs[0]), _given(node, 1))


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
    have, wanted = facts.shape(node.inputs[0]), list(_given(node, 1))
    if not facts.attribute(node, "allowzero", 0):
        wanted = [
            have[i] if item == 0 and i < len(have) else item for i, item in enumerate(wanted)
        ]
    rest = [item for item in wanted if item != -1]
    return [_left(have, rest) if item == -1 else item for item in wanted]


def _slice(node: ir.Node) -> Sizes:
    sizes: list[Size | None] = list(facts.shape(node.inputs[0]))
    for axis, length in sliced(node).items():
        sizes[axis] = length
    return sizes


def sliced(node: ir.Node) -> dict[int, Size | None]:
    """How many elements a Slice takes of which axis; ``None`` where that is not known.

    Raises:
        Declined: it is not known of which axes, or from where to where.
    """
    sizes = facts.shape(node.inputs[0])
    starts, ends = _given(node, 1), _given(node, 2)
    axes = _given(node, 3, range(len(starts)))
    steps = _given(node, 4, [1] * len(starts))
    taken: dict[int, Size | None] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not isinstance(axis, int):
            raise Declined("an axis is not known")
        taken[axis % len(sizes)] = _between(sizes[axis], start, end, step)
    return taken


def _given(node: ir.Node, index: int, default: Sequence[Size] | None = None) -> Sequence[Size]:
    if default is not None and (index >= len(node.inputs) or node.inputs[index] is None):
        return default
    found = contents(node.inputs[index]) if index < len(node.inputs) else None
    if found is None:
        raise Declined("it takes attributes, or what it takes is not known")
    return found


def _between(size: Size, start: Size, end: Size, step: Size) -> Size | None:
    """How many elements of an axis a Slice takes."""
    if not isinstance(step, int) or step < 1:
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(size)[start:end:step])
    first = start in (0, -size)
    last = end == size or (isinstance(end, int) and end >= _FAR)
    return size if first and last and step == 1 else None


def _range(node: ir.Node) -> Sizes:
    (start,), (limit,), (step,) = (_given(node, index) for index in range(3))
    if step != 1 or not not_negative(limit - start):
        raise Declined("it does not count from one size up to another")
    return [limit - start]


def _tile(node: ir.Node) -> Sizes:
    pairs = zip(facts.shape(node.inputs[0]), _given(node, 1), strict=True)
    return [size * times for size, times in pairs]


def _fill(node: ir.Node) -> Sizes:
    return _given(node, 0)


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
    "Concat": _concat,
    "ConstantOfShape": _fill,
    "Expand": _expand,
    "MatMul": _matmul,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Tile": _tile,
}
"""How operators make sizes where onnx's inference, which knows no expressions, gives up."""
