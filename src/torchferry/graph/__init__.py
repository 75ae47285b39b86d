"""What onnx_ir lacks; nothing here loads torch."""

from torchferry.graph.binding import bind_weights
from torchferry.graph.dot import dot_text
from torchferry.graph.draw import draw_svg
from torchferry.graph.outline import Outline, outline
from torchferry.graph.plot import plot_dot, plot_legend

__all__ = ["Outline", "bind_weights", "dot_text", "draw_svg", "outline", "plot_dot", "plot_legend"]
