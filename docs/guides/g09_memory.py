"""
It does not fit in memory
=========================

Three ways to need less: weights are views and are written one at a time; a checkpoint can be
referred to instead of copied; and a model that cannot be run at all can still be exported,
unverified.
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
# For a model that is larger than memory add ``--no-verify``: then it is not run, and the report
# says that nothing was verified. Verify a model of the same configuration with fewer layers
# first: ``num_hidden_layers`` set to 2 in a copy of ``config.json`` is a folder that exports
# with random weights.
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
