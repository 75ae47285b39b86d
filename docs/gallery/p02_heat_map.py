"""
The heat map of a graph
=======================

Every value that `compare` aligned has an error. Laid out as the graph, with a colour for the
error, they show where a difference is born and how it spreads.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import torchferry as tf

# %%
# Half precision against single precision
# ---------------------------------------
# The same network with float16 weights, run beside the float32 one. Nothing is wrong here: the
# map shows how rounding grows with depth, and where a residual connection carries it on.


class Block(torch.nn.Module):
    """A residual block."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.up = torch.nn.Linear(32, 64)
        self.down = torch.nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


torch.manual_seed(0)
model = torch.nn.Sequential(*(Block() for _ in range(4))).eval()
rounded = torch.nn.Sequential(*(Block() for _ in range(4))).eval()
rounded.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})
inputs = (torch.randn(8, 32),)

folder = Path(tempfile.mkdtemp())
tf.to_onnx(rounded, inputs).save(folder / "rounded.onnx")
found = tf.compare(model, folder / "rounded.onnx", inputs)
print(found.verdict)

# %%
# The weights themselves are named first: they are not the model's.

for difference in found.weights[:3]:
    print(difference.name, difference.index, difference.expected, difference.got)

# %%
# The map
# -------
# ``found.graph`` has the nodes with what they read. The depth of a node is the longest way to
# it.

errors = {row.node: row.error.abs for row in found.rows}
depth, column, places = [], {}, []
for vertex in found.graph:
    level = 1 + max((depth[place] for place in vertex.reads), default=-1)
    depth.append(level)
    column[level] = column.get(level, -1) + 1
    places.append((level, -column[level]))

figure, axes = plt.subplots(figsize=(7.4, 2.8), layout="constrained")
for number, vertex in enumerate(found.graph):
    for place in vertex.reads:
        axes.plot(*zip(places[place], places[number], strict=True), color="#bbbbbb", zorder=1)
values = [np.log10(max(errors.get(vertex.node, 1e-8), 1e-8)) for vertex in found.graph]
points = axes.scatter(*zip(*places, strict=True), c=values, cmap="viridis", s=60, zorder=2)
figure.colorbar(points, label="log10 of the largest difference")
axes.set(xlabel="depth", yticks=[], title="where the error is born")
figure

# %%
# The same nodes as a picture with names: `plot_dot` draws any ONNX model, `draw_svg` without
# matplotlib.

small = tf.to_onnx(model[0], inputs)
print(tf.draw_svg(small.model)[:60], "…")
tf.plot_dot(small.model, engine=None, figsize=(4, 6))
