"""
torch.compile with onnxruntime
==============================

``torch.compile(model, backend="torchferry")`` runs every graph that dynamo captures in
onnxruntime, forward and backward. A model with graph breaks works, in several graphs; an
operator that onnxruntime cannot run stays in PyTorch.
"""

# %%
# One line
# --------

import torch

import torchferry as tf

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)
).eval()
x = torch.randn(4, 32)
compiled = torch.compile(model, backend="torchferry")
with torch.no_grad():
    print(tf.string_diff(tf.max_diff(model(x), compiled(x))))

# %%
# Held to PyTorch
# ---------------
# With ``verify`` the first call at each set of sizes is compared with PyTorch; what differs
# raises `Mismatch`, with the outputs and the graph.

torch.compiler.reset()
verified = torch.compile(model, backend="torchferry", options={"verify": True})
with torch.no_grad():
    for batch in (1, 4, 7):
        print(verified(torch.randn(batch, 32)).shape)

# %%
# To see it at work, a lowering that is wrong on purpose: three times in the place of twice.


@torch.library.custom_op("gallery::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """Two times x."""
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@tf.lowers(torch.ops.gallery.twice.default)
def lower_twice(b, x):
    return b.Mul(x, 3.0)


wrong = torch.compile(lambda x: twice(x) + 1, backend="torchferry", options={"verify": True})
try:
    wrong(torch.ones(3))
except tf.Mismatch as error:
    print(error, f"[{error.code}]")

# %%
# Training
# --------
# With gradients the backward graph is compiled as well.

torch.compiler.reset()
head = torch.nn.Linear(8, 2)
train = torch.compile(head, backend="torchferry")
train(torch.randn(5, 8)).square().mean().backward()
print(tf.string_type(head.weight.grad, with_shape=True))

# %%
# What was compiled
# -----------------
# ``storage`` keeps the ONNX models. `onnx_custom_backend` is the backend as a function, with all
# its arguments; ``options`` of ``torch.compile`` are the same.

storage = {}


def backend(graph, args):
    """The backend with a storage."""
    return tf.onnx_custom_backend(graph, args, storage=storage, optimize=True)


torch.compiler.reset()
with torch.no_grad():
    torch.compile(model, backend=backend)(x)
for instance in storage["instance"]:
    print([node.op_type for node in instance["onnx"].graph.node])

# %%
# When it pays
# ------------
# Large layers and small batches gain; a tiny model loses, because a call of onnxruntime costs
# some microseconds. :doc:`/figures` has both. ``options={"patterns":
# "default+onnxruntime+experimental"}`` also writes C for runs of element-wise operators and has
# the machine's compiler make a kernel.
