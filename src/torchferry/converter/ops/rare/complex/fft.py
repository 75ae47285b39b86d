"""Fourier transforms of whole signals, and of windows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.complex.complex_number import is_complex
from torchferry.seams.operators import aten

__all__: list[str] = []

Size = int | ir.Value
DOUBLE = ir.DataType.DOUBLE
_NONE, _BY_ROOT, _BY_N = 0, 1, 2  # aten/src/ATen/native/SpectralOpsUtils.h, fft_norm_mode


@lowers(aten._fft_c2c.default, complex=True)
def _fft_c2c(
    b: Block, x: ir.Value, dim: Sequence[int], normalization: int, forward: bool
) -> ir.Value:
    sizes = [b.dim(x, axis) for axis in _axes(dim, x)]
    for axis in _axes(dim, x):
        x = _transform(b, x, axis, inverse=not forward)
    return _normalized(b, x, sizes, normalization, inverse=not forward)


@lowers(aten._fft_r2c.default, complex=True)
def _fft_r2c(
    b: Block, x: ir.Value, dim: Sequence[int], normalization: int, onesided: bool
) -> ir.Value:
    x = b.Unsqueeze(x, [-1])
    axes = _axes(dim, x)
    sizes = [b.dim(x, axis) for axis in axes]
    for axis in reversed(axes):
        halved = onesided and axis == axes[-1]
        x = _transform(b, x, axis, onesided=halved)
    return _normalized(b, x, sizes, normalization, inverse=False)


@lowers(aten._fft_c2r.default, complex=True)
def _fft_c2r(
    b: Block, x: ir.Value, dim: Sequence[int], normalization: int, last_dim_size: Size
) -> ir.Value:
    *axes, last = _axes(dim, x)
    sizes = [*(b.dim(x, axis) for axis in axes), last_dim_size]
    for axis in axes:
        x = _transform(b, x, axis, inverse=True)
    y = _real_signal(b, x, last, last_dim_size)
    return _normalized(b, y, sizes, normalization, inverse=True)


def _axes(dim: Sequence[int], x: ir.Value) -> list[int]:
    """Axes counted from the front; the last one of complex numbers is none."""
    rank = len(x.shape or ()) - 1
    return [axis % rank for axis in dim]


def _transform(
    b: Block, x: ir.Value, axis: int, *, inverse: bool = False, onesided: bool = False
) -> ir.Value:
    """The transform along an axis; the inverse one is divided by the size.

    Sizes that are no powers of two are transformed in float64: onnxruntime's float32 algorithm
    for them is off by 1e-4 of the greatest result.
    """
    size = b.dim(x, axis)
    exact = isinstance(size, int) and size & (size - 1) == 0
    signal = x if exact else b.cast(x, DOUBLE)
    flags = {"inverse": int(inverse) or None, "onesided": int(onesided) or None}
    y = _dft(b, signal, None, axis, flags)
    return b.cast(y, x)


def _dft(b: Block, x: ir.Value, length: Any, axis: int, flags: dict[str, Any]) -> ir.Value:
    rank = len(x.shape or ())
    if b.opset >= 20:
        y = b.DFT(x, length, b.constant(axis), **flags)
    else:
        y = b.DFT(x, length, axis=axis, **flags)
    y.type = ir.TensorType(x.dtype or DOUBLE)
    y.shape = ir.Shape([None] * (rank - 1) + [2])
    return y


def _real_signal(b: Block, x: ir.Value, axis: int, size: Size) -> ir.Value:
    """The real signal of that size with these frequencies, of which the others follow."""
    first: Any = (size - 1) // 2 if isinstance(size, int) else b.Div(b.Sub(size, 1), 2)
    start = [first] if isinstance(first, int) else first
    rest = b.Mul(b.Slice(x, start, [0], [axis], [-1]), [1, -1])
    kept: Any = [size // 2 + 1] if isinstance(size, int) else b.Add(b.Div(size, 2), 1)
    whole = b.Concat(b.Slice(x, [0], kept, [axis], [1]), rest, axis=axis)
    whole.shape = ir.Shape([*(x.shape or ())[:axis], size if isinstance(size, int) else None,
                            *(x.shape or ())[axis + 1 :]])  # fmt: skip
    return b.Gather(_transform(b, whole, axis, inverse=True), b.constant(0), axis=-1)


def _normalized(
    b: Block, x: ir.Value, sizes: Sequence[Size], mode: int, *, inverse: bool
) -> ir.Value:
    """Scaled as ``norm=`` says: the inverse transform of ONNX is divided by the sizes already."""
    if mode == (_BY_N if inverse else _NONE):
        return x
    count = _product(b, sizes)
    root = mode == _BY_ROOT
    if isinstance(count, float):
        factor = count**0.5 if root else count
        return b.Mul(x, factor if inverse else 1 / factor)
    factor = b.Sqrt(count) if root else count
    return b.add("Mul" if inverse else "Div", (x, b.cast(factor, x)))


def _product(b: Block, sizes: Sequence[Size]) -> Any:
    known = float(np.prod([size for size in sizes if isinstance(size, int)]))
    values = [size for size in sizes if isinstance(size, ir.Value)]
    if not values:
        return known
    product = b.constant([known], DOUBLE)
    for value in values:
        product = b.Mul(product, b.cast(value, DOUBLE))
    return product


# Windows of a signal -------------------------------------------------------------------------


@lowers(aten.stft.default, complex=True)
def stft(
    b: Block, x: ir.Value, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: ir.Value | None = None, normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> ir.Value:  # fmt: skip
    if is_complex(x) or (window is not None and is_complex(window)) or align_to_window:
        raise ValueError("of a complex signal, or aligned to its window, ONNX has no STFT")
    batched = len(x.shape or ()) == 2
    signal = b.Unsqueeze(x, [-1] if batched else [0, -1])
    exact = n_fft & (n_fft - 1) == 0
    wide = signal if exact else b.cast(signal, DOUBLE)
    shape = _window(b, window, win_length or n_fft, n_fft, wide)
    y = b.STFT(
        wide, b.constant(hop_length or n_fft // 4), shape, b.constant(n_fft),
        onesided=int(onesided is not False),
    )  # fmt: skip
    y.type = ir.TensorType(wide.dtype or DOUBLE)
    y = b.cast(y, x)
    y = b.Transpose(y, perm=[0, 2, 1, 3])
    if normalized:
        y = b.Mul(y, n_fft**-0.5)
    return y if batched else b.Squeeze(y, [0])


lowers(aten.stft.default)(stft)  # return_complex=False: the same numbers, as a real tensor


@lowers(aten.istft.default, complex=True)
def istft(
    b: Block, x: ir.Value, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: ir.Value | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: Size | None = None,
    return_complex: bool = False,
) -> ir.Value:  # fmt: skip
    """Windows of the signal, added where they overlap, over the sum of the squared windows."""
    if return_complex or (window is not None and is_complex(window)) or onesided is False:
        raise ValueError("a complex or two-sided istft is not converted: use a real signal's")
    batched = len(x.shape or ()) == 4
    x = x if batched else b.Unsqueeze(x, [0])
    hop = hop_length or n_fft // 4
    frames = _real_signal(b, x, 1, n_fft)  # [batch, n_fft, windows]
    if normalized:
        frames = b.Mul(frames, n_fft**0.5)
    shape = b.Unsqueeze(_window(b, window, win_length or n_fft, n_fft, frames), [-1])
    count = b.dim(x, 2)
    total: Any = (
        n_fft + hop * (count - 1)
        if isinstance(count, int)
        else b.Add(b.Mul(b.Sub(count, 1), hop), n_fft)
    )
    squares = b.Expand(b.Unsqueeze(b.Mul(shape, shape), [0]), b.vector([1, 1, count]))
    signal, weight = (
        _overlapped(b, v, n_fft, hop, total) for v in (b.Mul(frames, shape), squares)
    )
    signal = b.Div(signal, b.Where(b.Less(b.Abs(weight), 1e-11), 1, weight))
    signal = _cut(b, signal, n_fft // 2 if center else 0, total, center, length)
    return signal if batched else b.Squeeze(signal, [0])


def _overlapped(b: Block, frames: ir.Value, n_fft: int, hop: int, total: Any) -> ir.Value:
    y = b.Col2Im(
        b.cast(frames, ir.DataType.FLOAT), b.vector([1, total]), [1, n_fft], strides=[1, hop]
    )
    return b.cast(b.Squeeze(y, [1, 2]), frames)


def _cut(
    b: Block, signal: ir.Value, start: int, total: Any, center: bool, length: Size | None
) -> ir.Value:
    if length is None:
        return b.Slice(signal, [start], [-start if start else 2**63 - 1], [1])
    end = start + length if isinstance(length, int) else b.Add(length, start)
    kept = b.Slice(signal, [start], b.vector([end]), [1])
    missing = b.Max(b.Sub(b.vector([end]), b.vector([total])), 0)
    return b.Pad(kept, b.Concat([0], missing, axis=0), None, [1])


def _window(
    b: Block, window: ir.Value | None, length: int, n_fft: int, like: ir.Value
) -> ir.Value:
    """The window in the middle of n_fft places."""
    left = (n_fft - length) // 2
    sides = (left, n_fft - length - left)
    if window is None:
        return b.constant(np.pad(np.ones(length), sides), like)
    window = b.cast(window, like)
    return window if length == n_fft else b.Pad(window, list(sides))
