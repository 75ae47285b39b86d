"""
Start here: a verified export in five minutes
=============================================

This page takes a small model from PyTorch to ONNX Runtime, reads the report, and does the same
from the command line. torchferry needs Python 3.11 or newer: ``pip install torchferry`` from a
clone or a wheel, or ``make demo`` in the repository.
"""

# %%
# A model
# -------
# Any module will do. This one classifies sequences of any length, with a mask for padding.

import tempfile
from pathlib import Path

import torch

import torchferry as tf


class Classifier(torch.nn.Module):
    """The mean of what is not padding, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(100, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = torch.nn.Linear(32, 3)

    def forward(self, tokens, mask):
        x = self.layer(self.embed(tokens), src_key_padding_mask=~mask)
        weight = mask.unsqueeze(-1).to(x.dtype)
        return self.head((x * weight).sum(1) / weight.sum(1))


torch.manual_seed(0)
model = Classifier().eval()

# %%
# Watch it run
# ------------
# Run the model at least twice, with different sizes. What differs between the calls is dynamic;
# nobody has to write ``dynamic_shapes``. The dimensions get names, and each has a reason.

with tf.observe(model) as seen:
    for batch, length in ((2, 7), (3, 12)):
        tokens = torch.randint(0, 100, (batch, length))
        model(tokens, torch.ones(batch, length, dtype=torch.bool))

seen

# %%
# Export
# ------
# `export` captures the model with ``torch.export``, converts it, simplifies the graph, and then
# runs the ONNX model in onnxruntime beside the PyTorch model: on the calls above, and on others
# of sizes that the export has not seen, batch 1 among them.

program = tf.export(model, seen)
program.report

# %%
# Read the report, picture by picture
# -----------------------------------
# The verdict first. It is green only if every output agrees at every size that was tried, and it
# says at how many, and how far apart the two models are. The links below it lead to the parts.
#
# .. image:: /_static/report/verdict-light.webp
#    :class: only-light
#    :alt: The head of a report: a green band says OK and how many outputs agree
#
# .. image:: /_static/report/verdict-dark.webp
#    :class: only-dark
#    :alt: The head of a report: a green band says OK and how many outputs agree
#
# **Dynamic dimensions** has each dimension with a name, a verdict, the sizes at which the two
# models agree, and the inputs that have it. *verified* means at several sizes that were not
# recorded; *verified where* adds a condition; *fixed* names the line that fixed it.
#
# .. image:: /_static/report/dimensions-light.webp
#    :class: only-light
#    :alt: A table of two dimensions, both verified, with the sizes that agree
#
# .. image:: /_static/report/dimensions-dark.webp
#    :class: only-dark
#    :alt: A table of two dimensions, both verified, with the sizes that agree
#
# **Outputs against PyTorch** has the largest difference of each output, absolute and relative,
# and the sizes at which it is. The sentence below it says how much was allowed.
#
# .. image:: /_static/report/outputs-light.webp
#    :class: only-light
#    :alt: A table with the largest difference of the output and its verdict, equal
#
# .. image:: /_static/report/outputs-dark.webp
#    :class: only-dark
#    :alt: A table with the largest difference of the output and its verdict, equal
#
# **Sizes tried** lists every run. *recorded* are the calls above; *made* are inputs of other
# sizes, made from them.
#
# .. image:: /_static/report/sizes-light.webp
#    :class: only-light
#    :alt: A table of six runs, two recorded and four made, all equal
#
# .. image:: /_static/report/sizes-dark.webp
#    :class: only-dark
#    :alt: A table of six runs, two recorded and four made, all equal
#
# If something is wrong the band is red, and **Problem** has a sentence for each fault: what, at
# which line of your code, and what to write instead.
#
# .. image:: /_static/report/problem-light.webp
#    :class: only-light
#    :alt: The head of a report that failed: a red band, and a sentence with the line at fault
#
# .. image:: /_static/report/problem-dark.webp
#    :class: only-dark
#    :alt: The head of a report that failed: a red band, and a sentence with the line at fault
#
# ``report.ok`` is the verdict for a program, and ``report.data`` the same facts as JSON types.

assert program.report.ok
[(row["name"], row["status"], row["agreed"]) for row in program.report.data["dimensions"]]

# %%
# Call it and save it
# -------------------
# The program takes the model's own arguments and returns what the model returns.

tokens = torch.randint(0, 100, (1, 5))
mask = torch.ones(1, 5, dtype=torch.bool)
print(tf.max_diff(model(tokens, mask), program(tokens, mask)))

folder = Path(tempfile.mkdtemp())
program.save(folder / "classifier.onnx")
again = tf.load(folder / "classifier.onnx")
print(again(tokens, mask), isinstance(again, tf.OnnxProgram))

# %%
# ``classifier.onnx`` is plain ONNX: every tool reads it. How the arguments are nested stands in
# its metadata, which is why `load` gives back a function of the same arguments.
#
# The same from the command line
# ------------------------------
# Put the model and its inputs in a function. ``torchferry export FILE.py:FUNCTION -o OUT``
# writes ``OUT/model.onnx``, its weights, and the report as a page, ``OUT/report.html``.
#
# ``sh`` runs a command and prints what it prints: :download:`shell.py </_ext/shell.py>`, to be put
# beside this file.

from shell import sh

(folder / "model.py").write_text(
    """
import torch

def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    return model.eval(), [(torch.randn(2, 16),), (torch.randn(5, 16),)]
""",
    "utf-8",
)
sh("torchferry export model.py:make -o out", folder)

# %%
# The exit code is 0 only if everything agrees: 1 means that a check failed, and then the files go
# to ``out.failed`` while an earlier ``out`` stays as it was.
#
# Where to go on
# --------------
# * a decoder with a cache: :doc:`/auto_guides/g02_llm`
# * the export is refused: :doc:`/auto_guides/g06_my_export_fails`
# * the numbers differ: :doc:`/auto_guides/g07_my_numbers_differ`
# * every option: :doc:`/reference/commands`
