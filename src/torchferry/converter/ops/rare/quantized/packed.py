"""Products with weights of four bits, two in a byte, which they stay in the file.

They become onnxruntime's MatMulNBits. ONNX's own way to say it, an int4 DequantizeLinear before a
MatMul, is fused to the same by onnxruntime, but then rounds the inputs to eight bits unless the
session is told not to, and is a percent off. The layout in which torch holds the weights is its
kernel's: it is found by packing numbers that are known, and checked by packing the result.
Sources: aten/src/ATen/native/cpu/int4mm_kernel.cpp; com.microsoft.MatMulNBits in
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import MICROSOFT, Block
from torchferry.converter.lowering import lowers
from torchferry.converter.weight import Weight
from torchferry.seams.operators import aten

__all__ = ["product", "stored", "unpacked"]

_FLOAT = ir.DataType.FLOAT
_ROWS = 64  # that torch packs together, or a divisor of it
_LEAST_BLOCK, _MOST_BLOCK = 16, 256  # of MatMulNBits, which wants a power of two


def stored(value: ir.Value, what: str) -> torch.Tensor:
    """The content of a weight.

    Raises:
        ValueError: it is computed or given when the model runs, or has no data yet.
    """
    tensor = value.const_value
    held = tensor.raw if isinstance(tensor, Weight) else None
    if not isinstance(held, torch.Tensor):
        raise ValueError(
            f"its {what} is no parameter or buffer, and cannot be repacked: make it one"
        )
    if held.is_meta:
        raise ValueError(f"its {what} has no data to be repacked: load it before the export")
    return held


# Torch's layout ----------------------------------------------------------------------------------


def _packed(codes: torch.Tensor) -> torch.Tensor:
    return aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32), 1)


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """The two halves of every byte, the lower one first."""
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


@lru_cache(maxsize=8)
def _order(rows: int, columns: int) -> torch.Tensor:
    """Where in the packed form of a matrix each of its elements is, row by row."""
    places = torch.arange(rows * columns, dtype=torch.int64)
    source = torch.zeros_like(places)
    for shift in range(0, places.numel().bit_length(), 4):
        digit = ((places >> shift) & 15).reshape(rows, columns)
        source += _nibbles(_packed(digit).flatten()).to(torch.int64) << shift
    return torch.empty_like(places).scatter_(0, source, places)


def unpacked(packed: torch.Tensor) -> torch.Tensor:
    """What ``_convert_weight_to_int4pack_for_cpu`` packed: 0 to 15, uint8 ``[n, k]``.

    Args:
        packed: uint8 ``[n, k / 2]``.

    Raises:
        ValueError: this machine's torch packs in another way than the one that packed it.
    """
    rows, columns = packed.shape[0], packed.shape[1] * 2
    whole = rows // _ROWS * _ROWS
    parts = []
    for start, end, height in ((0, whole, _ROWS), (whole, rows, rows - whole)):
        if start < end:
            nibbles = _nibbles(packed[start:end]).reshape(-1, height * columns)
            parts.append(nibbles[:, _order(height, columns)].reshape(-1, columns))
    codes = torch.cat(parts)
    if not torch.equal(_packed(codes), packed):
        raise ValueError(
            "its weight was not packed by this machine's torch: pack it here, with "
            "torch.ops.aten._convert_weight_to_int4pack_for_cpu"
        )
    return codes


# ONNX's ------------------------------------------------------------------------------------------


def product(
    b: Block, x: ir.Value, weight: ir.Value, codes: torch.Tensor, scales: ir.Value
) -> ir.Value:
    """``x @ ((codes - 8) * scales).T``.

    Args:
        b: where the nodes go.
        x: float32 ``[m, k]``.
        weight: what the codes were read from; it gives the name, and remembers the new form.
        codes: uint8 ``[n, k]``, 0 to 15.
        scales: float32 ``[k / group, n]``.
    """
    rows, columns = codes.shape
    groups = b.dim(scales, 0)
    if not isinstance(groups, int):
        raise ValueError("the number of its scales depends on the inputs' sizes, fix it")
    block = gcd(columns // groups, _MOST_BLOCK)
    if block < _LEAST_BLOCK:
        raise ValueError(
            f"onnxruntime has no product with groups of {columns // groups} numbers of four bits: "
            "make them a multiple of 16"
        )
    by_row = b.Transpose(scales, perm=[1, 0])
    if repeats := columns // groups // block - 1:
        wide = b.Expand(b.Unsqueeze(by_row, [2]), b.constant([1, 1, repeats + 1]))
        by_row = b.Reshape(wide, [rows, columns // block])
    if "blocks" not in weight.meta:
        weight.meta["blocks"] = _blocks(codes, block, f"{weight.name}.blocks")
    made: ir.Value = b.MatMulNBits(
        x, weight.meta["blocks"], by_row, domain=MICROSOFT,
        K=columns, N=rows, bits=4, block_size=block,
    )  # fmt: skip
    return made


def _blocks(codes: torch.Tensor, block: int, name: str) -> ir.Value:
    """The codes as MatMulNBits reads them: uint8 ``[n, k / block, block / 2]``."""
    rows, columns = codes.shape
    pairs = codes.reshape(rows, columns // block, block // 2, 2)
    tensor = ir.Tensor((pairs[..., 0] | pairs[..., 1] << 4).numpy(), name=name)
    return ir.Value(
        name=name, const_value=tensor, shape=tensor.shape, type=ir.TensorType(tensor.dtype)
    )


# Operators ---------------------------------------------------------------------------------------


@lowers(aten._convert_weight_to_int4pack_for_cpu.default)
def _convert_weight_to_int4pack_for_cpu(b: Block, x: ir.Value, innerKTiles: int) -> ir.Value:
    packed = _packed(stored(x, "weight"))
    return b.constants.weight(packed, f"{x.name}.packed")


@lowers(aten._weight_int4pack_mm_for_cpu.default)
def _weight_int4pack_mm_for_cpu(
    b: Block, x: ir.Value, mat2: ir.Value, qGroupSize: int, qScaleAndZeros: ir.Value
) -> ir.Value:
    codes = unpacked(stored(mat2, "packed weight"))
    both = b.cast(qScaleAndZeros, _FLOAT)
    scales, zeros = (b.Gather(both, place, axis=2) for place in (0, 1))
    wide = b.cast(x, _FLOAT)
    scaled = product(b, wide, mat2, codes, scales)
    held = qScaleAndZeros.const_value
    if isinstance(held, Weight) and not held.numpy()[..., 1].any():
        return scaled
    # a weight is (code - 8) * scale + zero: the zero of a group counts for the sum of its inputs
    groups = b.Reshape(wide, [0, codes.shape[1] // qGroupSize, qGroupSize])
    return b.Add(scaled, b.MatMul(b.ReduceSum(groups, [2], keepdims=0), zeros))


@lowers(aten._weight_int4pack_mm.default, aten._convert_weight_to_int4pack.default)
def _weight_int4pack_mm(b: Block, *args: Any) -> ir.Value:
    raise ValueError(
        "its weight is packed in tiles of a GPU's kernel, which ONNX has no form for: quantize "
        "the model on the CPU, before it is moved"
    )


# With inputs that are rounded to bytes -----------------------------------------------------------


@lowers(aten._dyn_quant_pack_4bit_weight.default)
def _dyn_quant_pack_4bit_weight(
    b: Block,
    weights: ir.Value,
    scales_zeros: ir.Value,
    bias: ir.Value | None,
    block_size: int,
    in_features: int,
    out_features: int,
) -> ir.Value:
    packed = aten._dyn_quant_pack_4bit_weight(
        stored(weights, "weight"),
        stored(scales_zeros, "scale"),
        None if bias is None else stored(bias, "bias"),
        block_size,
        in_features,
        out_features,
    )
    return b.constants.weight(packed, f"{weights.name}.packed")


@lowers(aten._dyn_quant_matmul_4bit.default)
def _dyn_quant_matmul_4bit(
    b: Block,
    inp: ir.Value,
    packed_weights: ir.Value,
    block_size: int,
    in_features: int,
    out_features: int,
) -> ir.Value:
    held = stored(packed_weights, "packed weight")
    count, groups = out_features * in_features // 2, in_features // block_size
    rest = held[count:].to(torch.float32)
    if held.dtype != torch.float32 or rest.numel() - out_features * groups not in (
        0,
        out_features,
    ):
        raise ValueError(
            "its weight is packed in tiles of an ARM kernel, which ONNX has no form for: pack it "
            "on another machine"
        )
    codes = _nibbles(held[:count].to(torch.uint8)).reshape(out_features, in_features)
    scales = rest[: out_features * groups].reshape(out_features, groups)
    step, steps = _rounded(b, b.cast(inp, _FLOAT))
    made = product(b, steps, packed_weights, codes, b.constant(scales.t().numpy(), _FLOAT))
    made = b.Mul(made, step)
    bias = rest[out_features * groups :]
    return b.Add(made, b.constant(bias.numpy(), _FLOAT)) if bias.numel() else made


def _rounded(b: Block, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Each row as whole steps from -255 to 255, and what a step is worth, ``[m, 1]``."""
    least = b.Min(b.ReduceMin(x, [1]), 0.0)
    most = b.Max(b.ReduceMax(x, [1]), 0.0)
    empty = b.Equal(least, most)
    scale = b.Where(empty, 1.0, b.Div(255.0, b.Sub(most, least)))
    low, high = b.Mul(least, scale), b.Mul(most, scale)
    nearer = b.Greater(b.Add(b.Add(low, -128.0), b.Add(high, 127.0)), 0.0)
    zero = b.Where(nearer, b.Sub(-128.0, low), b.Sub(127.0, high))
    zero = b.Round(b.Clip(zero, -128.0, 127.0))
    scaled = b.Mul(x, scale)
    away = b.Mul(b.Sign(scaled), b.Floor(b.Add(b.Abs(scaled), 0.5)))  # C's roundf
    return b.Reciprocal(scale), b.Sub(b.Clip(b.Add(away, zero), -128.0, 127.0), zero)
