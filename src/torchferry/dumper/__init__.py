"""Tensors to disk and back: nested values in one ``.onnx``, one ``.safetensors``, or a folder."""

from __future__ import annotations

from torchferry.dumper.store import (
    DumpWriter,
    Key,
    create_input_tensors_from_onnx_model,
    create_onnx_model_from_input_tensors,
    open_dump,
    read_dump,
)

__all__ = [
    "DumpWriter",
    "Key",
    "create_input_tensors_from_onnx_model",
    "create_onnx_model_from_input_tensors",
    "open_dump",
    "read_dump",
]
