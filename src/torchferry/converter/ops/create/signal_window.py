"""Window functions of signals, and their frequencies: constants, as PyTorch computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten
from torchferry.seams.pytorch import schema_of

__all__: list[str] = []

_WINDOWS = {
    aten.hann_window: ("default", "periodic"),
    aten.bartlett_window: ("default", "periodic"),
    aten.blackman_window: ("default", "periodic"),
    aten.hamming_window: (
        "default", "periodic", "periodic_alpha", "periodic_alpha_beta",
    ),
    aten.kaiser_window: ("default", "periodic", "beta"),
    aten.fft_fftfreq: ("default",),
    aten.fft_rfftfreq: ("default",),
}  # fmt: skip


def _evaluated(target: Any) -> Callable[..., ir.Value]:
    """Call the overload itself; torch.export knows the length."""

    def write(b: Block, *given: Any) -> ir.Value:
        arguments = schema_of(target).arguments
        count = sum(not argument.kwarg_only for argument in arguments)
        place = [argument.name for argument in arguments].index("dtype")
        if any(isinstance(item, ir.Value) for item in given):
            raise ValueError("the window's length depends on an input: make it constant")
        dtype = given[place] if place < len(given) else None
        values = target(*given[:count], dtype=dtype or torch.get_default_dtype())
        wide = values.float() if values.dtype == torch.bfloat16 else values
        return b.constant(wide.numpy(), values.dtype)

    return write


for _packet, _names in _WINDOWS.items():
    for _name in _names:
        _target = getattr(_packet, _name)
        lowers(_target)(_evaluated(_target))
