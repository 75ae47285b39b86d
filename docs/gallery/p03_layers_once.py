"""
Eight layers, stamped out of one
================================

A model of N identical layers has N copies of the same subgraph. With ``functions`` a class of
modules becomes a function of the ONNX model: its body is stored once and called N times, with
other weights. The file is read as the code is.
"""

import matplotlib.pyplot as plt
import torch

import torchferry as tf


class Layer(torch.nn.Module):
    """A residual layer."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


torch.manual_seed(0)
x = torch.randn(4, 16)


def nodes(layers, functions=()):
    """How many nodes stand in the file, and whether it still computes the same."""
    model = torch.nn.Sequential(*(Layer() for _ in range(layers))).eval()
    program = tf.to_onnx(model, (x,), functions=functions)
    assert torch.allclose(program(x), model(x), atol=1e-5)
    bodies = sum(len(list(function)) for function in program.model.functions.values())
    return len(program.model.graph) + bodies, program


# %%
# One function
# ------------

count, program = nodes(8, (Layer,))
print([node.op_type for node in program.model.graph])
for name, function in program.model.functions.items():
    print(name, [node.op_type for node in function])

# %%
# `convert` does the same with a program of ``torch.export``.

flat = torch.export.export(torch.nn.Sequential(Layer(), Layer()).eval(), (x,))
print([node.op_type for node in tf.convert(flat, functions=["Layer"]).graph])

# %%
# How the file grows
# ------------------

sizes = (1, 2, 4, 8, 16)
plain = [nodes(n)[0] for n in sizes]
stamped = [nodes(n, (Layer,))[0] for n in sizes]
figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
axes.plot(sizes, plain, marker="o", color="#0072b2", label="flat")
axes.plot(sizes, stamped, marker="o", color="#d55e00", label="with a function")
axes.set(xlabel="layers", ylabel="nodes in the file")
axes.legend()
figure

# %%
# One layer, drawn
# ----------------

tf.plot_dot(program.model, engine=None, figsize=(4, 7))
