"""Run a model on onnxruntime with the nested arguments and outputs of the PyTorch model."""

from torchferry.runner.session import Session, run

__all__ = ["Session", "run"]
