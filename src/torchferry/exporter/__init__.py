"""The whole walk: from a model to a verified ONNX file and a report.

Read `export` (the walk) and `conversion` (`to_onnx`, without it), then the folders: `verify` (at
which sizes it is right), `tell` (the report).
"""

from torchferry.exporter.conversion import to_onnx
from torchferry.exporter.export import export
from torchferry.exporter.program import OnnxProgram, load
from torchferry.judge.tolerance import Tolerance

__all__ = ["OnnxProgram", "Tolerance", "export", "load", "to_onnx"]
