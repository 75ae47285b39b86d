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


@lowers(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    b: Block,
    x: ir.Value,
    grid: ir.Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> ir.Value:
    mode = _MODES[interpolation_mode]
    if b.opset < 20:
        if len(x.shape or ()) != 4:
            raise ValueError("grids of three dimensions need opset 20, ask for it")
        mode = _OLD_MODES[mode]
    return b.GridSample(
        x, grid, mode=mode, padding_mode=_PADDING[padding_mode],
        align_corners=1 if align_corners else 0,
    )  # fmt: skip


@lowers(aten.affine_grid_generator.default)
def affine_grid_generator(
    b: Block, theta: ir.Value, size: Sequence[Any], align_corners: bool
) -> ir.Value:
    if b.opset < 20:
        raise ValueError("an affine grid needs opset 20, ask for it")
    return b.AffineGrid(theta, b.vector(size), align_corners=1 if align_corners else 0)
