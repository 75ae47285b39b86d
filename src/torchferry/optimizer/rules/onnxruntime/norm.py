"""Normalizations over the last axis, spelled out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import FLOATS, attribute, ints, number, rank, same_size
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]

_OWN_OPSET = 23
"""From here on ONNX has RMSNormalization; onnxruntime calls it SimplifiedLayerNormalization."""

_NAMES = ("RMSNormalization", "SimplifiedLayerNormalization")


def _mean_of_square(p: Ops, x: Any, name: str) -> Any:
    """ReduceMean(x²), its axes an input or an attribute."""
    square = p.any_of(p.Pow(x, 2), p.Mul(x, x))
    return p.ReduceMean(square, p.optional(p.constant()), name=name)


def _divided(p: Ops, x: Any, mean: Any) -> Any:
    """The quotient x / sqrt(mean + epsilon), in every spelling."""
    root = p.Sqrt(p.Add(mean, p.constant(_number, "epsilon")))
    one_by_root = p.any_of(p.Reciprocal(root), p.Div(p.constant(1), root))
    power = p.Pow(p.Add(mean, p.constant(_number, "epsilon")), p.constant(-0.5))
    return p.any_of(p.Mul(x, one_by_root), p.Div(x, root), p.Mul(x, power))


def _number(content: np.ndarray[Any, Any]) -> bool:
    return content.size == 1 and content.ndim <= 1  # more axes would be the result's too


def _check_mean(node: ir.Node) -> None:
    """Decline unless a ReduceMean is over the last axis, which stays."""
    around = rank(node.inputs[0])
    axes = ints(node.inputs[1]) if len(node.inputs) > 1 else attribute(node, "axes", [])
    require(attribute(node, "keepdims", 1) == 1, "the mean drops its axis")
    require([axis % around for axis in axes] == [around - 1], "the mean is not of the last axis")


def _check_row(value: ir.Value, x: ir.Value, what: str) -> None:
    """Decline unless a value is one number for each element of the last axis of x."""
    require(rank(value) == 1, f"the {what} is no vector")
    require(same_size(value, 0, x, -1), f"the {what} is not as long as the last axis")


def _check_epsilon(epsilon: ir.Value) -> None:
    require(0 <= number(epsilon) < 1, "the epsilon is negative or large")


def _check_last(norm: ir.Node) -> None:
    """Decline unless a normalization is over the last axis."""
    around = rank(norm.inputs[0])
    require(attribute(norm, "axis", -1) % around == around - 1, "it is not of the last axis")


def _rms_norm(b: Block, x: ir.Value, weight: ir.Value, epsilon: float) -> ir.Value:
    name = _NAMES[0] if b.opset >= _OWN_OPSET else _NAMES[1]
    result: ir.Value = b.op(name, x, weight, axis=-1, epsilon=epsilon, stash_type=1, like=x)
    return result


class RmsNorm(Rule):
    """x / sqrt(mean(x²) + epsilon) * weight  →  RMSNormalization(x, weight)

    Before opset 23, onnxruntime's name for it, SimplifiedLayerNormalization.
    """

    def pattern(self, p: Ops, x: Var, weight: Var) -> Any:
        return p.Mul(_divided(p, x, _mean_of_square(p, x, "mean")), weight)

    def check(self, x: ir.Value, weight: ir.Value, mean: ir.Node, epsilon: ir.Value) -> None:
        require(x.dtype in FLOATS and weight.dtype == x.dtype, "x or the weight is no float")
        require(x.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE), "the mean is of half numbers")
        _check_mean(mean)
        _check_row(weight, x, "weight")
        _check_epsilon(epsilon)

    def rewrite(self, b: Block, x: ir.Value, weight: ir.Value, epsilon: ir.Value) -> Any:
        return _rms_norm(b, x, weight, number(epsilon))


class RmsNormCast(Rule):
    """Cast(RmsNorm(Cast(x, to=float32)), to=type of x) * weight  →  RMSNormalization(x, weight)

    As Hugging Face's modules compute it in half precision: the kernel computes in float32 too and
    rounds once less. The weight may be multiplied before the cast back, when it is cast as well.
    """

    def pattern(self, p: Ops, x: Var, weight: Var) -> Any:
        wide = p.Cast(x, to=ir.DataType.FLOAT, name="widen")
        normal = _divided(p, wide, _mean_of_square(p, wide, "mean"))
        row = p.Cast(weight, to=ir.DataType.FLOAT)
        return p.any_of(
            p.Mul(p.Cast(normal, name="narrow"), weight),
            p.Cast(p.op(_NAMES, wide, row, name="norm"), name="narrow"),
        )

    def check(
        self, x: ir.Value, weight: ir.Value, mean: ir.Node | None, epsilon: ir.Value | None,
        norm: ir.Node | None, narrow: ir.Node,
    ) -> None:  # fmt: skip
        half = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        require(x.dtype in half, "x is not half precise")
        require(attribute(narrow, "to") == x.dtype, "the result has another type than x")
        require(weight.dtype == x.dtype, "the weight has another type than x")
        _check_row(weight, x, "weight")
        if norm is not None:
            _check_last(norm)
        if mean is not None and epsilon is not None:
            _check_mean(mean)
            _check_epsilon(epsilon)

    def rewrite(
        self, b: Block, x: ir.Value, weight: ir.Value, epsilon: ir.Value | None,
        norm: ir.Node | None,
    ) -> Any:  # fmt: skip
        small = attribute(norm, "epsilon", 1e-5) if norm is not None else number(epsilon)
        return _rms_norm(b, x, weight, small)


class LayerNorm(Rule):
    """RMSNormalization(x - mean(x), scale) + bias  →  LayerNormalization(x, scale, bias)"""

    since = 17

    def pattern(self, p: Ops, x: Var, scale: Var, bias: Var) -> Any:
        center = p.Sub(x, p.ReduceMean(x, p.optional(p.constant()), name="middle"))
        return p.Add(p.op(_NAMES, center, scale, name="norm"), bias)

    def check(
        self, x: ir.Value, scale: ir.Value, bias: ir.Value, middle: ir.Node, norm: ir.Node
    ) -> None:
        require(x.dtype == ir.DataType.FLOAT, "x is not float32")
        _check_mean(middle)
        _check_last(norm)
        _check_row(scale, x, "scale")
        _check_row(bias, x, "bias")

    def rewrite(
        self, b: Block, x: ir.Value, scale: ir.Value, bias: ir.Value, norm: ir.Node
    ) -> Any:
        epsilon = attribute(norm, "epsilon", 1e-5)
        return b.LayerNormalization(x, scale, bias, axis=-1, epsilon=epsilon, stash_type=1)


RULES: tuple[Rule, ...] = (RmsNorm(), RmsNormCast(), LayerNorm())
