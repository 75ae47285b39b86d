"""
A fault of one node, cut out of a decoder
=========================================

One node of a decoder's ONNX file is changed. `compare` names it among hundreds, from the outputs
alone, and writes it as a model of one node with its inputs: the smallest thing to look at, or to
report.
"""

import inspect
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import onnx
import onnxruntime
import torch

import torchferry as tf

torch.manual_seed(0)
data = tf.get_tiny_llm()
model, inputs = data["model"].eval(), data["inputs"]
if "cache" in inspect.signature(model.forward).parameters:  # its name since transformers 5.24
    inputs["cache"] = inputs.pop("past_key_values")
folder = Path(tempfile.mkdtemp())

# %%
# The fault
# ---------
# `to_onnx` converts one call. Then the rotation of the keys loses a sign: a Neg becomes an
# Identity, a mistake that keeps all shapes, so that nothing complains.

program = tf.to_onnx(model, (), inputs)
program.save(folder / "good.onnx")
proto = onnx.load(folder / "good.onnx")
turn = [node for node in proto.graph.node if node.op_type == "Neg"][-1]
turn.op_type = "Identity"
onnx.save(proto, folder / "bad.onnx")
print(len(proto.graph.node), "nodes; changed:", turn.name)

# %%
# The search
# ----------

found = tf.compare(model, folder / "bad.onnx", ((), inputs), cut=folder / "cut.onnx")
first = found.first
print(first.node, first.op_type, "in", first.layer)
assert first.node == turn.name
found.verdict

# %%
# What was cut out
# ----------------
# The cut runs by itself on the stored inputs; what is expected of it is stored too.

cut = onnx.load(folder / "cut.onnx")
print([node.op_type for node in cut.graph.node])
stored = tf.create_input_tensors_from_onnx_model(folder / "cut.inputs.safetensors")
session = onnxruntime.InferenceSession(str(folder / "cut.onnx"))
feeds = {name: value.numpy() for name, value in stored["inputs"].items()}
(got,) = session.run(None, feeds)
(expected,) = stored["expected"].values()
print(tf.string_diff(tf.max_diff(expected, torch.from_numpy(got))))

# %%
# The error of every value, in the order of the graph. Before the fault there is rounding only.

figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
axes.semilogy([max(row.error.abs, 1e-9) for row in found.rows], color="#0072b2")
axes.axvline([row.name for row in found.rows].index(first.name), color="#d55e00", linestyle="--")
axes.set(xlabel="value, in the order of the graph", ylabel="largest difference")
figure
