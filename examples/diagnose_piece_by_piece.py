"""
Piece by piece: which module breaks an export
=============================================

Find the module that breaks an export, and export everything around it::

    python examples/diagnose_piece_by_piece.py

The model runs on two inputs; then it is exported, and where that fails, so are its modules.
"""

import torch

import torchferry as tf


class Scale(torch.nn.Module):
    """A linear layer and a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scaled rows."""
        return torch.relu(self.linear(x))


class Flip(torch.nn.Module):
    """A branch on values, which torch.export cannot follow."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the masked rows."""
        if x.sum() > 0:
            return x * mask
        return x - mask


class Block(torch.nn.Module):
    """One after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()
        self.flip = Flip()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the rows, scaled and masked."""
        return self.flip(self.scale(x), mask)


class Model(torch.nn.Module):
    """A block and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return three numbers a row."""
        return self.head(self.block(x, mask=mask))


torch.manual_seed(0)
model = Model()
inputs = [((torch.randn(n, 8),), {"mask": torch.rand(n, 1)}) for n in (2, 5)]

# %%
# Look at the calls
# -----------------

print("--- what each module was given, and which dimensions vary")
tree = tf.trace_execution_piece_by_piece(model, inputs)
print(tree.pretty_text(with_dynamic_shape=True))

# %%
# Look at what can be exported
# ----------------------------

print("--- which modules can be exported")
tree.try_export(exporter="fx")
print(tree.get_export_report())

# %%
# Export everything else
# ----------------------
# The culprit is replaced by a custom operator.

print("--- and does everything else work?")
status = tree.try_export(replace_by_custom_op=tf.CustomOpStrategy.ONLY_IF_FAILING)
print(tree.get_export_report())
print("status:", status.status, "- because of", *status.blame)
print(status.exported.graph)

# %%
# In one call
# -----------
# With the line at fault and what to do.

print("--- the same in one call, with the line at fault and what to do")
for culprit in tf.diagnose(model, inputs).culprits:
    print(culprit)
