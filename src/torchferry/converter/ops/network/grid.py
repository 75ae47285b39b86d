"""Sampling of images at the points of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []

_MODES = ("linear", "nearest", "cubic")
_OLD_MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}  # before opset 20
_PADDING = ("zeros", "border", "reflection")
_FAR = 1e4
"""A point that is outside of every image, as -1 and 1 are its borders."""


@lowers(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    b: Block,
    x: ir.Value,
    grid: ir.Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> ir.Value:
    mode, padding, flat = (
        _MODES[interpolation_mode],
        _PADDING[padding_mode],
        len(x.shape or ()) == 4,
    )
    if b.opset < 20 and not flat:
        raise ValueError("grids of three dimensions need opset 20, ask for it")
    result = b.GridSample(
        x, _within(b, grid, padding, flat=flat), padding_mode=padding,
        mode=_OLD_MODES[mode] if b.opset < 20 else mode, align_corners=1 if align_corners else 0,
    )  # fmt: skip
    # Coordinates that are NaN or infinite, as 0 / (width - 1) is at width 1, give what PyTorch
    # gives: onnxruntime rounds them to a pixel.
    if not (padding == "zeros" or (flat and mode == "cubic")):
        return result
    undefined = b.ReduceSum(b.Mul(grid, b.constant(0.0, grid)), b.vector([-1]), keepdims=0)
    undefined = b.cast(b.Unsqueeze(undefined, b.vector([1])), x)
    if flat and mode != "nearest":
        return b.Add(result, undefined)
    return b.Where(b.IsNaN(undefined), b.constant(0.0, x), result)


def _within(b: Block, grid: ir.Value, padding: str, *, flat: bool) -> ir.Value:
    """Points that have a place, which onnxruntime takes for an integer."""
    if padding == "reflection":
        border = b.constant(-1.0 if flat else 1.0, grid)
        return b.Where(b.IsNaN(b.Mul(grid, b.constant(0.0, grid))), border, grid)
    least, far = b.constant(-_FAR, grid), b.constant(_FAR, grid)
    near = b.Clip(grid, least, far)
    return near if padding == "zeros" else b.Where(b.IsNaN(near), least if flat else far, near)


@lowers(aten.affine_grid_generator.default)
def affine_grid_generator(
    b: Block, theta: ir.Value, size: Sequence[Any], align_corners: bool
) -> ir.Value:
    if b.opset < 20:
        raise ValueError("an affine grid needs opset 20, ask for it")
    return b.AffineGrid(theta, b.vector(size), align_corners=1 if align_corners else 0)
