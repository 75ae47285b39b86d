"""
How near did a rewrite come?
============================

A fusion that does not fire usually misses by one condition. ``torchferry optimize --explain
RULE`` says how near the rule came and which condition said no.

``sh`` runs a command and prints what it prints: :download:`shell.py </_ext/shell.py>`, to be put
beside this file.
"""

import tempfile
from pathlib import Path

import torch
from shell import sh

import torchferry as tf


class Scaled(torch.nn.Module):
    """GELU as some models write it: with a constant that is almost the square root of two."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x / 1.41))


class Exact(torch.nn.Module):
    """The same with the square root of two."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))


folder = Path(tempfile.mkdtemp())
x = torch.randn(2, 8)
for name, model in (("scaled", Scaled()), ("exact", Exact())):
    tf.to_onnx(model, (x,)).save(folder / f"{name}.onnx")

# %%
# The rule that fires
# -------------------

sh("torchferry optimize exact.onnx -o exact.opt.onnx --patterns default+onnxruntime", folder)

# %%
# The one that does not
# ---------------------

sh("torchferry optimize scaled.onnx -o scaled.opt.onnx --explain GeluErf", folder)

# %%
# :doc:`/reference/rules` lists every rule with its pattern and the reasons for which it
# declines.
