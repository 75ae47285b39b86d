"""
A loop over a dynamic size becomes a scan
=========================================

``for t in range(x.shape[1])`` stops other exporters, or is unrolled for the length of the
example. Here the function is rewritten for the capture, and the ONNX graph has one ``Scan`` for
every length.
"""

import torch

import torchferry as tf


class Smooth(torch.nn.Module):
    """Exponential smoothing, written as one would."""

    def forward(self, x, rate: float = 0.3):
        level = x[:, 0]
        out = torch.zeros_like(x)
        for t in range(x.shape[1]):
            level = rate * x[:, t] + (1 - rate) * level
            out[:, t] = level
        return out


program = tf.export(Smooth(), [(torch.rand(2, 5, 3),), (torch.rand(3, 9, 3),)])
program.report

# %%
# The diff
# --------
# The report shows what was rewritten. The user's file is not touched, and the result counts only
# because it computes what the model does.

print(program.report.data["rewritten"])

# %%
# One graph for all lengths
# -------------------------

print([node.op_type for node in program.model.graph])
for length in (1, 4, 40):
    x = torch.rand(2, length, 3)
    print(length, tf.string_diff(tf.max_diff(Smooth()(x), program(x))))

# %%
# ``rewrite=False`` leaves the code alone; then the dimension is fixed, and reported with its
# line.

refused = tf.export(Smooth(), [(torch.rand(2, 5, 3),), (torch.rand(3, 9, 3),)], rewrite=False)
print(refused.report.ok, "–", refused.report.problems[0].split(". ")[0])
