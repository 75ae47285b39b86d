from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from rewriting import SIZES, changes, feeds_for, keeps, parse, run

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rules.onnxruntime.norm import RULES
from torchferry.optimizer.tally import Tally

CONSTANTS = """
    two = Constant<value_float=2.0>() one = Constant<value_float=1.0>()
    eps = Constant<value_float=0.01>() last = Constant<value_ints=[-1]>()
    power = Constant<value_float=-0.5>()
"""
HEAD = "g (float[a,b,6] x, float[6] w) => (float[a,b,6] y) "
SQUARES = ("q = Pow(x, two) ", "q = Mul(x, x) ")
MEAN = "m = ReduceMean<keepdims=1>(q, last) v = Add(m, eps) "
DIVISIONS = (
    "r = Sqrt(v) i = Reciprocal(r) n = Mul(x, i) ",
    "r = Sqrt(v) i = Div(one, r) n = Mul(i, x) ",
    "r = Sqrt(v) n = Div(x, r) ",
    "i = Pow(v, power) n = Mul(x, i) ",
)


def rms(square=SQUARES[0], mean=MEAN, division=DIVISIONS[0], scale="y = Mul(n, w)", head=HEAD):
    return head + "{" + CONSTANTS + square + mean + division + scale + "}"


def agree(text: str, opset: int, tolerance: float = 1e-5) -> ir.Model:
    """Before opset 23 the checker does not know onnxruntime's operator: only numbers count."""
    before, after = parse(text, opset), parse(text, opset)
    assert apply_rules(after, RULES, Tally()) > 0
    assert apply_rules(after, RULES, Tally()) == 0
    for seed, dims in enumerate(SIZES):
        feeds = feeds_for(before, dims, seed)
        (want,), (got,) = run(before, feeds), run(after, feeds)
        assert (want.dtype, want.shape) == (got.dtype, got.shape)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return after


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("division", DIVISIONS)
def test_rms_norm(square, division):
    changes(
        RULES, rms(square, division=division),
        HEAD + "{ y = RMSNormalization<axis=-1, epsilon=0.01, stash_type=1>(x, w) }", opset=23,
    )  # fmt: skip


@pytest.mark.parametrize("opset", [18, 20, 22])
def test_before_opset_23_it_is_called_otherwise(opset):
    (node,) = agree(rms(scale="y = Mul(w, n)"), opset).graph
    assert (node.domain, node.op_type) == ("", "SimplifiedLayerNormalization")


def test_axes_as_an_attribute():
    mean = "m = ReduceMean<axes=[2], keepdims=1>(q) v = Add(eps, m) "
    (node,) = agree(rms(mean=mean), 17).graph
    assert node.op_type == "SimplifiedLayerNormalization"


HALF = "g (float16[a,b,6] x0, float16[6] w) => (float16[a,b,6] y) "


@pytest.mark.parametrize(
    "scale",
    ["c = Cast<to=10>(n) y = Mul(w, c)", "w1 = Cast<to=1>(w) c = Mul(n, w1) y = Cast<to=10>(c)"],
)
def test_half_precision(scale):
    text = rms("x = Cast<to=1>(x0) q = Pow(x, two) ", scale=scale, head=HALF)
    nodes = list(agree(text, 20, tolerance=2e-3).graph)
    assert [node.op_type for node in nodes] == ["SimplifiedLayerNormalization"]
    assert nodes[0].inputs[0].name == "x0"


def test_weight_that_gets_one_added():
    text = rms(scale="w1 = Add(w, one) y = Mul(n, w1)")
    nodes = [n.op_type for n in agree(text, 23).graph if n.op_type != "Constant"]
    assert nodes == ["Add", "RMSNormalization"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (rms(mean=MEAN.replace("keepdims=1", "keepdims=0")).replace("[a,b,6] x", "[6,6,6] x"),
         "drops its axis"),
        (rms(mean=MEAN.replace("last", "two_axes")).replace(
            "two =", "two_axes = Constant<value_ints=[1,2]>() two ="), "not of the last axis"),
        (rms().replace("value_float=0.01", "value_float=-0.01"), "epsilon"),
        (rms().replace("value_float=0.01", "value=float[1,1,1,1] {0.01}"), None),
        (rms(head="g (float[a,b,6] x, float[1] w) => (float[a,b,6] y) "), "long as the last"),
        (rms(head="g (float[a,b,6] x, float[b,6] w) => (float[a,b,6] y) "), "no vector"),
        (rms(head="g (float[a,b,6] x, float[6] w) => (float[a,b,6] y, float[a,b,6] n) "),
         "output of the graph"),
    ],
)  # fmt: skip
def test_what_is_no_rms_norm_stays(text, reason):
    keeps(RULES, text, reason, opset=23)


def test_epsilon_outside_the_root_stays():
    division = "r0 = Sqrt(m) r = Add(r0, eps) n = Div(x, r) "
    mean = "m = ReduceMean<keepdims=1>(q, last) "
    keeps(RULES, rms(mean=mean, division=division), opset=23)


LAYER = "g (float[a,b,6] x, float[6] w, float[6] c) => (float[a,b,6] y) "


@pytest.mark.parametrize("square", ["q = Pow(d, two) ", "q = Mul(d, d) "])
@pytest.mark.parametrize("division", DIVISIONS)
@pytest.mark.parametrize("opset", [18, 23])
def test_layer_norm(square, division, opset):
    center = "u = ReduceMean<keepdims=1>(x, last) d = Sub(x, u) "
    division = division.replace("(x,", "(d,").replace(", x)", ", d)")
    changes(
        RULES,
        rms(center + square, division=division, scale="z = Mul(n, w) y = Add(z, c)", head=LAYER),
        LAYER + "{ y = LayerNormalization<axis=-1, epsilon=0.01, stash_type=1>(x, w, c) }",
        opset=opset,
    )


def test_layer_norm_around_another_middle_stays():
    center = "u = ReduceMean<keepdims=0>(x, last) d = Sub(x, u) "
    body = f"{center} n = RMSNormalization(d, w) y = Add(n, c)"
    text = LAYER.replace("[a,b,6]", "[6,6,6]") + "{" + CONSTANTS + body + "}"
    keeps(RULES, text, "drops its axis", opset=23)
