"""An exported program as an ONNX model: names, dimensions and provenance are the user's."""

from torchferry.converter.block import Block
from torchferry.converter.convert import convert, convert_with_torch
from torchferry.converter.dimension import name_dimensions
from torchferry.converter.lowering import lowers

__all__ = ["Block", "convert", "convert_with_torch", "lowers", "name_dimensions"]
