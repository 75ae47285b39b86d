"""An exported program as an ONNX model: names, dimensions and provenance are the user's.

Read `convert` and `translate` (a whole program), `driver` (the walk), `block` and `lowering` (how
an operator is written), then the folders: `program` (before the walk), `write` (what lowerings
write with), `ops` (the lowerings, a file a family; `ops/rare` last).
"""

from torchferry.converter.block import Block
from torchferry.converter.convert import convert, convert_with_torch
from torchferry.converter.lowering import lowers
from torchferry.converter.write.dimension import name_dimensions

__all__ = ["Block", "convert", "convert_with_torch", "lowers", "name_dimensions"]
