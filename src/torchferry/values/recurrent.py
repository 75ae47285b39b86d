"""LSTM, GRU and RNN as one node of a trace, whatever the length of the sequence.

torch asks the decomposition of such an operator for the shapes of the results, and that runs a
Python loop over time: the length becomes a constant. The shapes follow from the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torchferry.seams.pytorch import decomposition_table, dispatch_keys, forget_dispatches

__all__ = ["compute_shapes_only", "is_recurrent", "keep_recurrent_whole"]

Function = Callable[..., Any]

_NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def compute_shapes_only(original: Function, packed: bool = False) -> Function:
    """Replace the decomposition of a recurrent operator.

    Args:
        original: computes real numbers.
        packed: whether the operator takes packed data, as ``aten.lstm.data`` does.
    """

    def recurrent(data: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        """Shapes of the results; both layouts, batch or time first, have the features last."""
        if type(data) in (Tensor, torch.nn.Parameter):  # real numbers are asked for
            result: tuple[Tensor, ...] = original(data, *arguments)
            return result
        # hx, params, has_biases, num_layers, dropout, train, bidirectional, …
        hx, *_, bidirectional = arguments[packed : packed + 7]
        states = hx if isinstance(hx, list | tuple) else (hx,)
        features = states[0].shape[-1] * (2 if bidirectional else 1)
        output = data.new_empty((*data.shape[:-1], features))
        return output, *(torch.empty_like(state) for state in states)

    return recurrent


def is_recurrent(target: Any) -> bool:
    """Whether an operator is a recurrent layer; its results are new tensors always.

    >>> is_recurrent(torch.ops.aten.lstm.input), is_recurrent(torch.ops.aten.lstm_cell.default)
    (True, False)
    """
    name, _, kind = str(target).removeprefix("aten.").partition(".")
    return name in _NAMES and kind in {"input", "data"}


@contextmanager
def keep_recurrent_whole() -> Iterator[None]:
    """Keep every length dynamic while a program is traced again in the block."""
    table = decomposition_table()  # fake tensors of dynamic sizes look there first
    before = []
    for name in _NAMES:
        packet = getattr(torch.ops.aten, name)
        for operator, packed in ((packet.input, False), (packet.data, True)):
            kernels = operator.py_kernels
            before.append((operator, dict(kernels), table.get(operator)))
            shapes = compute_shapes_only(operator, packed)
            kernels.update(dict.fromkeys((*kernels, dispatch_keys()[0]), shapes))
            table[operator] = shapes
            forget_dispatches(operator)
    try:
        yield
    finally:
        for operator, kernels, how in before:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            del table[operator]
            table.update({operator: how} if how else {})
            forget_dispatches(operator)
