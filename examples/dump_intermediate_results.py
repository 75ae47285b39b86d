"""
Dump what goes in and out of the parts of a model
=================================================

Store what goes in and out of the parts of a model, read it back, and check an ONNX file by it::

    python examples/dump_intermediate_results.py [FOLDER]

Files are written to FOLDER, the current one by default.
"""

import sys
import tempfile
from pathlib import Path

import torch

import torchferry as tf

on_a_page = "sphinx_gallery" in sys.modules  # where nobody gives a folder
folder = Path(tempfile.mkdtemp()) if on_a_page else Path(sys.argv[1] if sys.argv[1:] else ".")

# %%
# A decoder of one layer
# ----------------------
# Small enough to be read as a whole.

model, inputs, dynamic_shapes = tf.dummy_llm(dynamic_shapes=True)
print(f"type(model)={type(model)}")
print(f"inputs={tf.string_type(inputs, with_shape=True)}")
print(f"ds={tf.string_type(dynamic_shapes, with_shape=True)}")

# %%
# These are its parts.

for name, module in model.named_modules():
    print(f"- {name}: {type(module)}")

# %%
# Dump
# ----
# Every call of the parts named here is printed, and what it is given and returns is stored. With
# ``submodules=True``, ``("model", model)`` alone would watch them all.

parts = ("attention", "feed_forward", "norm_1", "norm_2")
watched = [
    ("model", model),
    ("model.decoder", model.decoder),
    *((f"model.decoder.{part}", model.decoder.get_submodule(part)) for part in parts),
]
dump = folder / "intermediate_results.onnx"
with tf.steal_forward(watched, dump_file=dump, verbose=1, storage_limit=2**28):
    model(*inputs)

# %%
# Read it back
# ------------
# The dump is an ONNX model that returns what was stored: viewers show it, any runtime runs it,
# and this gives the values back. A key is the name of the part, the number of its call, and I
# for inputs, which are ``(args, kwargs)``, or O for outputs.

saved = tf.create_input_tensors_from_onnx_model(dump)
for key, value in saved.items():
    print(f"{key} -- {tf.string_type(value, with_shape=True)}")

# %%
# Check the ONNX model by it
# --------------------------
# The dimensions are dynamic that differ between two calls.

with tf.observe(model) as seen:
    model(*inputs)
    model(torch.randint(0, 1024, (3, 12)))
onnx = tf.export(model, seen)
print(onnx.report.verdict)
onnx.save(folder / "dummy_llm.onnx")

# %%
# What was stored tells whether another runtime computes the same.

args, kwargs = saved["model", 0, "I"]
difference = tf.max_diff(saved["model", 0, "O"], onnx(*args, **kwargs))
print(f"largest difference below 1e-5: {difference['abs'] < 1e-5}")

# %%
# Draw it
# -------
# As an SVG file, which needs nothing, or with matplotlib.

(folder / "dummy_llm.svg").write_text(tf.draw_svg(onnx.model), "utf-8")
if on_a_page:
    tf.plot_dot(onnx.model, engine=None, figsize=(5, 12))
