"""Losses of scores for classes: negative log likelihood, cross entropy, margins."""

from __future__ import annotations

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.activation import log_softmax
from torchferry.converter.ops.loss.loss import reduced
from torchferry.seams.operators import aten

__all__: list[str] = []

Size = int | ir.Value

_NONE, _MEAN, _SUM = range(3)
_FLOATS = {
    ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16
}  # fmt: skip


def _rank(x: ir.Value) -> int:
    return len(x.shape or ())


def _class_axis(x: ir.Value) -> int:
    return 0 if _rank(x) == 1 else 1


def _likelihood(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    ignore_index: Size,
) -> tuple[ir.Value, ir.Value]:
    """The loss, and the weight that counts: a number when reduced, of each element otherwise."""
    axis = _class_axis(x)
    target = b.cast(target, ir.DataType.INT64)
    counted = b.Not(b.Equal(target, ignore_index))
    index = b.Where(counted, target, 0)
    picked = b.GatherElements(x, b.Unsqueeze(index, [axis]), axis=axis)
    loss = b.Neg(b.Squeeze(picked, [axis]))
    zero = b.constant(0, x)
    if weight is None:
        weights = b.cast(counted, x)
    else:
        own = b.Gather(weight, index)
        loss, weights = b.Mul(loss, own), b.Where(counted, own, zero)
    loss = b.Where(counted, loss, zero)
    if reduction == _NONE:
        return loss, weights
    total, mass = b.ReduceSum(loss, keepdims=0), b.ReduceSum(weights, keepdims=0)
    return (b.Div(total, mass) if reduction == _MEAN else total), mass


@lowers(aten.nll_loss_nd.default, aten.nll_loss.default, aten.nll_loss2d.default)
def nll_loss(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = _MEAN,
    ignore_index: Size = -100,
) -> ir.Value:
    return _likelihood(b, x, target, weight, reduction, ignore_index)[0]


@lowers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    ignore_index: Size,
) -> tuple[ir.Value, ir.Value]:
    loss, mass = _likelihood(b, x, target, weight, reduction, ignore_index)
    return loss, b.constant(0, x) if reduction == _NONE else mass


# Cross entropy -------------------------------------------------------------------------------


@lowers(aten.cross_entropy_loss.default)
def cross_entropy_loss(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = _MEAN,
    ignore_index: Size = -100,
    label_smoothing: float = 0.0,
) -> ir.Value:
    axis = _class_axis(x)
    scores = log_softmax(b, x, axis)
    if target.dtype in _FLOATS:
        return _of_probabilities(b, scores, target, weight, reduction, label_smoothing)
    loss, mass = _likelihood(b, scores, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return loss
    weighted = scores if weight is None else b.Mul(scores, _along(b, weight, scores))
    spread = b.Neg(b.ReduceSum(weighted, b.constant([axis]), keepdims=0))
    counted = b.Not(b.Equal(b.cast(target, ir.DataType.INT64), ignore_index))
    spread = b.Where(counted, spread, b.constant(0, spread))
    if reduction != _NONE:
        spread = b.ReduceSum(spread, keepdims=0)
        spread = b.Div(spread, mass) if reduction == _MEAN else spread
    share = _share(b, x, axis, label_smoothing)
    kept = b.constant(1 - label_smoothing, loss)
    return b.Add(b.Mul(loss, kept), b.Mul(spread, share))


def _along(b: Block, weight: ir.Value, x: ir.Value) -> ir.Value:
    """A weight of each class beside ``x``."""
    behind = _rank(x) - _class_axis(x) - 1
    return b.Unsqueeze(weight, [*range(1, 1 + behind)]) if behind else weight


def _share(b: Block, x: ir.Value, axis: int, smoothing: float) -> ir.Value:
    """What every class gets of the smoothing."""
    classes = b.dim(x, axis)
    if isinstance(classes, int):
        return b.constant(smoothing / classes, x)
    return b.Div(b.constant(smoothing, x), b.cast(b.scalar(classes), x))


def _of_probabilities(
    b: Block,
    scores: ir.Value,
    target: ir.Value,
    weight: ir.Value | None,
    reduction: int,
    smoothing: float,
) -> ir.Value:
    axis = _class_axis(scores)
    target = b.cast(target, scores)
    if smoothing:
        kept = b.Mul(target, b.constant(1 - smoothing, target))
        target = b.Add(kept, _share(b, scores, axis, smoothing))
    terms = b.Mul(scores, target)
    if weight is not None:
        terms = b.Mul(terms, _along(b, weight, scores))
    loss = b.Neg(b.ReduceSum(terms, b.constant([axis]), keepdims=0))
    return reduced(b, loss, reduction)


# Margins -------------------------------------------------------------------------------------


@lowers(aten.multi_margin_loss.default)
def multi_margin_loss(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    p: float = 1,
    margin: float = 1,
    weight: ir.Value | None = None,
    reduction: int = _MEAN,
) -> ir.Value:
    """The mean over classes but the right one of ``max(0, margin - x[y] + x)^p``."""
    alone = _rank(x) < 2
    x = b.Reshape(x, b.constant([1, -1])) if alone else x
    column = b.Reshape(target, b.constant([-1, 1]))
    above = b.Sub(b.Add(x, b.constant(margin, x)), b.GatherElements(x, column, axis=1))
    loss = b.Max(above, b.constant(0, x))
    loss = b.Mul(loss, loss) if p == 2 else loss
    if weight is not None:
        loss = b.Mul(loss, b.Gather(weight, column))
    right = b.Equal(b.Range(0, b.scalar(b.dim(x, 1)), 1), column)
    loss = b.ReduceMean(b.Where(right, b.constant(0, x), loss), b.constant([1]), keepdims=0)
    loss = reduced(b, loss, reduction)
    return b.Squeeze(loss, [0]) if alone and reduction == _NONE else loss


@lowers(aten.multilabel_margin_loss.default)
def multilabel_margin_loss(
    b: Block, x: ir.Value, target: ir.Value, reduction: int = _MEAN
) -> ir.Value:
    return multilabel_margin_loss_forward(b, x, target, reduction)[0]


@lowers(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(
    b: Block, x: ir.Value, target: ir.Value, reduction: int
) -> tuple[ir.Value, ir.Value]:
    """Over right classes j and wrong ones i, the sum of ``max(0, 1 - x[j] + x[i]) / C``.

    The right classes are those listed before the first negative number.
    """
    alone = _rank(x) == 0
    if alone:
        x, target = b.Unsqueeze(x, [0]), b.Unsqueeze(target, [0])
    minus = b.cast(b.Less(target, 0), ir.DataType.INT64)
    listed = b.Equal(b.CumSum(minus, b.constant(-1)), 0)
    index = b.Where(listed, target, 0)
    marks = b.cast(listed, x)
    nothing = b.Mul(x, b.constant(0, x))
    right = b.ScatterElements(nothing, index, marks, axis=-1, reduction="max")
    picked = b.Unsqueeze(b.GatherElements(x, index, axis=-1), [-1])
    one = b.constant(1, x)
    above = b.Max(b.Add(b.Sub(one, picked), b.Unsqueeze(x, [-2])), b.constant(0, x))
    pairs = b.Mul(b.Unsqueeze(marks, [-1]), b.Unsqueeze(b.Sub(one, right), [-2]))
    summed = b.ReduceSum(b.Mul(above, pairs), b.constant([-2, -1]), keepdims=0)
    size = b.dim(x, -1)
    loss = b.Div(summed, b.cast(b.scalar(size) if isinstance(size, ir.Value) else size, x))
    return reduced(b, loss, reduction), b.Squeeze(right, [0]) if alone else right
