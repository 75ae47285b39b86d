"""A residual that is added and normalized at once: for CUDA only.

On the CPU onnxruntime 1.32 takes 1.1 to 1.9 times as long for SkipSimplifiedLayerNormalization as
for the sum and the norm, and up to 5 times as long for SkipLayerNormalization.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, rank, same_shape, same_size
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]

_WHERE = frozenset({"CUDA"})
_MS = "com.microsoft"
_RMS = ("RMSNormalization", "SimplifiedLayerNormalization")
_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _check_sum(x: ir.Value, skip: ir.Value) -> None:
    require(x.dtype in _TYPES, "x is neither float32 nor float16")
    require(rank(x) in (2, 3), "x has neither two nor three axes")
    require(same_shape(x, skip), "what is added is broadcast")


def _check_norm(norm: ir.Node) -> None:
    value = norm.inputs[0]
    require(attribute(norm, "axis", -1) in (-1, rank(value) - 1), "it is not of the last axis")
    require(attribute(norm, "stash_type", 1) == 1, "it is not computed in float32")


class SkipNormBias(Rule):
    """LayerNormalization((x + bias) + skip, …)  →  SkipLayerNormalization(x, skip, …, bias)

    And RMSNormalization likewise. The bias is a row of x.
    """

    since = 17
    processors = _WHERE

    def pattern(self, p: Ops, x: Var, skip: Var, bias: Var, weight: Var) -> Any:
        total = p.Add(p.Add(x, bias), skip)
        return p.op(
            (*_RMS, "LayerNormalization"), total, weight, p.rest("beta"), name="norm"
        ), total

    def check(
        self, x: ir.Value, skip: ir.Value, bias: ir.Value, weight: ir.Value, norm: ir.Node
    ) -> None:
        _check_sum(x, skip)
        _check_norm(norm)
        require(rank(bias) == 1 and same_size(bias, 0, x, -1), "the bias is no row of x")
        require(weight.dtype == x.dtype and rank(weight) == 1, "the weight is no vector like x")
        require(len(norm.outputs) == 1, "the mean is asked for")

    def rewrite(
        self, b: Block, x: ir.Value, skip: ir.Value, bias: ir.Value, weight: ir.Value,
        beta: tuple[ir.Value | None, ...], norm: ir.Node,
    ) -> Any:  # fmt: skip
        rows = [weight, bias] if norm.op_type in _RMS else [weight, *(beta or (None,)), bias]
        return _skip(b, norm, x, skip, *rows)


class SkipRmsNorm(Rule):
    """RMSNormalization(x + skip, weight)  →  SkipSimplifiedLayerNormalization(x, skip, weight)

    The sum is the fourth output.
    """

    processors = _WHERE

    def pattern(self, p: Ops, x: Var, skip: Var, weight: Var) -> Any:
        total = p.Add(x, skip)
        return p.op(_RMS, total, weight, name="norm"), total

    def check(self, x: ir.Value, skip: ir.Value, weight: ir.Value, norm: ir.Node) -> None:
        _check_sum(x, skip)
        _check_norm(norm)
        require(weight.dtype == x.dtype and rank(weight) == 1, "the weight is no vector like x")

    def rewrite(
        self, b: Block, x: ir.Value, skip: ir.Value, weight: ir.Value, norm: ir.Node
    ) -> Any:
        return _skip(b, norm, x, skip, weight)


class SkipLayerNorm(Rule):
    """LayerNormalization(x + skip, scale, beta)  →  SkipLayerNormalization(x, skip, scale, beta)

    The sum is the fourth output.
    """

    since = 17
    processors = _WHERE

    def pattern(self, p: Ops, x: Var, skip: Var, scale: Var, beta: Var) -> Any:
        total = p.Add(x, skip)
        return p.LayerNormalization(total, scale, p.optional(beta), name="norm"), total

    def check(self, x: ir.Value, skip: ir.Value, scale: ir.Value, norm: ir.Node) -> None:
        _check_sum(x, skip)
        _check_norm(norm)
        require(rank(scale) == 1, "the scale is no vector")
        require(len(norm.outputs) == 1, "the mean is asked for")

    def rewrite(
        self, b: Block, x: ir.Value, skip: ir.Value, scale: ir.Value, beta: ir.Value | None,
        norm: ir.Node,
    ) -> Any:  # fmt: skip
        return _skip(b, norm, x, skip, scale, beta)


def _skip(b: Block, norm: ir.Node, *inputs: Any) -> tuple[ir.Value, ir.Value]:
    """What is normalized, and the sum."""
    name = "SkipSimplifiedLayerNormalization" if norm.op_type in _RMS else "SkipLayerNormalization"
    epsilon = attribute(norm, "epsilon", 1e-5)
    outputs = b.op(name, *inputs, domain=_MS, outputs=4, like=inputs[0], epsilon=epsilon)
    outputs[3].type, outputs[3].shape = inputs[0].type, inputs[0].shape
    return outputs[0], outputs[3]


RULES: tuple[Rule, ...] = (SkipNormBias(), SkipRmsNorm(), SkipLayerNorm())
