"""
Images of every size
====================

A convolutional network usually works at many heights and widths, but rarely at all: strides and
padding make some sizes illegal, and a ``flatten`` before a linear layer fixes one. This page
shows how to say which sizes are legal, and what happens where the code fixes one.
"""

# %%
# A network with a stride
# -----------------------

import torch

import torchferry as tf


class Segment(torch.nn.Module):
    """Down by eight, up again: heights and widths must be multiples of 8."""

    def __init__(self):
        super().__init__()
        self.down = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, 2, 1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3, 2, 1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3, 2, 1),
        )
        self.up = torch.nn.Upsample(scale_factor=8)
        self.last = torch.nn.Conv2d(11, 2, 1)

    def forward(self, image):
        return self.last(torch.cat([image, self.up(self.down(image))], 1))


torch.manual_seed(0)
model = Segment().eval()

# %%
# A function of sizes
# -------------------
# Instead of calls, give a function that makes inputs of the sizes it is asked for. Its
# parameters name the dimensions. ``sizes`` states what is legal: every 8th from 32 to 96. No
# other size is tried.


def make(batch_size, height, width):
    return (torch.rand(batch_size, 3, height, width),)


program = tf.export(model, make, sizes="batch_size=1..3, height=32..96:8, width=32..96:8")
program.report

# %%
# The model computes at every legal size, also at those that were not tried.

image = torch.rand(2, 3, 72, 40)
print(tf.string_diff(tf.max_diff(model(image), program(image))))

# %%
# Where the code fixes a size
# ---------------------------
# ``flatten`` before ``Linear`` needs one size. Inputs of two sizes are refused by PyTorch
# itself, and a size that Python code computes is a constant of the graph. torchferry does not
# freeze it silently:


class Pooled(torch.nn.Module):
    """A list has a length, so the height becomes a number."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, image):
        x = self.conv(image)
        rows = len([row for row in range(x.shape[2])])
        return x.sum((2, 3)) / rows


fixed = tf.export(Pooled().eval(), make, sizes="height=8..64, width=8..64", rewrite=False)
fixed.report

# %%
# The report names the dimension and the line. ``x.shape[2]`` in the place of ``rows`` keeps it
# dynamic.
assert not fixed.report.ok
