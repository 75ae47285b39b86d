"""
Random, tied, or wrong?
=======================

Some outputs differ for a good reason. A tool that says *differs* for dropout, or for the order
of equal scores, teaches people to ignore it. Here each has its own word.
"""

import torch

import torchferry as tf

# %%
# Dropout in training mode
# ------------------------
# PyTorch disagrees with itself, so there is nothing to hold the ONNX side to: the export is
# refused.

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
sets = [(torch.rand(2, 8),), (torch.rand(5, 8),)]
try:
    tf.export(model.train(), sets)
except tf.LoweringFailed as error:
    print(str(error).splitlines()[0])

# %%
# Noise that belongs to the model
# -------------------------------
# One output is random, the other is not: that one is still verified.


class Noisy(torch.nn.Module):
    """A sample and its mean."""

    def forward(self, x):
        mean = x.tanh()
        return mean, mean + torch.randn_like(mean)


noisy = tf.export(Noisy().eval(), sets)
print(noisy.report.verdict)

# %%
# Ties
# ----
# Equal scores may come in any order. The order of the reference is taken for both sides, and all
# that follows is compared.


class Best(torch.nn.Module):
    """The three largest scores and their positions; some scores are equal."""

    def forward(self, x):
        return tuple(torch.topk(x.round(), 3))


ties = [(torch.rand(4, 9) * 3,), (torch.rand(6, 9) * 3,)]
best = tf.export(Best().eval(), ties)
print(best.report.verdict)
found = tf.compare(Best().eval(), best, ties[0])
print(found.verdict)

# %%
# Wrong
# -----
# And this is a fault: the file belongs to another model.


class Worst(torch.nn.Module):
    """The three smallest."""

    def forward(self, x):
        return tuple(torch.topk(x.round(), 3, largest=False))


print(tf.compare(Worst().eval(), best, ties[0]).verdict)
