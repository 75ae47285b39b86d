"""
Ship it: a folder that runtimes load
====================================

An export is a verified file. What is shipped is a folder: graphs in several precisions, the
configuration, the tokenizer. ``torchferry deploy`` writes it, runs it in every runtime that is
installed, and says what each precision costs. The whole story is in :doc:`/deploy`.
"""

import tempfile
from pathlib import Path

import torch

import torchferry as tf

folder = Path(tempfile.mkdtemp()) / "tiny"
report = tf.deploy("zoo:tiny-llm", folder, runtimes="onnxruntime", precisions="fp32,int8")
print(report)

# %%
# The layout is that of a Hugging Face repository.

for file in sorted(path for path in folder.rglob("*") if path.is_file()):
    print(f"{file.stat().st_size / 2**20:8.2f} MiB  {file.relative_to(folder)}")

# %%
# Generating with it
# ------------------
# A deployed decoder has transformers' ``generate``; the cache stays in onnxruntime.

decoder = tf.load(folder)
tokens = torch.tensor([[1, 5, 9, 2]])
print(decoder.generate(tokens, max_new_tokens=8, do_sample=False))
