"""Element-wise operators of one operand that ONNX has as they are."""

from __future__ import annotations

import torch

from torchferry.converter.lowering import lowers

__all__: list[str] = []

aten = torch.ops.aten

# Integers become floats first: sin of an int64 tensor is float32.
_FLOAT = {
    aten.cos.default: "Cos", aten.sin.default: "Sin", aten.sqrt.default: "Sqrt",
    aten.sigmoid.default: "Sigmoid", aten.exp.default: "Exp", aten.tanh.default: "Tanh",
}  # fmt: skip
_SAME = {aten.neg.default: "Neg", aten.abs.default: "Abs", aten.relu.default: "Relu"}

for _target, _op_type in _FLOAT.items():
    lowers(_target, promote="float")(lambda b, x, _op=_op_type: b.add(_op, (x,)))
for _target, _op_type in _SAME.items():
    lowers(_target)(lambda b, x, _op=_op_type: b.add(_op, (x,)))
