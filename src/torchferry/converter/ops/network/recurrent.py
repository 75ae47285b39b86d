"""LSTM, GRU and RNN layers as ONNX's operators.

ONNX has the gates in another order, so that the weights are put into it once, here. It wants time
first: a batch that comes first is transposed on the way in and out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.weight import Weight
from torchferry.seams.operators import aten
from torchferry.seams.pytorch import FakeTensor

__all__: list[str] = []

Params = Sequence[ir.Value]


@dataclass(frozen=True)
class _Kind:
    """An operator of ONNX.

    Attributes:
        op_type: its name.
        order: where PyTorch has each gate that ONNX wants next.
        activation: of RNN, for each direction.
    """

    op_type: str
    order: tuple[int, ...]
    activation: str | None = None

    def attributes(self, directions: int) -> dict[str, Any]:
        if self.op_type == "GRU":
            return {"linear_before_reset": 1}
        if self.activation is not None:
            return {"activations": [self.activation] * directions}
        return {}


# PyTorch: input, forget, cell, output. ONNX: input, output, forget, cell
_LSTM = _Kind("LSTM", (0, 3, 1, 2))
# PyTorch: reset, update, new. ONNX: update, reset, hidden
_GRU = _Kind("GRU", (1, 0, 2))
_TANH = _Kind("RNN", (0,), "Tanh")
_RELU = _Kind("RNN", (0,), "Relu")


# Weights -------------------------------------------------------------------------------------


def _stacked(b: Block, kind: _Kind, directions: Sequence[Params]) -> ir.Value:
    """Gates in ONNX's order: [directions, gates · hidden, …]; the biases of a direction joined.

    Made once of the same parameters, however often the module is called.
    """
    first = directions[0][0]
    made: dict[Any, ir.Value] = first.meta.setdefault("stacked", {})
    key = kind.order, tuple(tuple(map(id, parts)) for parts in directions)
    if key in made:
        return made[key]
    tensors = [[_content(value) for value in parts] for parts in directions]
    if all(tensor is not None for parts in tensors for tensor in parts):
        joined = [
            torch.cat([_reordered(tensor, kind.order) for tensor in parts if tensor is not None])
            for parts in tensors
        ]
        made[key] = b.constants.weight(torch.stack(joined), f"{first.name}.{kind.op_type}")
        return made[key]
    rows = [
        b.Concat(*(_reordered_value(b, value, kind.order) for value in parts), axis=0)
        if len(parts) > 1 else _reordered_value(b, parts[0], kind.order)
        for parts in directions
    ]  # fmt: skip
    stacked = [b.Unsqueeze(row, [0]) for row in rows]
    return stacked[0] if len(stacked) == 1 else b.Concat(*stacked, axis=0)


def _content(value: ir.Value) -> torch.Tensor | None:
    """The numbers of a parameter, where they are at hand."""
    weight = value.const_value
    if not isinstance(weight, Weight) or value.producer() is not None:
        return None
    tensor: Any = weight.raw
    return None if isinstance(tensor, FakeTensor) or tensor.is_meta else tensor


def _reordered(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    gates = tensor.detach().chunk(len(order))
    return torch.cat([gates[place] for place in order])


def _reordered_value(b: Block, value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    if len(order) == 1:
        return value
    gates = b.Split(value, axis=0, num_outputs=len(order), outputs=len(order))
    return b.Concat(*(gates[place] for place in order), axis=0)


# Layers --------------------------------------------------------------------------------------


def _layers(
    b: Block,
    kind: _Kind,
    x: ir.Value,
    states: Sequence[ir.Value],
    params: Params,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    steps: ir.Value | None = None,
) -> tuple[ir.Value, ...]:
    """The output and the last states, as PyTorch returns them; each sequence has its ``steps``."""
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * directions * num_layers:
        raise ValueError("ONNX has no projection of the hidden state, use proj_size=0")
    if x.dtype == ir.DataType.DOUBLE:
        raise ValueError("onnxruntime has no recurrent layers in float64, use float32")
    x = b.Transpose(x, perm=[1, 0, 2]) if batch_first else x
    last: list[list[ir.Value]] = [[] for _ in states]
    for layer in range(num_layers):
        first = layer * directions
        chosen = [params[each * (first + d) : each * (first + d + 1)] for d in range(directions)]
        initial = [
            state if num_layers == 1 else b.Slice(state, [first], [first + directions], [0])
            for state in states
        ]
        turned = batch_first and layer == num_layers - 1
        x, *found = _layer(b, kind, x, initial, chosen, has_biases, turned, steps)
        for collected, state in zip(last, found, strict=True):
            collected.append(state)
    return x, *(s[0] if len(s) == 1 else b.Concat(*s, axis=0) for s in last)


def _layer(
    b: Block,
    kind: _Kind,
    x: ir.Value,
    initial: Sequence[ir.Value],
    params: Sequence[Params],
    has_biases: bool,
    batch_first: bool = False,
    steps: ir.Value | None = None,
) -> list[ir.Value]:
    directions = len(params)
    hidden = _hidden(b, params[0])
    bias = _stacked(b, kind, [p[2:] for p in params]) if has_biases else None
    outputs = b.add(
        kind.op_type,
        (
            x,
            _stacked(b, kind, [p[:1] for p in params]),
            _stacked(b, kind, [p[1:2] for p in params]),
            bias, steps, *initial,
        ),
        outputs=1 + len(initial), hidden_size=hidden,
        direction="bidirectional" if directions == 2 else None,
        **kind.attributes(directions),
    )  # fmt: skip
    sequence, *states = outputs
    if directions == 1 and not batch_first:
        return [b.Squeeze(sequence, [1]), *states]
    # At once, of a tensor of four axes: a MatMul in float16 after a Transpose of the first two of
    # three ends the process in onnxruntime 1.32.
    turned = b.Transpose(sequence, perm=[2, 0, 1, 3] if batch_first else [0, 2, 1, 3])
    if directions == 1:
        return [b.Squeeze(turned, [2]), *states]
    return [b.Reshape(turned, b.constant([0, 0, 2 * hidden])), *states]


def _hidden(b: Block, params: Params) -> int:
    hidden = b.dim(params[1], -1)
    if not isinstance(hidden, int):
        raise ValueError("the size of its hidden state depends on the inputs' sizes, fix it")
    return hidden


def _still(train: bool, dropout: float, num_layers: int) -> None:
    if train and dropout and num_layers > 1:
        raise ValueError("its dropout is random, call model.eval() before the export")


@lowers(aten.lstm.input)
def lstm(
    b: Block,
    x: ir.Value,
    hx: Sequence[ir.Value],
    params: Params,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[ir.Value, ...]:
    _still(train, dropout, num_layers)
    return _layers(b, _LSTM, x, hx, params, has_biases, num_layers, bidirectional, batch_first)


def _with_one_state(kind: _Kind) -> Any:
    def write(
        b: Block,
        x: ir.Value,
        hx: ir.Value,
        params: Params,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[ir.Value, ...]:
        _still(train, dropout, num_layers)
        return _layers(
            b, kind, x, [hx], params, has_biases, num_layers, bidirectional, batch_first
        )

    return write


lowers(aten.gru.input)(_with_one_state(_GRU))
lowers(aten.rnn_tanh.input)(_with_one_state(_TANH))
lowers(aten.rnn_relu.input)(_with_one_state(_RELU))


# Packed sequences ----------------------------------------------------------------------------


def _packed_layers(
    b: Block,
    kind: _Kind,
    data: ir.Value,
    batch_sizes: ir.Value,
    states: Sequence[ir.Value],
    params: Params,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
) -> tuple[ir.Value, ...]:
    """The data padded to (time, batch, features) and the layers with each sequence's length."""
    order = b.Range(0, b.scalar(b.dim(states[0], 1)), 1)
    sizes = b.Unsqueeze(batch_sizes, [1])
    mask = b.Less(order, sizes)  # (time, batch)
    place = b.Add(b.Sub(b.CumSum(sizes, b.constant(0)), sizes), order)
    x = b.Gather(data, b.Where(mask, place, 0), axis=0)
    steps = b.ReduceSum(b.cast(mask, ir.DataType.INT32), [0], keepdims=0)
    padded, *last = _layers(
        b, kind, x, states, params, has_biases, num_layers, bidirectional, False, steps
    )
    flat = b.Reshape(padded, [-1, _hidden(b, params) * (2 if bidirectional else 1)])
    output = b.Compress(flat, b.Reshape(mask, [-1]), axis=0)
    return output, *last


def _packed(kind: _Kind) -> Any:
    def write(
        b: Block,
        data: ir.Value,
        batch_sizes: ir.Value,
        hx: Any,
        params: Params,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[ir.Value, ...]:
        _still(train, dropout, num_layers)
        states = [hx] if isinstance(hx, ir.Value) else hx
        return _packed_layers(
            b, kind, data, batch_sizes, states, params, has_biases, num_layers, bidirectional
        )

    return write


lowers(aten.lstm.data)(_packed(_LSTM))
lowers(aten.gru.data)(_packed(_GRU))
lowers(aten.rnn_tanh.data)(_packed(_TANH))
lowers(aten.rnn_relu.data)(_packed(_RELU))


# Cells: a sequence of one step ---------------------------------------------------------------


def _cell(
    b: Block, kind: _Kind, x: ir.Value, states: Sequence[ir.Value], params: Sequence[Any]
) -> list[ir.Value]:
    given = [p for p in params if p is not None]
    sequence = b.Unsqueeze(x, [0])
    initial = [b.Unsqueeze(state, [0]) for state in states]
    _, *found = _layer(b, kind, sequence, initial, [given], len(given) == 4)
    return [b.Squeeze(state, [0]) for state in found]


@lowers(aten.lstm_cell.default)
def lstm_cell(
    b: Block,
    x: ir.Value,
    hx: Sequence[ir.Value],
    w_ih: ir.Value,
    w_hh: ir.Value,
    b_ih: ir.Value | None = None,
    b_hh: ir.Value | None = None,
) -> list[ir.Value]:
    return _cell(b, _LSTM, x, hx, (w_ih, w_hh, b_ih, b_hh))


def _cell_of(kind: _Kind) -> Any:
    def write(
        b: Block,
        x: ir.Value,
        hx: ir.Value,
        w_ih: ir.Value,
        w_hh: ir.Value,
        b_ih: ir.Value | None = None,
        b_hh: ir.Value | None = None,
    ) -> ir.Value:
        return _cell(b, kind, x, [hx], (w_ih, w_hh, b_ih, b_hh))[0]

    return write


lowers(aten.gru_cell.default)(_cell_of(_GRU))
lowers(aten.rnn_tanh_cell.default)(_cell_of(_TANH))
lowers(aten.rnn_relu_cell.default)(_cell_of(_RELU))
