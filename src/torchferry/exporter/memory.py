"""Whether a model fits in memory: to be run, and to be verified as a whole."""

from __future__ import annotations

from typing import Literal

import torch
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from torchferry.judge.apart import available_memory

__all__ = ["WAYS", "Verify", "can_run", "can_take_layers", "way_to_verify", "weight_bytes"]

Verify = Literal["auto", "whole", "layers"]
WAYS: tuple[Verify, ...] = ("auto", "whole", "layers")

_SESSION = 3  # times its weights: a session has them packed too, and of bfloat16 as float32
_RUN = 2  # the same, of memory that is left free while a model runs whose weights are mapped


def weight_bytes(model: torch.nn.Module | ExportedProgram) -> int:
    """Bytes of the parameters and buffers of a model, those that are tied once."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.numel() * t.itemsize for t in tensors.values() if not is_lazy(t))


def can_run(size: int) -> bool:
    """Whether a model with so many bytes of weights can be run several times as a whole."""
    return _RUN * size <= (available_memory() or _RUN * size)


def can_take_layers(exporter: str, state: str) -> bool:
    """Whether a model that is exported so can be verified by layers."""
    return exporter == "to_onnx" and state != "lift"


def way_to_verify(verify: Verify, size: int) -> Verify:
    """The way to verify a model with so many bytes of weights, if it can be verified by layers.

    Args:
        verify: what the user chose; ``auto`` takes layers if a session may not fit in memory.
        size: bytes of its weights.
    """
    if verify != "auto":
        return verify
    return "layers" if _SESSION * size > (available_memory() or _SESSION * size) else "whole"
