"""
My export fails
===============

Find your message on the left, do what stands on the right; the sections below show each with
real output. The command line ends a message with a code, such as ``[TF-U319]``, and an exception
has it as ``error.code``: its cause and cure are in :doc:`/reference/errors`.

.. list-table:: Where to begin
   :header-rows: 1
   :widths: 40 60

   * - what you see
     - what to do
   * - ``no call … was recorded``, ``give two or more`` input sets
     - run the model twice with different sizes: :doc:`/auto_guides/g01_start`
   * - a dimension is *fixed* by a line
     - keep the size symbolic there, or let torchferry rewrite it (below: *A loop*)
   * - ``Could not guard on data-dependent expression``, a branch on a tensor
     - it is rewritten if it can be (below: *A branch on a value*); else
       :doc:`/auto_guides/g06b_branches`
   * - no idea which module it is
     - ``torchferry diagnose MODEL`` (below: *Which module?*)
   * - ``MissingLowering``, an operator without an ONNX form
     - write a lowering of three lines: :doc:`/auto_guides/g11_custom_operators`
   * - ``forward writes to``, state in buffers
     - ``state="lift"``: :doc:`/auto_gallery/p05_state`
   * - the inputs of ``forward`` are not known
     - `observe` or `steal_forward` around the code that calls it: :doc:`/auto_guides/g02_llm`
   * - it exports, and onnxruntime refuses the file
     - ``--target onnx``; the error names the node
   * - it exports, and the numbers differ
     - :doc:`/auto_guides/g07_my_numbers_differ`
"""

# %%
# Which module?
# -------------
# `diagnose` runs the model, exports it, and where that fails exports the parts, until it knows
# the smallest ones that fail. It says for each the line and what to write instead.

import torch

import torchferry as tf


class Gate(torch.nn.Module):
    """Asks a tensor for its value."""

    def forward(self, x):
        if x.mean() > 0:
            return x * 2
        return x - 1


class Block(torch.nn.Module):
    """A good layer and a bad one."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.gate = Gate()

    def forward(self, x):
        return self.gate(torch.relu(self.linear(x)))


model = torch.nn.Sequential(Block(), torch.nn.Linear(8, 3)).eval()
inputs = [(torch.randn(n, 8),) for n in (2, 5)]
diagnosis = tf.diagnose(model, inputs)
print(diagnosis)

# %%
# ``reproduce="folder"`` writes a script for each culprit that fails in the same way, to put into
# an issue. ``export_rest="rest.onnx"`` exports everything else, with the culprit left in
# PyTorch.
#
# The same step by step
# ---------------------
# The tree of modules can be tried by hand: `CustomOpStrategy` says which modules stand as one
# operator.

tree = tf.trace_execution_piece_by_piece(model, inputs)
assert isinstance(tree, tf.ModelDiagnoseOutput)
status = tree.try_export(replace_by_custom_op=tf.CustomOpStrategy.ONLY_IF_FAILING)
print(isinstance(status, tf.StatusExport), status.status, "because of", *status.blame)
assert status.status & tf.StatusExportCode.OK_CHILDC
tree

# %%
# What ``capture`` tried
# ----------------------
# Without diagnosis the error has every strategy and what it said. (``rewrite=False`` leaves the
# branch as it is; otherwise the capture works, as a section below shows.)

try:
    tf.capture(model, tf.Observation.from_inputs(model, inputs), rewrite=False)
except tf.CaptureError as error:
    print(error, f"[{error.code}]\n")
    for strategy, reason in error.attempts:
        print("*", strategy, "→", reason.splitlines()[0][:90])

# %%
# A branch on a value
# -------------------
# ``if x.sum() > 0`` asks a tensor for its value. torchferry rewrites the function for the
# capture, with ``torch.cond``, and shows the diff. It counts only if the result computes what
# the model does.


class Flip(torch.nn.Module):
    """One of two branches."""

    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1


flip = tf.export(Flip(), [(torch.randn(2, 3),), (torch.randn(4, 3),)])
print(flip.report.verdict)
print(flip.report.data["rewritten"])

# %%
# A loop
# ------
# A loop over a dynamic size becomes a scan.


class Recurrent(torch.nn.Module):
    """A recurrence by hand."""

    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = torch.tanh(h + x[:, t])
        return h


recurrent = tf.export(Recurrent(), [(torch.rand(2, 5, 3),), (torch.rand(3, 7, 3),)])
print(recurrent.report.verdict)

# %%
# Code of PyTorch or transformers
# -------------------------------
# What stands in the way there is patched while the model is captured: :doc:`/reference/patches`.
# Around code of your own, use the context manager.

with tf.torch_export_patches() as patching:
    exported = torch.export.export(torch.nn.Linear(3, 2), (torch.rand(2, 3),))
print(len(patching.applied), "patches were in force,", len(patching.hit), "were hit")
