"""torch.export on real models: strategies in order, every attempt kept, fixed dimensions named."""

from torchferry.capturer.capture import Attempt, Captured, Fixed, capture, find_fixed
from torchferry.capturer.huggingface import accept_aliases
from torchferry.capturer.shapes import export_arguments

__all__ = [
    "Attempt",
    "Captured",
    "Fixed",
    "accept_aliases",
    "capture",
    "export_arguments",
    "find_fixed",
]
