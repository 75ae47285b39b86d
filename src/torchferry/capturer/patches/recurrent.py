"""LSTM, GRU and RNN over a sequence of any length.

torch.export keeps ``aten.lstm.input`` as one node, yet asks its decomposition for the shapes of
the results, and that runs a Python loop over time: the length becomes a constant. The shapes
follow from the arguments, so the node stays whole and its length dynamic.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial

import torch

from torchferry.capturer.patching.patch import Patch
from torchferry.values.recurrent import compute_shapes_only

__all__ = ["PATCHES", "fixes_length"]


def fixes_length(make: Callable[[], torch.nn.Module], axis: int = 0) -> bool:
    """Whether torch.export makes the length of a (3, 2, 2) or (2, 2, 3) input a constant.

    Args:
        make: gives the module.
        axis: of the length, 0 or 2.
    """
    shape = [3 if number == axis else 2 for number in range(3)]
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(
                make(), (torch.zeros(shape),), dynamic_shapes=({axis: torch.export.Dim.AUTO},)
            )
    finally:
        logging.disable(level)
    name = program.graph_signature.user_inputs[0]
    node = next(node for node in program.graph.nodes if node.name == name)
    return str(node.meta["val"].shape[axis]).isdecimal()


_RNN = torch.nn.RNN
_ROWS: tuple[tuple[str, Callable[[], torch.nn.Module], str], ...] = (
    ("lstm", partial(torch.nn.LSTM, 2, 2), "0fe9864f5df7"),
    ("gru", partial(torch.nn.GRU, 2, 2), "3ff0136395c6"),
    ("rnn_tanh", partial(_RNN, 2, 2, nonlinearity="tanh"), "0242b4a92f3c"),
    ("rnn_relu", partial(_RNN, 2, 2, nonlinearity="relu"), "3435c01b3a39"),
)

PATCHES = tuple(
    Patch(
        subject=f"torch.ops.aten.{name}.input",
        why="the sequence length becomes a constant: a loop over time computes the fake results",
        link="https://github.com/pytorch/pytorch/issues/191855",
        replace=compute_shapes_only,
        fingerprints=(digits,),
        probe=partial(fixes_length, make),
    )
    for name, make, digits in _ROWS
)
"""One an operator."""
