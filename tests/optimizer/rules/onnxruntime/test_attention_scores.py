"""Scores are taken apart into what the kernel is told."""

from __future__ import annotations

import pytest
from rewriting import parse

from torchferry.optimizer.rule import Declined
from torchferry.optimizer.rules.onnxruntime.attention_scores import (
    is_product,
    once,
    read_scores,
    ungrouped,
)

HEAD = "float[a,4,b,8] q, float[a,4,t,8] k, float[a,1,b,t] m, float[a,2,t,8] g"
CONSTANTS = "h = Constant<value_float=0.5>() low = Constant<value_float=-1e38>() "
PRODUCT = "kt = Transpose<perm=[0,1,3,2]>(k) x = MatMul(q, kt) "


def made(body: str, out: str = "float[a,4,b,t] w"):
    (value,) = parse(f"g ({HEAD}) => ({out}) {{ {CONSTANTS} {body} }}", 23).graph.outputs
    return value


def test_scale_and_mask():
    found = read_scores(made(PRODUCT + "s = Mul(x, h) w = Add(m, s)"))
    assert (found.query.name, found.key.name, found.scale) == ("q", "k", 0.5)
    assert found.bias.name == "m"
    assert found.mask is None
    assert found.order == [0, 1, 2, 3]
    assert found.shared_key is found.key


def test_scales_are_multiplied():
    found = read_scores(made("p = Mul(q, h) kt = Transpose<perm=[0,1,3,2]>(k) o = Div(kt, h) "
                             "x = MatMul(p, o) w = Mul(x, h)"))  # fmt: skip
    assert found.scale == pytest.approx(0.5 / 0.5 * 0.5)
    assert found.bias is None


def test_a_chosen_score():
    found = read_scores(made(PRODUCT + "c = Greater(m, h) w = Where(c, x, low)"))
    assert (found.mask.name, found.hidden.name) == ("c", "low")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (PRODUCT + "c = Greater(m, h) w = Where(c, x, h)", "hidden scores count"),
        (PRODUCT + "w = Add(x, x)", "not clear which"),
        (PRODUCT + "t = Tanh(x) w = Add(t, m)", "caps scores"),
        ("kt = Transpose<perm=[1,0,3,2]>(k) w = MatMul(q, kt)", "not transposed"),
        ("w = Expand(m, n) n = Shape(m)", "no product"),
    ],
)
def test_what_is_made_otherwise(body, reason):
    if "Expand" in body:
        body = "n = Shape(m) w = Expand(m, n)"
    with pytest.raises(Declined, match=reason):
        read_scores(made(body))


def test_products():
    assert is_product(made(PRODUCT + "w = Mul(h, x)"))
    assert not is_product(made(PRODUCT + "w = Neg(x)"))
    assert not is_product(None)


def test_a_head_that_is_repeated():
    repeat = """two = Constant<value_ints=[2]>() by = Constant<value_ints=[1,1,2,1,1]>()
        to = Constant<value_ints=[0,4,-1,8]>() u = Unsqueeze(g, two) e = Expand(u, by)
        w = Reshape(e, to)"""
    assert once(made(repeat, "float[a,4,t,8] w")).name == "g"
    plain = made("w = Neg(k)", "float[a,4,t,8] w")
    assert once(plain) is plain


def test_rows_of_a_group():
    value = made("to = Constant<value_ints=[0,2,-1,8]>() w = Reshape(q, to)", "float[a,2,n,8] w")
    like = made(PRODUCT + "w = Neg(x)")
    with pytest.raises(Declined, match="rows of a group"):
        ungrouped(like, like)
    assert value.producer().op_type == "Reshape"
