"""Dropout, which a model that is evaluated does not have."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []


@lowers(
    aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)  # fmt: skip
def dropout(b: Block, x: ir.Value, p: float, train: bool) -> ir.Value:
    if train and p:
        raise ValueError(
            "dropout in training mode is random, call model.eval() before the export, or give "
            "F.dropout training=self.training"
        )
    return x


@lowers(aten.native_dropout.default)
def native_dropout(b: Block, x: ir.Value, p: float, train: bool | None) -> tuple[Any, Any]:
    kept = dropout(b, x, p, train is not False)
    return kept, b.Expand(b.constant(True), b.shape(x))
