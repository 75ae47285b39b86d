"""What a program checks or prints as it runs: ONNX computes nothing for it.

What such operators return only orders them; it is a number that nobody reads.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []


@lowers(aten._assert_async.default)
def _assert_async(b: Block, x: ir.Value) -> None:
    return None


@lowers(aten._print.default)
def _print(b: Block, s: str) -> None:
    return None


@lowers(aten._make_dep_token.default)
def _make_dep_token(b: Block, *_options: Any) -> ir.Value:
    return b.constant(0.0, ir.DataType.FLOAT)


@lowers(
    aten._functional_assert_async.msg, aten._functional_assert_scalar.default,
)  # fmt: skip
def _functional_assert(b: Block, x: Any, assert_msg: str, dep_token: ir.Value) -> ir.Value:
    return dep_token


@lowers(
    aten._functional_sym_constrain_range.default,
    aten._functional_sym_constrain_range_for_size.default,
)
def _functional_sym_constrain_range(
    b: Block, size: Any, min: int | None, max: int | None, dep_token: ir.Value
) -> ir.Value:
    return dep_token
