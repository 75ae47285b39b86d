"""Resizing of images and signals.

Nearest neighbours are gathered by PyTorch's own indices unless Resize is known to pick the same:
the two round the quotient of sizes differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []

Size = int | ir.Value

_RESIZED = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


def _wanted(
    b: Block, x: ir.Value, sizes: Sequence[Size] | None, scales: Sequence[float | None]
) -> list[Size]:
    """The sizes of the spatial axes."""
    if sizes is not None:
        return list(sizes)
    found: list[Size] = []
    for place, scale in enumerate(scales):
        size = b.dim(x, 2 + place)
        if isinstance(size, int):
            found.append(int(size * float(scale or 1)))
        elif float(scale or 1).is_integer():
            found.append(b.Mul(size, int(scale or 1)))
        else:
            real = b.Mul(b.cast(size, ir.DataType.DOUBLE), float(scale or 1))
            found.append(b.cast(real, ir.DataType.INT64))
    return found


# Nearest -------------------------------------------------------------------------------------


def _nearest(
    b: Block,
    x: ir.Value,
    sizes: Sequence[Size] | None,
    scales: Sequence[float | None],
    exact: bool,
) -> ir.Value:
    out = _wanted(b, x, sizes, scales)
    axes = [*range(2, 2 + len(out))]
    picks = [
        _picks(b, b.dim(x, axis), size, scale, 0.5 if exact else 0.0, len(out) == 2 and not exact)
        for axis, size, scale in zip(axes, out, scales, strict=True)
    ]
    factors = [
        _factor(b.dim(x, axis), size, scale, pick, exact)
        for axis, size, scale, pick in zip(axes, out, scales, picks, strict=True)
    ]
    if x.dtype in _RESIZED and all(factors):
        known = [1.0, 1.0, *(float(factor or 1) for factor in factors)]
        return b.Resize(
            x, None, b.constant(known, ir.DataType.FLOAT),
            mode="nearest", nearest_mode="round_prefer_ceil" if exact else "floor",
            coordinate_transformation_mode="half_pixel" if exact else "asymmetric",
        )  # fmt: skip
    for axis, pick in zip(axes, picks, strict=True):
        if not isinstance(pick, np.ndarray) or len(pick) != b.dim(x, axis) or _moves(pick):
            x = b.Gather(x, pick if isinstance(pick, ir.Value) else b.constant(pick), axis=axis)
    return x


def _moves(pick: np.ndarray[Any, Any]) -> bool:
    return bool((pick != np.arange(len(pick))).any())


def _picks(b: Block, size: Size, out: Size, scale: float | None, shift: float, snaps: bool) -> Any:
    """Which element each of the result is, ``floor((i + shift) · in/out)`` in float32.

    A ``scale`` that was given stands for ``out/in``, but for images (``snaps``) not where the
    result is as large as the input, or twice that. Source: ATen/native/UpSample.h, nearest_idx,
    nearest_neighbor_compute_source_index and nearest_neighbor_exact_compute_source_index.
    """
    ratio: Any = None if scale is None else np.float32(1.0 / scale)
    if isinstance(size, int) and isinstance(out, int):
        ratio = None if snaps and out in (size, 2 * size) else ratio
        ratio = np.float32(size) / np.float32(out) if ratio is None else ratio
        steps = np.arange(out, dtype=np.float32) + np.float32(shift)
        return np.minimum(np.floor(steps * ratio).astype(np.int64), size - 1)
    single = ir.DataType.FLOAT
    if ratio is None:
        ratio = b.Div(*(b.cast(v if isinstance(v, ir.Value) else b.constant([v]), single)
                        for v in (size, out)))  # fmt: skip
    if not isinstance(ratio, ir.Value):
        ratio = b.constant(ratio, single)
        for times in (1, 2) if snaps else ():
            same = b.Equal(b.scalar(out), b.Mul(b.scalar(size), times))
            ratio = b.Where(same, b.constant(1 / times, single), ratio)
    steps_now = b.Range(0, b.scalar(out), 1)
    places = b.cast(steps_now, single)
    if shift:
        places = b.Add(places, b.constant(shift, single))
    found = b.cast(b.Floor(b.Mul(places, ratio)), ir.DataType.INT64)
    return b.Min(found, size - 1 if isinstance(size, int) else b.Sub(size, 1))


def _factor(size: Size, out: Size, scale: float | None, picks: Any, exact: bool) -> float | None:
    """The scale with which Resize picks the same elements, if it is known that it does."""
    if isinstance(size, int) and isinstance(out, int):
        if not size or out % size:
            return None
        factor = out // size
        same = isinstance(picks, np.ndarray) and (picks == np.arange(out) // factor).all()
        return float(factor) if same else None
    # multiplied and divided by powers of two, nothing is rounded
    if scale is not None and float(scale).is_integer() and not int(scale) & (int(scale) - 1):
        return float(scale)
    return None


# Linear and cubic ----------------------------------------------------------------------------


def _resized(
    b: Block,
    x: ir.Value,
    sizes: Sequence[Size] | None,
    align_corners: bool,
    scales: Sequence[float | None],
    mode: str,
    antialias: bool = False,
) -> ir.Value:
    if x.dtype not in _RESIZED:
        name = (x.dtype or ir.DataType.UNDEFINED).name.lower()
        raise ValueError(f"onnxruntime resizes float32, not {name}: convert the tensor before")
    if antialias and align_corners:
        raise ValueError("Resize filters another way with align_corners, leave one of them out")
    corners = "align_corners" if align_corners else "half_pixel"
    cubic = mode == "cubic"
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": corners,
        "cubic_coeff_a": (-0.5 if antialias else -0.75) if cubic else None,
        "antialias": 1 if antialias else None,
        "exclude_outside": 1 if antialias else None,
    }
    given = all(scale is not None for scale in scales) and not align_corners
    if given and (sizes is None or not antialias):
        whole = [b.dim(x, 2 + place) for place in range(len(scales))]
        fits = sizes is None or all(
            isinstance(size, int) and isinstance(out, int) and int(size * float(s or 1)) == out
            for size, out, s in zip(whole, sizes, scales, strict=True)
        )
        if fits:
            factors = b.constant([1.0, 1.0, *(float(s or 1) for s in scales)])
            return b.Resize(x, None, b.cast(factors, ir.DataType.FLOAT), **attributes)
    out = _wanted(b, x, sizes, scales)
    whole_shape = b.vector([b.dim(x, 0), b.dim(x, 1), *out])
    return b.Resize(x, None, None, whole_shape, **attributes)


# Overloads: .vec with sizes or factors, the others with both ----------------------------------

_NEAREST = {
    aten.upsample_nearest1d: False, aten.upsample_nearest2d: False,
    aten.upsample_nearest3d: False, aten._upsample_nearest_exact1d: True,
    aten._upsample_nearest_exact2d: True, aten._upsample_nearest_exact3d: True,
}  # fmt: skip
_SMOOTH = {
    aten.upsample_linear1d: ("linear", False), aten.upsample_bilinear2d: ("linear", False),
    aten.upsample_trilinear3d: ("linear", False), aten.upsample_bicubic2d: ("cubic", False),
    aten._upsample_bilinear2d_aa: ("linear", True), aten._upsample_bicubic2d_aa: ("cubic", True),
}  # fmt: skip


def _scales(x: ir.Value, factors: Sequence[float] | None) -> list[float | None]:
    return [None] * (len(x.shape or ()) - 2) if factors is None else [*factors]


def _register_nearest(target: Any, exact: bool) -> None:
    @lowers(target.vec)
    def vec(
        b: Block,
        x: ir.Value,
        output_size: Sequence[Size] | None,
        scale_factors: Sequence[float] | None,
    ) -> ir.Value:
        return _nearest(b, x, output_size, _scales(x, scale_factors), exact)

    @lowers(target.default)
    def default(
        b: Block, x: ir.Value, output_size: Sequence[Size], *scales: float | None
    ) -> ir.Value:
        given = [*scales, *[None] * len(output_size)][: len(output_size)]
        return _nearest(b, x, output_size, given, exact)


def _register_smooth(target: Any, mode: str, antialias: bool) -> None:
    @lowers(target.vec)
    def vec(
        b: Block,
        x: ir.Value,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> ir.Value:
        scales = _scales(x, scale_factors)
        return _resized(b, x, output_size, align_corners, scales, mode, antialias)

    @lowers(target.default)
    def default(
        b: Block,
        x: ir.Value,
        output_size: Sequence[Size],
        align_corners: bool,
        *scales: float | None,
    ) -> ir.Value:
        given = [*scales, *[None] * len(output_size)][: len(output_size)]
        return _resized(b, x, output_size, align_corners, given, mode, antialias)


for _target, _exact in _NEAREST.items():
    _register_nearest(_target, _exact)
for _target, (_mode, _antialias) in _SMOOTH.items():
    _register_smooth(_target, _mode, _antialias)
