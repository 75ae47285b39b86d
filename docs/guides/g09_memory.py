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
