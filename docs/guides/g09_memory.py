"""
It does not fit in memory
=========================

Three ways to need less: weights are views and are written one at a time; a checkpoint can be
referred to instead of copied; and a model that cannot be run as a whole is verified by layers.
"""

# %%
# A checkpoint
# ------------
# A small one here, written as transformers writes large ones: ``config.json`` and safetensors.
#
# ``sh`` runs a command and prints what it prints: :download:`shell.py </_ext/shell.py>`, to be put
# beside this file.

import tempfile
from pathlib import Path

import torch
import transformers
from shell import sh

folder = Path(tempfile.mkdtemp())
config = transformers.LlamaConfig(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
torch.manual_seed(0)
transformers.LlamaForCausalLM(config).save_pretrained(folder / "checkpoint")
print(sorted(path.name for path in (folder / "checkpoint").iterdir()))

# %%
# Refer to the weights
# --------------------
# With ``--weights reference`` the ONNX file points into the safetensors file, which gets a
# second name (a hard link) in the output. No weight is read into memory or copied.

sh("torchferry export checkpoint -o out --weights reference", folder)

# %%
# ``model.onnx`` is small, and the weights are the checkpoint's own file:

for path in sorted((folder / "out").iterdir()):
    print(f"{path.name:24} {path.stat().st_size:9} bytes, {path.stat().st_nlink} names")

# %%
# The same from Python: `deliver` does what the command does, and returns its `Report`.

import torchferry as tf
from torchferry.exporter.deliver import deliver

report = deliver(str(folder / "checkpoint"), folder / "linked", weights="reference")
assert report.ok
print(report.verdict.partition(": ")[2])
print(len(tf.load(folder / "linked").model.graph), "nodes")

# %%
# A model of your own, without weights in memory
# ----------------------------------------------
# A module on the ``meta`` device has shapes and no data. It is converted as it is;
# `bind_weights` then points the graph into the checkpoint's files by name. Nothing is verified on
# the way, since there is nothing to run: compare the file once with a machine that can load it.

from safetensors.torch import save_file

from torchferry.graph import bind_weights
from torchferry.graph.io import save


class Encoder(torch.nn.Module):
    """An embedding and three layers."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(1000, 64)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


for name in ("weights", "bound"):
    (folder / name).mkdir()
real = Encoder().eval()
save_file(real.state_dict(), folder / "weights/model.safetensors")

with torch.device("meta"):
    empty, tokens = Encoder().eval(), torch.zeros(2, 7, dtype=torch.int64)
program = tf.to_onnx(empty, (tokens,), dynamic_shapes={"tokens": {0: "batch", 1: "length"}})
files = bind_weights(program.model, folder / "weights")
save(program.model, folder / "bound/model.onnx", regions=files)

tokens = torch.randint(0, 1000, (3, 5))
print(tf.max_diff(real(tokens), tf.load(folder / "bound/model.onnx")(tokens)))

# %%
# Verify by layers
# ----------------
# A whole verification holds the model twice, in PyTorch and in onnxruntime. By layers it needs
# the memory of one layer: the ONNX model is cut where its layers begin, each piece is given the
# values that PyTorch has there, and what it makes of them is compared, at the recorded sizes and
# at others.

sh("torchferry export checkpoint -o by-layers --weights reference --verify layers", folder)

# %%
# Layers that are the same are run once. That needs proof: program and ONNX model have the same
# nodes for both, each weight in the file is the model's, byte for byte, and both layers read and
# make values that correspond. A layer for which any of this fails is run, so that a wrong weight,
# operator or wire is found where it is, and named. PyTorch runs all layers at each set of sizes,
# those that are the same with the weights of one of them. If all weights take less than half of
# the available memory, the smallest recorded call also runs from end to end. The report's
# *Layers* says what was run and what follows from it.
#
# torchferry chooses this way by itself if a whole session may not fit; ``--verify whole`` insists
# on the other. A checkpoint that is larger than half of the available memory is not run to make
# inputs either: tokens and caches are drawn, unless ``--inputs`` gives some.
#
# A model that draws random numbers is verified as a whole only. ``--no-verify`` leaves out all of
# it; the report then says that nothing was verified.
#
# Copies
# ------
# Without the option a weight is copied once: from the memory it lies in to ``model.onnx_data``,
# one tensor at a time. Tied weights are stored once. The report's *Steps* has the peak memory of
# each step.
#
# Two gigabytes
# -------------
# A protobuf file cannot be larger, which is why the weights stand beside it. Copy both files
# together; `torchferry.load` says it if one is missing.
