"""
My branch is refused
====================

``torch.export`` runs ``forward`` once, with tensors that have no values. An ``if`` on a value has
no answer then: ``Could not guard on data-dependent expression``. torchferry rewrites most such
branches by itself. This page is about the others: what the message looks like, and three ways to
write the code.

.. list-table:: Which one
   :header-rows: 1
   :widths: 45 55

   * - the branch
     - write
   * - both sides are cheap, and have one shape
     - ``torch.where``: computes both, picks element by element
   * - one side is expensive, or must not run
     - ``torch.cond``: an ``If`` in the graph, one side runs
   * - one side never happens with legal inputs
     - ``torch._check``: states what holds, and the branch is gone
   * - a number decides how *often* or how *much*
     - keep the number a tensor (below: *A list of values*)
   * - the number is a setting of the model
     - make it an argument or an attribute that is not a tensor
"""

# %%
# What needs no change
# --------------------
# A branch or a loop on a value, ``and``, ``or``, a conditional expression, a ``raise`` for bad
# values: each is rewritten for the capture, and the report shows the diff. It counts only if the
# result computes what the model does.

import torch

import torchferry as tf


class Flip(torch.nn.Module):
    """A conditional expression."""

    def forward(self, x):
        return x * 2 if x.sum() > 0 and x.max() < 3 else x - 1


torch.manual_seed(0)
inputs = [(torch.randn(n, 4),) for n in (2, 5)]
program = tf.export(Flip(), inputs)
print(program.report.verdict)
print(program.report.data["rewritten"])

# %%
# A refusal
# ---------
# Here a value makes the key of a dictionary, and no rewriting can follow what Python looks up. The
# message says why, and what each strategy of ``torch.export`` said.


class Choose(torch.nn.Module):
    """One of two layers."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        name = {True: "up", False: "down"}[bool(x.mean() > 0)]
        return getattr(self, name)(x)


def refusal(model):
    """The message of a capture that fails, without what each strategy said."""
    try:
        tf.export(model, inputs)
    except tf.CaptureError as error:
        why, advice, *_ = str(error).splitlines()
        print(why, advice.partition(" What each")[0], f"[{error.code}]", sep="\n")


refusal(Choose().eval())

# %%
# ``torch.where``: both sides
# ---------------------------
# ``float()`` takes a value out of its tensor, and torchferry makes an ``If`` of the branch that
# follows. Leave the value in a tensor, and pick: both sides are computed; the side that is not
# picked may even be NaN.


class Scale(torch.nn.Module):
    """Divides by the largest magnitude, if that is above 1."""

    def forward(self, x):
        scale = float(x.abs().max())
        if scale > 1.0:
            x = x / scale
        return x


class ScaleWhere(torch.nn.Module):
    """The same, as tensors."""

    def forward(self, x):
        scale = x.abs().max()
        return x / torch.where(scale > 1.0, scale, 1.0)


for model in (Scale(), ScaleWhere()):
    program = tf.export(model, inputs)
    print(program.report.verdict)
    print(*(node.op_type for node in program.model.graph))

x = 3 * torch.randn(7, 4)
assert torch.equal(program(x), Scale()(x))

# %%
# ``torch.cond``: one side
# ------------------------
# The layer that a value chooses, above, needs an operator that runs one of two.
#
# ``torch.cond(condition, if_true, if_false, arguments)`` becomes an ``If``: only one side runs.
# Both sides take the same arguments and return tensors of the same dtypes and ranks.


class ChooseCond(Choose):
    """The same, with both layers in the graph."""

    def forward(self, x):
        return torch.cond(x.mean() > 0, self.up, self.down, (x,))


chosen = ChooseCond().eval()
program = tf.export(chosen, inputs)
print(program.report.verdict)
print(*(node.op_type for node in program.model.graph))
print(tf.max_diff(chosen(-torch.ones(3, 4)), program(-torch.ones(3, 4))))

# %%
# ``torch._check``: what always holds
# -----------------------------------
# How many elements are kept is known only when the model runs. The question whether there are any
# is an ``If`` in the graph.


class Mean(torch.nn.Module):
    """The mean of the positive elements."""

    def forward(self, x):
        kept = x[x > 0]
        if kept.shape[0] == 0:
            return x.mean()
        return kept.mean()


program = tf.export(Mean(), inputs)
print(program.report.verdict)
assert torch.allclose(program(-torch.ones(3, 4)), Mean()(-torch.ones(3, 4)))

# %%
# If legal inputs always have a positive element, say so. The branch disappears.


class MeanChecked(torch.nn.Module):
    """The same, for inputs with a positive element."""

    def forward(self, x):
        kept = x[x > 0]
        torch._check(kept.shape[0] != 0)
        if kept.shape[0] == 0:
            return x.mean()
        return kept.mean()


program = tf.export(MeanChecked(), inputs)
print(program.report.verdict)

# %%
# Mind the difference: PyTorch raises when the statement is false, and an ONNX graph cannot. It
# goes on, here to the mean of nothing.

try:
    MeanChecked()(-torch.ones(3, 4))
except RuntimeError as error:
    print("PyTorch:", str(error).splitlines()[0])
print("ONNX:", program(-torch.ones(3, 4)))

# %%
# With a mask instead of a selection no size depends on values, and there is no branch at all.


class MeanMasked(torch.nn.Module):
    """The same, for all inputs."""

    def forward(self, x):
        mask = x > 0
        count = mask.sum()
        return torch.where(count > 0, (x * mask).sum() / count.clamp(min=1), x.mean())


program = tf.export(MeanMasked(), inputs)
for x in (torch.randn(3, 4), -torch.ones(3, 4)):
    print(tf.max_diff(Mean()(x), program(x)))

# %%
# A list of values
# ----------------
# ``tolist()`` and a comprehension make Python numbers. What is computed from them has to be
# computed from the tensor instead.


class Count(torch.nn.Module):
    """How many entries of the first row are positive."""

    def forward(self, x):
        return x * len([value for value in x[0].tolist() if value > 0])


refusal(Count())


class CountTensor(torch.nn.Module):
    """The same, as a sum."""

    def forward(self, x):
        return x * (x[0] > 0).sum()


print(tf.export(CountTensor(), inputs).report.verdict)

# %%
# A number that cuts
# ------------------
# ``n.item()`` is fine as a size or a bound: it stays a symbol. ``torch._check`` bounds it, so that
# the slice has as many rows as it says.


class First(torch.nn.Module):
    """The sum of the first ``n`` rows."""

    def forward(self, x, n):
        rows = n.item()
        torch._check(rows >= 0)
        torch._check(rows <= x.shape[0])
        return x[:rows].sum(0)


first = tf.export(
    First(), [(torch.randn(6, 3), torch.tensor(2)), (torch.randn(8, 3), torch.tensor(4))]
)
print(first.report.verdict)
x = torch.randn(5, 3)
print(tf.max_diff(First()(x, torch.tensor(5)), first(x, torch.tensor(5))))

# %%
# Code that is not yours
# ----------------------
# If the branch stands in a library, ``torchferry diagnose MODEL`` names the module, and a patch
# replaces one function while the model is captured: :doc:`/extending`. ``--export-rest`` exports
# everything around it.
