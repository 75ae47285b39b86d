"""Attention as text, for the tests of its rules."""

from __future__ import annotations

from rewriting import parse, same_numbers

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rules.onnxruntime.attention import RULES
from torchferry.optimizer.tally import Tally

__all__ = ["CLEARED", "END", "FINITE", "PRODUCT", "SIZES", "fused", "graph"]

SIZES = ({}, {"a": 1, "b": 1, "t": 1}, {"a": 3, "b": 1, "t": 5})
"""The kernel refuses an empty batch, which has no numbers to be wrong about."""
CONSTANTS = """
    s = Constant<value_float=0.35>() low = Constant<value_float=-3.4e38>()
    inf = Constant<value_float=-inf>() zero = Constant<value_float=0.0>()
    minus = Constant<value_float=-0.35>() least = Constant<value_float=-3.4028235e38>()
    few = Constant<value_float=-10.0>()
    r = Constant<value_float=0.6>() d = Constant<value_float=2.8>()
"""
PRODUCT = "kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(q, kt) x = Mul(x0, s) "
FINITE = "m0 = Where(m, zero, low) w = Add(x, m0) "
END = "p = Softmax<axis=-1>(w) y = MatMul(p, v)"
CLEARED = "p0 = Softmax<axis=-1>(w) n = IsNaN(p0) p = Where(n, zero, p0) y = MatMul(p, v)"


def graph(body: str, mask: str = "bool[a,1,b,t]", heads: int = 4, kv: str = "a,4,t,8") -> str:
    inputs = f"float[a,{heads},b,8] q, float[{kv}] k, float[{kv}] v, {mask} m"
    return f"g ({inputs}) => (float[a,{heads},b,8] y) {{ {CONSTANTS} {body} }}"


def fused(text: str, opset: int = 23, sizes=SIZES):
    after = parse(text, opset)
    assert apply_rules(after, RULES, Tally()) > 0
    same_numbers(parse(text, opset), after, sizes)
    assert apply_rules(after, RULES, Tally()) == 0
    assert not [n for n in after.graph if n.op_type in ("Softmax", "MatMul", "IsNaN")]
    (found,) = [n for n in after.graph if n.op_type == "Attention"]
    return found
