"""
Dynamic shapes explained
========================

A graph is recorded from one run, and has to hold for runs of other sizes. This page shows how a
size becomes a symbol, what a guard is, why 0 and 1 are special, what happens where a size
depends on values, and what *verified*, *verified where*, *fixed* and *differs* mean.
"""

# %%
# Two runs make the shapes
# ------------------------
# ``torch.export`` wants to be told which dimensions vary. Two runs tell it: a size that differs
# is dynamic, one that does not is a constant. `ModelInputs` gives the ``dynamic_shapes`` that
# ``torch.export.export`` takes, in case you call it yourself.

import pprint

import torch

import torchferry as tf


class Add(torch.nn.Module):
    """Two tensors of one length, one of them with a batch of 1."""

    def forward(self, x, y):
        return x + y


sets = [(torch.rand(2, 7), torch.rand(1, 7)), (torch.rand(3, 9), torch.rand(1, 9))]
pprint.pprint(tf.ModelInputs(Add(), sets).guess_dynamic_shapes())

# %%
# The batch of ``y`` was 1 in both, so it is a constant, and broadcasting stays right. Sizes that
# are always equal get one name: here the length of ``x`` and of ``y``.

program = tf.export(Add(), sets)
print([(value.name, value.shape) for value in program.model.graph.inputs])

# %%
# Runs of one size make nothing dynamic. That may be what you want, so it is no fault; the verdict
# says it, and calls of other sizes are refused.

same = tf.export(Add(), [(torch.rand(2, 7), torch.rand(1, 7)) for _ in range(2)])
print(same.report.verdict)

# %%
# Names instead of hints, and back: `use_dyn_not_str` and `use_str_not_dyn`.

named = ({0: "batch", 1: "length"}, {1: "length"})
print(tf.use_dyn_not_str(named))

# %%
# Sizes are expressions
# ---------------------
# What a model computes of sizes becomes an expression in the graph. The output of a convolution
# has one; an input may have one too, such as a mask as long as past and present together.


class Halve(torch.nn.Module):
    """A stride of 2."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 4, 3, stride=2, padding=1)

    def forward(self, x):
        return self.conv(x)


halve = tf.export(Halve().eval(), [(torch.rand(2, 4, 10),), (torch.rand(3, 4, 15),)])
print(halve.model.graph.outputs[0].shape)

# %%
# Guards
# ------
# A branch on a size is decided while the graph is recorded. torch keeps a *guard*: the condition
# that was true. torchferry tries sizes that break it. If the model does something else there,
# the condition stays: the dimension is **verified where** it holds, with the line that decided
# it.


class Branch(torch.nn.Module):
    """Odd widths are padded."""

    def forward(self, x):
        if x.shape[1] % 2:
            x = torch.nn.functional.pad(x, (0, 1))
        return x.unflatten(1, (-1, 2)).mean(2)


branch = tf.export(Branch(), [(torch.rand(2, 6),), (torch.rand(3, 8),)])
branch.report

# %%
# A call that breaks the condition is refused with the same words, also from a saved file: the
# program never computes something that nobody has proven.

try:
    branch(torch.rand(2, 5))
except tf.UsageError as error:
    print(error, f"[{error.code}]")

# %%
# ``strict=True`` (``--strict``) makes such a limit a failure. Without a limit there is nothing
# to see: a guard that makes no difference is dropped.
#
# 0 and 1
# -------
# torch specializes sizes 0 and 1: traced with a batch of 1, a dimension may be taken for a
# broadcast. torchferry records with a size above 1 and then *runs* both models with batch 1, and
# with 0 where the model takes it. They are among the sizes of every report, because size 1 is
# where broadcasting hides mistakes.

print([row["agreed"] for row in program.report.data["dimensions"]])

# %%
# Sizes that Python computes
# --------------------------
# ``int(x.shape[0])`` and ``len(x)`` stay dynamic, and most loops over ``range(x.shape[0])``
# become a scan. A list that Python makes row by row has a number of entries, and nothing else:
# where it is used, the dimension is **fixed**, and reported with the line, never frozen silently.


class Fixed(torch.nn.Module):
    """Divides by a number that was a size."""

    def forward(self, x):
        return x.sum(0) / len([row for row in range(x.shape[0])])


fixed = tf.export(Fixed(), [(torch.rand(2, 3),), (torch.rand(4, 3),)])
print(fixed.report)

# %%
# The size itself keeps the dimension dynamic.


class Divides(torch.nn.Module):
    """Divides by the size."""

    def forward(self, x):
        return x.sum(0) / x.shape[0]


print(tf.export(Divides(), [(torch.rand(2, 3),), (torch.rand(4, 3),)]).report.verdict)

# %%
# Sizes that depend on values
# ---------------------------
# ``nonzero`` or a boolean mask give a tensor whose size is known only when it runs. ONNX can do
# that; the size is a symbol of its own.


class Kept(torch.nn.Module):
    """The positive elements."""

    def forward(self, x):
        return x[x > 0]


kept = tf.export(Kept(), [(torch.randn(20),), (torch.randn(30),)])
print(kept.report.verdict, kept.model.graph.outputs[0].shape)

# %%
# A branch on a *value* is another thing: it becomes an ``If`` or ``Where`` in the graph, see
# :doc:`/auto_guides/g06_my_export_fails`.
#
# Integers
# --------
# An integer argument that differs between the calls is dynamic too, and becomes an input of the
# graph.


class Shift(torch.nn.Module):
    """Roll by a number."""

    def forward(self, x, n: int):
        return torch.cat([x[n:], x[:n]])


shift = tf.export(Shift(), [(torch.rand(6), 2), (torch.rand(9), 4)])
print(shift.report.verdict)
print(tf.string_type(shift(torch.arange(5.0), 1), with_shape=True, with_min_max=True))
