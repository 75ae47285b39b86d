"""torchferry takes a PyTorch model to ONNX Runtime and proves that it computes the same.

>>> import torchferry as tf
>>> tf.__version__
'0.1.0'

Importing the package imports neither torch nor onnx: each public name loads its room when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchferry.capturer import capture
    from torchferry.converter import convert, to_onnx
    from torchferry.errors import (
        CaptureError,
        ConversionError,
        FerryError,
        RunError,
        UsageError,
    )
    from torchferry.exporter import OnnxProgram, export, load
    from torchferry.observer import Observation, observe
    from torchferry.optimizer import optimize
    from torchferry.runner import run
    from torchferry.values import make_dynamic_cache, max_diff, string_type
    from torchferry.zoo import get_tiny_llm

__version__ = "0.1.0"

_ROOMS = {
    "capturer": ("capture",),
    "converter": ("convert", "to_onnx"),
    "errors": (
        "CaptureError",
        "ConversionError",
        "FerryError",
        "RunError",
        "UsageError",
    ),
    "exporter": ("OnnxProgram", "export", "load"),
    "observer": ("Observation", "observe"),
    "optimizer": ("optimize",),
    "runner": ("run",),
    "values": ("make_dynamic_cache", "max_diff", "string_type"),
    "zoo": ("get_tiny_llm",),
}
_HOME = {name: f"torchferry.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = [
    "CaptureError",
    "ConversionError",
    "FerryError",
    "Observation",
    "OnnxProgram",
    "RunError",
    "UsageError",
    "capture",
    "convert",
    "export",
    "get_tiny_llm",
    "load",
    "make_dynamic_cache",
    "max_diff",
    "observe",
    "optimize",
    "run",
    "string_type",
    "to_onnx",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
