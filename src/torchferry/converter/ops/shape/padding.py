"""Padding: by a constant, by reflection, by the edge, around the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []

Size = int | ir.Value

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
# torch/nn/modes: at::padding_mode
_NUMBERED = ("reflect", "replicate", "circular", "constant")
_INT16 = {ir.DataType.INT16, ir.DataType.UINT16}


def _padded(b: Block, x: ir.Value, pad: Sequence[Size], mode: str, value: Any = None) -> ir.Value:
    """``pad`` as PyTorch has it: start and end of the last axis, then of the one before."""
    if mode not in _MODES:
        raise ValueError(f"padding mode {mode!r}, ONNX has {', '.join(_MODES)}")
    dtype, rank = x.dtype, len(x.shape or ())
    pairs = {
        rank - 1 - place: (pad[2 * place], pad[2 * place + 1])
        for place in range(len(pad) // 2)
        if not (_zero(pad[2 * place]) and _zero(pad[2 * place + 1]))
    }
    crop_first = mode in ("constant", "circular")  # the others read what is cut away, too
    cropped = _cropped(b, x, pairs) if crop_first else x
    grown = {axis: (_grown(s), _grown(e)) for axis, (s, e) in sorted(pairs.items())}
    grown = {axis: p for axis, p in grown.items() if not (_zero(p[0]) and _zero(p[1]))}
    result = _extended(b, cropped, grown, mode, value) if grown else cropped
    if not crop_first:
        result = _cropped(b, result, pairs)
    return result if dtype is None else b.cast(result, dtype)


def _extended(
    b: Block, x: ir.Value, pairs: dict[int, tuple[Size, Size]], mode: str, value: Any
) -> ir.Value:
    # Pad wraps since opset 19, and onnxruntime's does not wrap what is empty
    if mode == "circular" and (b.opset < 19 or 0 in (x.shape or ())):
        return _wrapped(b, x, pairs)
    if x.dtype in _INT16:
        x = b.cast(x, ir.DataType.INT32)
    pads = b.vector([s for s, _ in pairs.values()] + [e for _, e in pairs.values()])
    filler = value if mode == "constant" and value not in (None, 0) else None
    if isinstance(filler, ir.Value):
        filler = b.cast(filler, x)
    elif filler is not None:
        filler = b.constant(filler, x)
    axes = None if len(pairs) == len(x.shape or ()) else b.constant(list(pairs))
    return b.Pad(x, pads, filler, axes, mode=None if mode == "constant" else _MODES[mode])


def _zero(size: Size) -> bool:
    return isinstance(size, int) and size == 0


def _grown(size: Size) -> Size:
    return max(size, 0) if isinstance(size, int) else size


def _cropped(b: Block, x: ir.Value, pairs: dict[int, tuple[Size, Size]]) -> ir.Value:
    """Without what negative padding takes away."""
    cuts = {
        axis: tuple(-size if isinstance(size, int) and size < 0 else 0 for size in pair)
        for axis, pair in sorted(pairs.items())
    }
    cuts = {axis: cut for axis, cut in cuts.items() if any(cut)}
    if not cuts:
        return x
    ends = [-end if end else 2**63 - 1 for _, end in cuts.values()]
    starts = b.constant([start for start, _ in cuts.values()])
    return b.Slice(x, starts, b.constant(ends), b.constant(list(cuts)))


def _wrapped(b: Block, x: ir.Value, pairs: dict[int, tuple[Size, Size]]) -> ir.Value:
    """Before opset 19 Pad does not wrap."""
    for axis, (start, end) in pairs.items():
        if isinstance(start, ir.Value) or isinstance(end, ir.Value):
            raise ValueError("circular padding by a symbolic size needs opset 19, ask for it")
        parts = [x]
        if start:
            parts.insert(0, b.Slice(x, [-start], [2**63 - 1], [axis]))
        if end:
            parts.append(b.Slice(x, [0], [end], [axis]))
        x = b.Concat(*parts, axis=axis)
    return x


@lowers(aten.pad.default)
def pad(
    b: Block, x: ir.Value, pad: Sequence[Size], mode: str = "constant", value: Any = None
) -> ir.Value:
    return _padded(b, x, pad, mode, value)


@lowers(aten._pad_enum.default)
def _pad_enum(
    b: Block, x: ir.Value, pad: Sequence[Size], mode: int, value: Any = None
) -> ir.Value:
    return _padded(b, x, pad, _NUMBERED[mode], value)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(b: Block, x: ir.Value, pad: Sequence[Size], value: Any = 0) -> ir.Value:
    return _padded(b, x, pad, "constant", value)


@lowers(aten._pad_circular.default)
def _pad_circular(b: Block, x: ir.Value, pad: Sequence[Size]) -> ir.Value:
    return _padded(b, x, pad, "circular")


@lowers(
    aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default
)
def reflection_pad(b: Block, x: ir.Value, padding: Sequence[Size]) -> ir.Value:
    return _padded(b, x, padding, "reflect")


@lowers(
    aten.replication_pad1d.default, aten.replication_pad2d.default,
    aten.replication_pad3d.default,
)  # fmt: skip
def replication_pad(b: Block, x: ir.Value, padding: Sequence[Size]) -> ir.Value:
    return _padded(b, x, padding, "replicate")
