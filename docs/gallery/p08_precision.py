"""
Where half precision costs
==========================

The same network in float16 and bfloat16, each beside itself in float32. The curve says after
which layer the error grows, and so which layers to keep in float32.
"""

import matplotlib.pyplot as plt
import torch

import torchferry as tf


class Block(torch.nn.Module):
    """A residual block whose last layer grows with depth."""

    def __init__(self, gain):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)
        self.up = torch.nn.Linear(32, 64)
        self.down = torch.nn.Linear(64, 32)
        with torch.no_grad():
            self.down.weight *= gain

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def network():
    """Six blocks; the fourth has large weights."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Block(20.0 if n == 3 else 1.0) for n in range(6))).eval()


# %%
# Record every block
# ------------------
# `trace_forward_execution` keeps the inputs and outputs of every module while the model runs.

x = torch.randn(8, 32)


def outputs(dtype):
    """The result of each block, as float32."""
    model = network().to(dtype)
    with tf.trace_forward_execution(model) as tree, torch.no_grad():
        model(x.to(dtype))
    return [piece.outputs[0].float() for piece in tree.walk() if isinstance(piece.model, Block)]


reference = outputs(torch.float32)
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
for dtype, colour in ((torch.float16, "#0072b2"), (torch.bfloat16, "#d55e00")):
    errors = [
        tf.max_diff(expected, got)["abs"] / expected.abs().max().item()
        for expected, got in zip(reference, outputs(dtype), strict=True)
    ]
    print(dtype, [f"{error:.1e}" for error in errors])
    axes.semilogy(range(1, 7), errors, marker="o", color=colour, label=str(dtype)[6:])
axes.set(xlabel="block", ylabel="error, relative to the largest value")
axes.legend()
figure

# %%
# The verdict knows the dtype
# ---------------------------
# An export in float16 is judged by the limits of float16: ONNX and PyTorch differ by rounding
# only.

half = tf.export(network().half(), [(x.half(),), (torch.randn(3, 32).half(),)])
half.report

# %%
# bfloat16 on a CPU
# -----------------
# onnxruntime has few kernels for bfloat16 on a CPU. The weights stay in bfloat16, and casts are
# written around each operator that has none, so that the file runs everywhere. The difference is
# rounding: bfloat16 has eight bits of precision.

x = torch.randn(3, 32).bfloat16()
coarse = tf.export(network().bfloat16(), [(x,), (torch.randn(5, 32).bfloat16(),)])
print(coarse.report.verdict)
kinds = {str(value.dtype) for value in coarse.model.graph.initializers.values()}
casts = sum(node.op_type == "Cast" for node in coarse.model.graph)
print(kinds, casts, "casts of", len(coarse.model.graph), "nodes")
print(tf.max_diff(network().bfloat16()(x), coarse(x)))
