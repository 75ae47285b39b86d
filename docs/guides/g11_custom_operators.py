"""
Custom operators
================

An operator without an ONNX form is refused, all of them at once, with their places. A lowering
is a function of a few lines that writes it with ONNX operators. This page goes from the error to
the export.
"""

# %%
# An operator of one's own
# ------------------------

import torch

import torchferry as tf


@torch.library.custom_op("gallery::soft_sign", mutates_args=())
def soft_sign(x: torch.Tensor, sharpness: float) -> torch.Tensor:
    """x / (|x| + 1/sharpness)."""
    return x / (x.abs() + 1 / sharpness)


@soft_sign.register_fake
def _(x, sharpness):
    return torch.empty_like(x)


class Net(torch.nn.Module):
    """It calls the operator twice."""

    def forward(self, x):
        y = torch.ops.gallery.soft_sign(x, 4.0)
        return torch.ops.gallery.soft_sign(y + 1, 2.0)


inputs = [(torch.randn(2, 3),), (torch.randn(4, 3),)]

# %%
# The refusal
# -----------
# `MissingLowering` lists every operator with its count; each is named with the line that calls
# it.

try:
    tf.export(Net(), inputs)
except tf.MissingLowering as error:
    print(error, f"[{error.code}]")
    print(error.operators, "exit code", error.exit_code)

# %%
# The lowering
# ------------
# `lowers` registers it. The parameters are the schema's; values go in, values come out. Dtypes,
# shapes, names and the line of the model are filled in.


@tf.lowers(torch.ops.gallery.soft_sign.default)
def lower_soft_sign(b, x, sharpness):
    if sharpness <= 0:
        raise ValueError("its sharpness is not positive: the operator divides by it")
    return b.Div(x, b.Add(b.Abs(x), 1 / sharpness))


program = tf.export(Net(), inputs)
print(program.report.verdict)
print([node.op_type for node in program.model.graph])

# %%
# Refusing arguments
# ------------------
# What the lowering cannot express it refuses with ``ValueError`` and a reason. The user gets
# `LoweringFailed`, with the reason, the node and the line.


class Wrong(torch.nn.Module):
    """A sharpness that the lowering refuses."""

    def forward(self, x):
        return torch.ops.gallery.soft_sign(x, -1.0)


try:
    tf.export(Wrong(), inputs)
except tf.LoweringFailed as error:
    print(error, f"[{error.code}]")
    assert isinstance(error, tf.ConversionError)

# %%
# Kernels of yours
# ----------------
# An operator that your build of onnxruntime has is written with its domain. Another build refuses
# the file, with the name of the node.


@torch.library.custom_op("gallery::kernel", mutates_args=())
def kernel(x: torch.Tensor) -> torch.Tensor:
    """A kernel of yours."""
    return x * 2


@kernel.register_fake
def _(x):
    return torch.empty_like(x)


@tf.lowers(torch.ops.gallery.kernel.default)
def lower_kernel(b, x):
    return b.MyKernel(x, domain="my.domain")


class UsesKernel(torch.nn.Module):
    """It calls the kernel."""

    def forward(self, x):
        return torch.ops.gallery.kernel(x)


written = tf.to_onnx(UsesKernel(), inputs[0])
try:
    written(inputs[0][0])
except tf.RunError as error:
    print(str(error).splitlines()[0], f"[{error.code}]")

# %%
# An ``autograd.Function``
# ------------------------
# It needs no lowering: what its ``forward`` computes is traced like any other code. ``backward``
# plays no part in an export. (A lowering is needed for a kernel that PyTorch cannot see into, such
# as one of Triton or C++: wrap it in ``torch.library.custom_op``, as above.)


class Clip(torch.autograd.Function):
    """A clamp with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(0, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Clips(torch.nn.Module):
    """It calls the function."""

    def forward(self, x):
        return Clip.apply(x) * 2


clips = tf.export(Clips(), inputs)
print(clips.report.verdict)
print([node.op_type for node in clips.model.graph])

# %%
# :doc:`/extending` also shows a rewrite, a container and a patch.
