"""
State, lifted: a stream in pieces
=================================

A model that keeps something between calls has no ONNX form, because a graph keeps nothing.
Lifted, what it keeps is an input and an output, and the program carries it on.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import torchferry as tf


class Echo(torch.nn.Module):
    """An echo of 40 samples: the tail of each piece is kept for the next."""

    def __init__(self):
        super().__init__()
        self.register_buffer("tail", torch.zeros(1, 40))
        self.pieces = 0

    def forward(self, x):
        whole = torch.cat([self.tail, x], 1)
        self.tail = whole[:, -40:]
        self.pieces += 1
        return x + 0.5 * whole[:, : x.shape[1]]


sets = [(torch.rand(1, 100),), (torch.rand(1, 64),)]

# %%
# Refused by name, with the way out
# ---------------------------------

try:
    tf.export(Echo(), sets)
except tf.FerryError as error:
    print(type(error).__name__, error, f"[{error.code}]")

# %%
# Lifted
# ------
# The report compares several calls in a row, as a stream would make them.

stream = tf.export(Echo(), sets, state="lift")
stream.report

# %%
# Run the stream
# --------------
# One piece after the other: the program has the state, and ``reset()`` begins again.

sound = torch.sin(torch.arange(400) / 6)[None] * torch.linspace(1, 0, 400)
pieces = [stream(piece) for piece in sound.split(50, 1)]
played = torch.cat(pieces, 1)

model = Echo()
expected = torch.cat([model(piece) for piece in sound.split(50, 1)], 1)
print(tf.string_diff(tf.max_diff(expected, played)), stream.state["pieces"])
stream.reset()

figure, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
axes.plot(sound[0], color="#999999", label="input")
axes.plot(played[0], color="#0072b2", label="onnxruntime, 8 pieces")
axes.legend()
figure

# %%
# In another language
# -------------------
# The graph has inputs ``state.NAME`` and outputs ``state_next.NAME``; the values before the
# first call stand in the metadata (:doc:`/reference/files`).

print(
    [one.name for one in stream.model.graph.inputs],
    [one.name for one in stream.model.graph.outputs],
)
path = stream.save(Path(tempfile.mkdtemp()) / "echo.onnx")
print(tf.string_type(tf.run(path, sound[:, :50]), with_shape=True))
