"""Simulated quantization (``torch.ao.quantization``), whose buffers say whether it is on.

A trace does not know what a buffer holds, so the ifs on them cannot be followed, and an observer
that is off still writes. They are settings, not data: what they are when the patches are applied
holds for the program, the scale of a whole tensor too.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from torchferry.capturer.patching.patch import Attribute, Patch, Place
from torchferry.seams.pytorch import quantized_operators

__all__ = ["PATCHES"]

_MODULE = "torch.ao.quantization.fake_quantize"
quantized_operators()  # without them no fake quantization is traced


def _classes(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for below in cls.__subclasses__():
        yield from _classes(below)


def _at_rest() -> Sequence[Place]:
    """``forward`` of every module there is that does not observe, so that it has no state."""
    upstream = getattr(sys.modules.get(_MODULE), "FakeQuantize", None)
    if upstream is None:
        return ()
    known = (upstream.forward, sys.modules[_MODULE].FusedMovingAvgObsFakeQuantize.forward)
    classes = {cls for cls in _classes(upstream) if inspect.unwrap(cls.forward) in known}
    found = [one for one in gc.get_referrers(*classes) if type(one) in classes]
    return [Attribute(one, "forward") for one in found if not bool(one.observer_enabled[0])]


def _decided(original: Callable[..., Any]) -> Callable[..., Any]:
    module: Any = getattr(original, "__self__", None)
    enabled = module is not None and bool(module.fake_quant_enabled[0])
    if enabled and not module.is_per_channel:
        scale, zero_point = float(module.scale), int(module.zero_point)

    def forward(x: Tensor) -> Tensor:
        """The branch of upstream that the buffers choose."""
        if not enabled:
            return x
        bounds = module.activation_post_process.quant_min, module.activation_post_process.quant_max
        if module.is_per_channel:
            return torch.fake_quantize_per_channel_affine(
                x, module.scale, module.zero_point, module.ch_axis, *bounds
            )
        return _there_and_back(x, scale, zero_point, *bounds)

    return forward


def _there_and_back(x: Tensor, scale: float, zero_point: int, low: int, high: int) -> Tensor:
    """``fake_quantize_per_tensor_affine``, which has no fake results, in two operators."""
    dtype = torch.uint8 if low >= 0 else torch.int8
    if low < torch.iinfo(dtype).min or high > torch.iinfo(dtype).max:
        dtype = torch.int32
    given = scale, zero_point, low, high, dtype
    whole = torch.ops.quantized_decomposed.quantize_per_tensor.default(x.float(), *given)
    back: Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor.default(whole, *given)
    return back.to(x.dtype)


PATCHES = (
    Patch(
        subject=f"{_MODULE}.FakeQuantize.forward",
        why="ifs on buffers that say whether to observe and to quantize, whose values no trace "
        "knows",
        link="https://github.com/pytorch/pytorch/blob/main/torch/ao/quantization/fake_quantize.py",
        replace=_decided,
        fingerprints=("21113149314c",),
        places=_at_rest,
    ),
)
"""The one."""
