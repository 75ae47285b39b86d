"""
Somebody changed a weight
=========================

A file that was quantized, edited or saved from another checkpoint has other weights than the
model. Before any value is computed `compare` holds each initializer to the parameter it stands
for: transposed, fused or packed forms too.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

import torchferry as tf

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv1d(4, 8, 3),
    torch.nn.BatchNorm1d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(64, 5),
).eval()
inputs = (torch.randn(3, 4, 10),)
folder = Path(tempfile.mkdtemp())
tf.to_onnx(model, inputs).save(folder / "model.onnx")

# %%
# One number
# ----------
# One of 320 numbers of a matrix is changed, by one percent.

proto = onnx.load(folder / "model.onnx")
tensor = next(one for one in proto.graph.initializer if list(one.dims) in ([5, 64], [64, 5]))
array = numpy_helper.to_array(tensor).copy()
array.flat[17] *= 1.01
tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
onnx.save(proto, folder / "changed.onnx")

# %%
# Found
# -----
# The outputs are still within the limits of rounding here, and the weight is named all the same.

found = tf.compare(model, folder / "changed.onnx", inputs)
print(found.verdict)
for weight in found.weights:
    print(
        f"{weight.name}{list(weight.index)}: expected {weight.expected:.6f}, got {weight.got:.6f}"
    )
    print(f"{weight.wrong} of {weight.size} numbers differ; read by {weight.node}")
assert found.weights[0].name == "4.weight"
assert found.weights[0].wrong == 1

# %%
# The good file has none.

assert not tf.compare(model, folder / "model.onnx", inputs).weights
