"""Run a model on onnxruntime with the nested arguments and outputs of the PyTorch model."""

from torchferry.runner.kernels import nodes_without_kernel
from torchferry.runner.outputs import to_tensor
from torchferry.runner.session import Session, open_session, run

__all__ = ["Session", "nodes_without_kernel", "open_session", "run", "to_tensor"]
