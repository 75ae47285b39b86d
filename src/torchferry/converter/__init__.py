"""An exported program as an ONNX model: names, dimensions and provenance are the user's."""

from torchferry.converter.convert import convert, convert_with_torch, to_onnx
from torchferry.converter.dimension import name_dimensions

__all__ = ["convert", "convert_with_torch", "name_dimensions", "to_onnx"]
