"""``torch.compile`` on onnxruntime: a session for each graph, PyTorch where there is none."""

from torchferry.compiler.backend import onnx_custom_backend

__all__ = ["onnx_custom_backend"]
