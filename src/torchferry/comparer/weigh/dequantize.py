"""The numbers that quantized initializers stand for, and how far rounding may have moved them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from torchferry.values.dtype import tensor_of

__all__ = ["Stored", "dequantized"]

_SUFFIXES = ("_quantized", "_q")
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Stored:
    """What an initializer holds.

    Attributes:
        values: its numbers; of a quantized one those that it stands for.
        slack: how far rounding may have moved each: half a step, a whole one where the range ends;
            ``None`` of numbers that are not quantized.
    """

    values: torch.Tensor
    slack: torch.Tensor | None = None


def dequantized(value: ir.Value, node: ir.Node, known: Mapping[str, ir.Value]) -> Stored | None:
    """Read a quantized initializer.

    Args:
        value: the initializer.
        node: that reads it: ``DequantizeLinear`` and ``MatMulNBits`` say what its steps are; else
            initializers named after it do (``NAME_scale``), as onnxruntime writes them.
        known: initializers by name.

    Returns:
        Numbers in the layout of the initializer, or for ``MatMulNBits`` one row for each output;
        ``None`` for an initializer that is not quantized, or whose steps are computed.
    """
    if node.op_type == "MatMulNBits" and node.domain == _MICROSOFT and node.inputs[1] is value:
        return _blocks(node)
    if value.dtype is None or not value.dtype.is_integer():
        return None
    if node.op_type == "DequantizeLinear" and node.inputs[0] is value:
        scale, zero = _constant(node, 1), _constant(node, 2)
        axis, block = (node.attributes.get(name) for name in ("axis", "block_size"))
        return _linear(
            value, scale, zero, 1 if axis is None else axis.as_int(),
            0 if block is None else block.as_int(),
        )  # fmt: skip
    for suffix in _SUFFIXES:
        stem = str(value.name).removesuffix(suffix)
        if stem != value.name and f"{stem}_scale" in known:
            scale, zero = (
                None if (one := known.get(f"{stem}_{kind}")) is None else _tensor(one)
                for kind in ("scale", "zero_point")
            )
            rank = len(value.shape or ())
            return next(filter(None, (_linear(value, scale, zero, a, 0) for a in range(rank))))
    return None


def _constant(node: ir.Node, index: int) -> torch.Tensor | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None else _tensor(value)


def _tensor(value: ir.Value) -> torch.Tensor | None:
    return None if value.const_value is None else tensor_of(value.const_value.numpy())


def _linear(
    value: ir.Value, scale: torch.Tensor | None, zero: torch.Tensor | None, axis: int, block: int
) -> Stored | None:
    """The codes less their zero points, times their scales; ``None`` if scales do not fit."""
    codes = _tensor(value)
    if codes is None or scale is None or value.dtype is None:
        return None
    axis = axis % codes.ndim if codes.ndim else 0
    scale = _spread(scale, codes, axis, block)
    if scale is None or (zero is not None and (zero := _spread(zero, codes, axis, block)) is None):
        return None
    least, most = int(codes.min()), int(codes.max())
    wide = codes.to(torch.float32)
    values = (wide - (0 if zero is None else zero.float())) * scale.float()
    return Stored(values, _slack(codes, scale.float(), _ends(value.dtype, least, most)))


def _spread(
    tensor: torch.Tensor, codes: torch.Tensor, axis: int, block: int
) -> torch.Tensor | None:
    """Scales or zero points in a shape that broadcasts over the codes."""
    if tensor.numel() == 1:
        return tensor.reshape(())
    if block and tensor.ndim == codes.ndim:
        return tensor.repeat_interleave(block, axis).narrow(axis, 0, codes.shape[axis])
    if tensor.ndim != 1 or tensor.numel() != codes.shape[axis]:
        return None
    return tensor.reshape([-1 if place == axis else 1 for place in range(codes.ndim)])


def _ends(dtype: Any, least: int, most: int) -> tuple[int, int]:
    """Codes at the ends of the range; symmetric quantization leaves out the lowest."""
    low, high = int(dtype.min), int(dtype.max)
    return min(low + 1, least) if low < 0 else low, max(high, most)


def _slack(codes: torch.Tensor, scale: torch.Tensor, ends: tuple[int, int]) -> torch.Tensor:
    clipped = (codes <= ends[0]) | (codes >= ends[1])
    steps = torch.where(clipped, 1.0, 0.5)
    return steps * scale.abs() * 1.001


def _blocks(node: ir.Node) -> Stored | None:
    """Weights of ``MatMulNBits``: 4 or 8 bits, in blocks along the inputs of each output.

    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    bits, size = node.attributes.get("bits"), node.attributes["block_size"].as_int()
    width = 4 if bits is None else bits.as_int()
    rows, columns = node.attributes["N"].as_int(), node.attributes["K"].as_int()
    packed, scales, zeros = (_constant(node, index) for index in (1, 2, 3))
    if width not in (4, 8) or packed is None or scales is None:
        return None
    count = -(-columns // size)
    codes = _unpacked(packed.reshape(rows, -1), width).reshape(rows, count, size)
    zero: torch.Tensor | float = float(2 ** (width - 1))
    if zeros is not None:
        if not zeros.is_floating_point():
            zeros = _unpacked(zeros.reshape(rows, -1), width)[:, :count]
        zero = zeros.reshape(rows, count, 1).float()
    steps = scales.reshape(rows, count, 1).float()
    values = ((codes.float() - zero) * steps).reshape(rows, -1)[:, :columns]
    slack = _slack(codes, steps, (0, 2**width - 1)).reshape(rows, -1)[:, :columns]
    return Stored(values, slack)


def _unpacked(packed: torch.Tensor, width: int) -> torch.Tensor:
    """Two codes of each byte, the low one first; bytes as they are of 8 bits."""
    if width == 8:
        return packed
    return torch.stack([packed & 15, packed >> 4], dim=-1).reshape(packed.shape[0], -1)
