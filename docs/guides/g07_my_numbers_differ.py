"""
My numbers differ
=================

The export worked, and an output is not what PyTorch gives. This page goes from the output to the
node that made the difference, and tells rounding, randomness, ties and faults apart.

.. list-table:: Where to begin
   :header-rows: 1
   :widths: 45 55

   * - what the report says
     - what it means
   * - *rounding*
     - both sides are as near to float64 as PyTorch is: no fault
   * - *random*
     - PyTorch gives other numbers each time: dropout in training mode, or random operators
   * - *incomparable*
     - it depends on a random choice of one side
   * - *differs*
     - a fault: go on below
   * - NaN on one side
     - a row that a mask hides as a whole, or float16 that overflows
"""

# %%
# A model and a file that is wrong
# --------------------------------
# To have a fault to look for, one node of a good ONNX file is changed: the epsilon of a
# normalization.

import tempfile
from pathlib import Path

import onnx
import torch

import torchferry as tf


class Block(torch.nn.Module):
    """Normalization, a hidden layer, and the input again."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


torch.manual_seed(0)
model = torch.nn.Sequential(Block(), Block(), Block()).eval()
inputs = (torch.randn(2, 16) * 0.1,)
folder = Path(tempfile.mkdtemp())
program = tf.export(model, [inputs, (torch.randn(5, 16),)])
program.save(folder / "good.onnx")
proto = onnx.load(folder / "good.onnx")
node = [one for one in proto.graph.node if one.op_type == "LayerNormalization"][1]
next(a for a in node.attribute if a.name == "epsilon").f = 1e-2
onnx.save(proto, folder / "bad.onnx")

# %%
# Which value goes wrong first?
# -----------------------------
# `compare` runs both side by side on the same inputs, aligns every value of the graph with one
# of the model, and names the first that differs: its node, module and line. ``cut`` writes that
# node alone, with its inputs, as a model of one node.

found = tf.compare(model, folder / "bad.onnx", inputs, cut=folder / "fault.onnx")
print(found.verdict)
first = found.first
print(first.node, first.op_type, "in", first.layer, first.line)
print("expected", first.expected)
print("got     ", first.got)
assert first.node == node.name

# %%
# A picture of it: the error of each value, in the order of the graph.

import matplotlib.pyplot as plt

errors = [max(row.error.abs, 1e-9) for row in found.rows]
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
axes.semilogy(errors, marker=".", color="#0072b2")
place = [row.name for row in found.rows].index(first.name)
axes.axvline(place, color="#d55e00", linestyle="--", label=first.node)
axes.set(xlabel="value, in the order of the graph", ylabel="largest difference")
axes.legend()
figure

# %%
# A value that is wrong makes all after it wrong. ``feed="torch"`` gives each node the model's
# own values, so that only the nodes that are at fault themselves stand out.

fed = tf.compare(model, folder / "bad.onnx", inputs, feed="torch")
print([row.node for row in fed.rows if row.verdict == "differs"])

# %%
# The same from the command line: ``torchferry compare MODEL bad.onnx --cut fault.onnx --html
# page.html``. The page shows the graph around the fault.
#
# Is it rounding?
# ---------------
# Two float32 programs never agree to the last bit. A difference is *rounding* if the ONNX side
# is as near to the result in float64 as PyTorch is, or if PyTorch itself moves as far when it
# rounds in another order. The limits scale with the values: `max_diff` has the plain numbers.

difference = tf.max_diff(model(*inputs), program(*inputs))
print(tf.string_diff(difference))
difference

# %%
# Is it the optimizer of onnxruntime?
# -----------------------------------
# The same file at two levels of onnxruntime's graph optimizations. An ONNX model can stand in
# the place of the PyTorch model.

levels = tf.compare(folder / "good.onnx", folder / "good.onnx", level="all", against="none")
print(levels.verdict)

# %%
# Which step brought it in?
# -------------------------
# ``bisect=True`` compares after each step (capture, conversion, each rewrite, onnxruntime) and
# names the one after which the outputs differ.

steps = tf.compare(model, program, inputs, bisect=True)
print([(stage.name, stage.ok) for stage in steps.stages])

# %%
# Without the model: a dump
# -------------------------
# Where the model cannot run beside onnxruntime (another machine, a GPU), dump its values there
# with `steal_forward` and compare with the dump here.

with tf.steal_forward(model, submodules=True, dump_file=folder / "values.onnx", fprint=None):
    model(*inputs)
print(tf.compare(folder / "values.onnx", folder / "bad.onnx").first.node)
