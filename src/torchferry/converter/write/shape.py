"""Shapes of the values a lowering makes on its way to its result.

What torch.export knows is set by the driver. These are the plain cases in between, so that one
lowering can call another; where the shape is not plain it stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

__all__ = ["infer_shape"]

Axis = int | ir.SymbolicDim
Rule = Callable[[ir.Node], Sequence[Axis] | None]

_SAME = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Bernoulli BitwiseNot Cast Ceil Celu "
    "Clip Cos Cosh CumSum DequantizeLinear Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid "
    "HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu "
    "Log LogSoftmax LpNormalization Mish Neg Not QuantizeLinear RMSNormalization "
    "RandomNormalLike RandomUniformLike Reciprocal Relu Round ScatterElements ScatterND Selu "
    "Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu Trilu"
)
_BROADCAST = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor"
)
_REDUCE = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare"
)


def infer_shape(node: ir.Node) -> None:
    """Set the shape of a new node's first output where it follows from those of the inputs."""
    rule = _RULES.get(node.op_type) if not node.domain else None
    if rule is None:
        return
    axes = rule(node)
    if axes is not None:
        node.outputs[0].shape = ir.Shape(axes)


def _axes(value: ir.Value | None) -> list[Axis] | None:
    return None if value is None or value.shape is None else list(value.shape)


def _numbers(value: ir.Value | None) -> list[int] | None:
    """The content of a constant vector of ints."""
    if value is None or value.const_value is None or value.const_value.size > 64:
        return None
    return [int(number) for number in value.const_value.numpy().reshape(-1)]


def _same(node: ir.Node) -> Sequence[Axis] | None:
    return _axes(node.inputs[0])


def _broadcast(node: ir.Node) -> Sequence[Axis] | None:
    shapes = [_axes(value) for value in node.inputs]
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in known), default=0)
    return _columns(known, rank)


def _columns(shapes: Sequence[Sequence[Axis]], rank: int) -> list[Axis]:
    """Broadcast shapes, aligned at their last axes."""
    padded: list[list[Axis]] = [[*[1] * (rank - len(shape)), *shape] for shape in shapes]
    return [_common(column) for column in zip(*padded, strict=True)]


def _common(sizes: Sequence[Axis]) -> Axis:
    others = [size for size in sizes if size != 1]
    if not others:
        return 1
    if all(size == others[0] for size in others):
        return others[0]
    constant = next((size for size in others if isinstance(size, int)), None)
    return ir.SymbolicDim(None) if constant is None else constant


def _transpose(node: ir.Node) -> Sequence[Axis] | None:
    axes = _axes(node.inputs[0])
    if axes is None:
        return None
    permutation = node.attributes.get("perm")
    order = range(len(axes))[::-1] if permutation is None else permutation.as_ints()
    return [axes[position] for position in order]


def _unsqueeze(node: ir.Node) -> Sequence[Axis] | None:
    axes, new = _axes(node.inputs[0]), _numbers(node.inputs[1])
    if axes is None or new is None:
        return None
    rank = len(axes) + len(new)
    places = {position % rank for position in new}
    kept = iter(axes)
    return [1 if position in places else next(kept) for position in range(rank)]


def _squeeze(node: ir.Node) -> Sequence[Axis] | None:
    axes = _axes(node.inputs[0])
    gone = _numbers(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or gone is None:
        return None
    places = {position % len(axes) for position in gone} if axes else set()
    return [size for position, size in enumerate(axes) if position not in places]


def _shape(node: ir.Node) -> Sequence[Axis] | None:
    axes = _axes(node.inputs[0])
    start, end = node.attributes.get("start"), node.attributes.get("end")
    first = 0 if start is None else start.as_int()
    last = None if end is None else end.as_int()
    if axes is None:
        return [last - first] if last is not None and (first < 0) == (last < 0) else None
    return [len(range(len(axes))[first:last])]


def _matmul(node: ir.Node) -> Sequence[Axis] | None:
    left, right = _axes(node.inputs[0]), _axes(node.inputs[1])
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    batch = [left[:-2], right[:-2]]
    rank = max(map(len, batch))
    return [*_columns(batch, rank), left[-2], right[-1]]


def _reduce(node: ir.Node) -> Sequence[Axis] | None:
    axes = _axes(node.inputs[0])
    attribute = node.attributes.get("axes")
    if attribute is not None:
        gone: list[int] | None = list(attribute.as_ints())
    else:
        gone = _numbers(node.inputs[1]) if len(node.inputs) > 1 else []
    if axes is None or gone is None:
        return None
    flag, none = node.attributes.get("keepdims"), node.attributes.get("noop_with_empty_axes")
    if not gone and none is not None and none.as_int():
        return axes
    rank = len(axes)
    places = {position % rank for position in gone} if gone else set(range(rank))
    if flag is None or flag.as_int():
        return [1 if position in places else size for position, size in enumerate(axes)]
    return [size for position, size in enumerate(axes) if position not in places]


def _place(node: ir.Node) -> Sequence[Axis] | None:
    axes, flag = _axes(node.inputs[0]), node.attributes.get("keepdims")
    if axes is None:
        return None
    given = node.attributes.get("axis")
    gone = range(len(axes))[0 if given is None else given.as_int()]
    kept: list[Axis] = [1] if flag is None or flag.as_int() else []
    return [*axes[:gone], *kept, *axes[gone + 1 :]]


def _reshape(node: ir.Node) -> Sequence[Axis] | None:
    axes, wanted = _axes(node.inputs[0]), _numbers(node.inputs[1])
    if wanted is None:
        length = _axes(node.inputs[1])
        if length is not None and isinstance(length[0], int):
            return [ir.SymbolicDim(None)] * length[0]
        return None
    zero = node.attributes.get("allowzero")
    copied = zero is None or not zero.as_int()
    return [
        (axes[place] if axes is not None and place < len(axes) else ir.SymbolicDim(None))
        if size == 0 and copied
        else size
        if size >= 0
        else ir.SymbolicDim(None)
        for place, size in enumerate(wanted)
    ]


def _expand(node: ir.Node) -> Sequence[Axis] | None:
    axes, wanted = _axes(node.inputs[0]), _numbers(node.inputs[1])
    length = _axes(node.inputs[1])
    if axes is not None and wanted is None and length and isinstance(length[0], int):
        return [ir.SymbolicDim(None)] * max(len(axes), length[0])
    if axes is None or wanted is None:
        return None
    rank = max(len(axes), len(wanted))
    pairs = zip([1] * (rank - len(axes)) + axes, [1] * (rank - len(wanted)) + wanted, strict=True)
    return [_common(pair) for pair in pairs]


def _concat(node: ir.Node) -> Sequence[Axis] | None:
    shapes = [_axes(value) for value in node.inputs]
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    axis = range(len(known[0]))[node.attributes["axis"].as_int()]
    sizes = [shape[axis] for shape in known]
    total = sum(size for size in sizes if isinstance(size, int))
    joined = total if all(isinstance(size, int) for size in sizes) else ir.SymbolicDim(None)
    return [joined if place == axis else size for place, size in enumerate(known[0])]


def _gather(node: ir.Node) -> Sequence[Axis] | None:
    axes, indices = _axes(node.inputs[0]), _axes(node.inputs[1])
    if axes is None or indices is None:
        return None
    given = node.attributes.get("axis")
    axis = range(len(axes))[0 if given is None else given.as_int()]
    return [*axes[:axis], *indices, *axes[axis + 1 :]]


def _gather_elements(node: ir.Node) -> Sequence[Axis] | None:
    return _axes(node.inputs[1])


def _range(_: ir.Node) -> Sequence[Axis]:
    return [ir.SymbolicDim(None)]


def _slice(node: ir.Node) -> Sequence[Axis] | None:
    axes = _axes(node.inputs[0])
    starts, ends, places, steps = ([*map(_numbers, node.inputs[1:]), None, None])[:4]
    if axes is None:
        return None
    if len(node.inputs) < 5:
        steps = [1] * len(places or ())
    if places is None or starts is None or ends is None or steps is None:
        return [ir.SymbolicDim(None)] * len(axes)
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        size = axes[place]
        if not isinstance(size, int):
            axes[place] = ir.SymbolicDim(None)
        else:
            stop = None if step < 0 and end < -size else end
            axes[place] = len(range(size)[start:stop:step])
    return axes


def _pad(node: ir.Node) -> Sequence[Axis] | None:
    axes, pads = _axes(node.inputs[0]), _numbers(node.inputs[1])
    given = node.inputs[3] if len(node.inputs) > 3 else None
    places = _numbers(given) if given is not None else list(range(len(axes or ())))
    if axes is None or places is None:
        return None
    for position, place in enumerate(places):
        size = axes[place]
        if pads is None or not isinstance(size, int):
            axes[place] = ir.SymbolicDim(None)
        else:
            axes[place] = size + pads[position] + pads[position + len(places)]
    return axes


_RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **dict.fromkeys(_REDUCE.split(), _reduce),
    "Transpose": _transpose, "Unsqueeze": _unsqueeze, "Squeeze": _squeeze, "Shape": _shape,
    "MatMul": _matmul, "Reshape": _reshape, "Expand": _expand, "Concat": _concat,
    "Gather": _gather, "GatherElements": _gather_elements,
    "Range": _range, "Slice": _slice, "Pad": _pad, "ArgMax": _place, "ArgMin": _place,
}  # fmt: skip
