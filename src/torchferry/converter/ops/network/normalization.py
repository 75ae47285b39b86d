"""Layer, group, instance, RMS and weight normalization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.promote import torch_dtype
from torchferry.seams.operators import aten

__all__ = ["channels", "filled", "scaled_and_shifted", "standardized"]

Size = int | ir.Value

_HALVES = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
_KERNELS = _HALVES | {ir.DataType.FLOAT}  # of InstanceNormalization; float16 through float32


def filled(b: Block, value: float, sizes: Sequence[Size], like: ir.Value) -> ir.Value:
    """A tensor of one number, a constant where the sizes are."""
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes):
        return b.constant(np.full(known, value), like)
    return b.Expand(b.constant(value, like), b.vector(sizes))


def channels(b: Block, x: ir.Value) -> Size:
    """The size of axis 1."""
    return b.dim(x, 1)


def standardized(
    b: Block, x: ir.Value, axes: Sequence[int], eps: float
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """``(x - mean) / sqrt(variance + eps)``; the mean and the reciprocal root, axes kept as 1."""
    mean = b.ReduceMean(x, b.constant([*axes]))
    centred = b.Sub(x, mean)
    variance = b.ReduceMean(b.Mul(centred, centred), b.constant([*axes]))
    deviation = b.Sqrt(b.Add(variance, eps))
    return b.Div(centred, deviation), mean, b.Reciprocal(deviation)


def scaled_and_shifted(
    b: Block, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None
) -> ir.Value:
    """``x * weight + bias`` along axis 1, with what there is of them."""
    behind = len(x.shape or ()) - 2

    def column(v: ir.Value) -> ir.Value:
        return b.Unsqueeze(v, [*range(1, 1 + behind)]) if behind else v

    if weight is not None:
        x = b.Mul(x, b.cast(column(weight), x))
    return x if bias is None else b.Add(x, b.cast(column(bias), x))


# Layer and RMS -------------------------------------------------------------------------------


@lowers(aten.native_layer_norm.default)
def native_layer_norm(
    b: Block,
    x: ir.Value,
    normalized_shape: Sequence[Size],
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    scale = filled(b, 1.0, normalized_shape, x) if weight is None else b.cast(weight, x)
    result, mean, reciprocal = b.LayerNormalization(
        x, scale, None if bias is None else b.cast(bias, x),
        axis=-len(normalized_shape), epsilon=eps, outputs=3,
    )  # fmt: skip
    if x.dtype == ir.DataType.DOUBLE:  # of which the kernel returns them rounded
        _, mean, reciprocal = standardized(b, x, range(-len(normalized_shape), 0), eps)
    else:
        mean.type = reciprocal.type = ir.TensorType(ir.DataType.FLOAT)
    return result, mean, reciprocal


@lowers(aten.layer_norm.default)
def layer_norm(
    b: Block,
    x: ir.Value,
    normalized_shape: Sequence[Size],
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> ir.Value:
    scale = filled(b, 1.0, normalized_shape, x) if weight is None else b.cast(weight, x)
    return b.LayerNormalization(
        x, scale, None if bias is None else b.cast(bias, x),
        axis=-len(normalized_shape), epsilon=eps,
    )  # fmt: skip


@lowers(aten.rms_norm.default)
def rms_norm(
    b: Block,
    x: ir.Value,
    normalized_shape: Sequence[Size],
    weight: ir.Value | None = None,
    eps: float | None = None,
) -> ir.Value:
    return _rms(b, x, normalized_shape, weight, eps)[0]


@lowers(aten._fused_rms_norm.default)
def _fused_rms_norm(
    b: Block,
    x: ir.Value,
    normalized_shape: Sequence[Size],
    weight: ir.Value | None,
    eps: float | None,
) -> tuple[ir.Value, ir.Value | None]:
    result, root = _rms(b, x, normalized_shape, weight, eps)
    return result, None if root is None else b.Reciprocal(root)


def _rms(
    b: Block,
    x: ir.Value,
    normalized_shape: Sequence[Size],
    weight: ir.Value | None,
    eps: float | None,
) -> tuple[ir.Value, ir.Value | None]:
    """The result, and the root mean square where it is a value of its own.

    Before opset 23 it is written in the form that onnxruntime fuses into one kernel. Eager
    computes halves in float32, and takes the epsilon of that when none is given.
    """
    dtype = x.dtype
    computed = ir.DataType.FLOAT if dtype in _HALVES else dtype
    epsilon = torch.finfo(torch_dtype(computed)).eps if eps is None else eps
    if b.opset >= 23 and dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16):
        scale = filled(b, 1.0, normalized_shape, x) if weight is None else b.cast(weight, x)
        return (
            b.RMSNormalization(x, scale, axis=-len(normalized_shape), epsilon=epsilon),
            None,
        )
    wide = b.cast(x, ir.DataType.FLOAT) if dtype in _HALVES else x
    axes = b.constant([*range(-len(normalized_shape), 0)])
    root = b.Sqrt(b.Add(b.ReduceMean(b.Pow(wide, b.constant(2, wide)), axes), epsilon))
    result = b.Div(wide, root)
    if weight is not None:
        result = b.Mul(result, b.cast(weight, result))
    return b.cast(result, x), root


# Group and instance --------------------------------------------------------------------------


@lowers(aten.group_norm.default)
def group_norm(
    b: Block,
    x: ir.Value,
    num_groups: int,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> ir.Value:
    sizes = [b.dim(x, axis) for axis in range(len(x.shape or ()))]
    rows = b.Reshape(x, b.vector([0, num_groups, _rest(sizes, num_groups)]))
    if x.dtype in _KERNELS:
        ones, zeros = (filled(b, v, [num_groups], x) for v in (1.0, 0.0))
        normal = b.InstanceNormalization(rows, ones, zeros, epsilon=eps)
    else:
        normal = standardized(b, rows, [2], eps)[0]
    result = b.Reshape(normal, b.shape(x))
    result.shape = x.shape
    return scaled_and_shifted(b, result, weight, bias)


def _rest(sizes: Sequence[Size], groups: int) -> int:
    """The elements of a group; what is known is written, since an empty batch forbids -1."""
    total = 1
    for size in sizes[1:]:
        if isinstance(size, ir.Value):
            return -1
        total *= size
    return total // groups


@lowers(aten.native_group_norm.default)
def native_group_norm(
    b: Block,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    sizes = [b.dim(x, axis) for axis in range(len(x.shape or ()))]
    wide = b.cast(x, ir.DataType.FLOAT) if x.dtype in _HALVES else x
    rows = b.Reshape(wide, b.vector([0, group, _rest(sizes, group)]))
    normal, mean, reciprocal = standardized(b, rows, [2], eps)
    result = b.Reshape(normal, b.shape(x))
    result.shape = x.shape
    result = scaled_and_shifted(b, result, weight, bias)
    return b.cast(result, x), b.Squeeze(mean, [2]), b.Squeeze(reciprocal, [2])


@lowers(aten.instance_norm.default)
def instance_norm(
    b: Block,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> ir.Value:
    if not use_input_stats:
        from torchferry.converter.ops.network.batch_norm import evaluated

        return evaluated(b, x, weight, bias, running_mean, running_var, eps)
    if running_mean is not None:
        raise ValueError(
            "it updates its running statistics in training mode, call model.eval() before the "
            "export"
        )
    if x.dtype in _KERNELS:
        size = channels(b, x)
        scale = filled(b, 1.0, [size], x) if weight is None else b.cast(weight, x)
        shift = filled(b, 0.0, [size], x) if bias is None else b.cast(bias, x)
        return b.InstanceNormalization(x, scale, shift, epsilon=eps)
    axes = range(2, len(x.shape or ()))
    return scaled_and_shifted(b, standardized(b, x, axes, eps)[0], weight, bias)


# Weights -------------------------------------------------------------------------------------


@lowers(aten._weight_norm.default)
def _weight_norm(b: Block, v: ir.Value, g: ir.Value, dim: int = 0) -> ir.Value:
    return _weight_norm_interface(b, v, g, dim)[0]


@lowers(aten._weight_norm_interface.default)
def _weight_norm_interface(
    b: Block, v: ir.Value, g: ir.Value, dim: int = 0
) -> tuple[ir.Value, ir.Value]:
    rank = len(v.shape or ())
    kept = None if dim == -1 else range(rank)[dim]
    norm = b.ReduceL2(
        v, b.constant([axis for axis in range(rank) if axis != kept]),
        keepdims=0 if kept is None else 1,
    )  # fmt: skip
    return b.Mul(v, b.Div(g, norm)), norm
