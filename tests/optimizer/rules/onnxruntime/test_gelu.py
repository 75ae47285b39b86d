from __future__ import annotations

import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules.onnxruntime.gelu import RULES

HEAD = "g (float[a,b,6] x) => (float[a,b,6] y) "
CONSTANTS = """
    root = Constant<value_float={root}>() inverse = Constant<value_float=0.70710678>()
    one = Constant<value_float=1.0>() half = Constant<value_float=0.5>()
    two = Constant<value_float=2.0>() three = Constant<value_float=3.0>()
    part = Constant<value_float=0.044715>() factor = Constant<value_float=0.79788456>()
"""
ENDS = (
    "m = Mul(x, o) y = Mul(m, half)",
    "m = Mul(half, x) y = Mul(m, o)",
    "m = Mul(o, half) y = Mul(x, m)",
    "m = Mul(o, x) y = Div(m, two)",
)
ERF = ("s = Div(x, root) ", "s = Mul(inverse, x) ")
CUBES = ("c = Pow(x, three) ", "q = Mul(x, x) c = Mul(q, x) ", "q = Mul(x, x) c = Mul(x, q) ")


def erf(start=ERF[0], end=ENDS[0], root=1.41421356, one="one") -> str:
    constants = CONSTANTS.format(root=root)
    return HEAD + "{" + constants + start + f"e = Erf(s) o = Add(e, {one}) " + end + "}"


def tanh(cube=CUBES[0], end=ENDS[0]) -> str:
    inner = cube + "p = Mul(c, part) i = Add(x, p) f = Mul(i, factor) t = Tanh(f) "
    return HEAD + "{" + CONSTANTS.format(root=1) + inner + "o = Add(one, t) " + end + "}"


@pytest.mark.parametrize("start", ERF)
@pytest.mark.parametrize("end", ENDS)
def test_exact_gelu_stays_exact(start, end):
    changes(RULES, erf(start, end), HEAD + "{ y = Gelu(x) }")


def test_before_opset_20_onnxruntimes_own():
    changes(RULES, erf(), HEAD + "{ y = com.microsoft.Gelu(x) }", opset=19)


@pytest.mark.parametrize("cube", CUBES)
@pytest.mark.parametrize("end", ENDS)
def test_tanh_gelu(cube, end):
    changes(RULES, tanh(cube, end), HEAD + "{ y = com.microsoft.FastGelu(x) }")


def test_gelu_by_tanh():
    text = HEAD + '{ y = Gelu<approximate="tanh">(x) }'
    changes(RULES, text, HEAD + "{ y = com.microsoft.FastGelu(x) }")


def test_exact_gelu_is_not_made_faster():
    keeps(RULES, HEAD + "{ y = Gelu(x) }")


@pytest.mark.parametrize(
    "text",
    [
        erf(root=1.4142),
        erf(one="half"),
        tanh().replace("0.044715", "0.044"),
        tanh().replace("0.79788456", "0.8"),
        tanh("c = Pow(x, two) "),
    ],
)
def test_nearly_gelu_stays(text):
    keeps(RULES, text)


def test_other_types_stay():
    text = "g (double[a] x) => (double[a] y) { s = Sigmoid(x) y = Mul(x, s) }"
    keeps(RULES, text, "float32")


def test_half_precision():
    half = HEAD.replace("float[", "float16[")
    text = half + "{ s = Sigmoid(x) y = Mul(s, x) }"
    after = half + "{ y = com.microsoft.QuickGelu<alpha=1.0>(x) }"
    changes(RULES, text, after, tolerance=2e-3)
    text = BIAS.replace("float[", "float16[") + "{ t = Add(x, c) y = Gelu(t) }"
    after = BIAS.replace("float[", "float16[") + "{ y = com.microsoft.BiasGelu(x, c) }"
    changes(RULES, text, after, tolerance=2e-3)
    text = half + '{ y = Gelu<approximate="tanh">(x) }'
    changes(RULES, text, half + "{ y = com.microsoft.FastGelu(x) }", tolerance=2e-3)


BIAS = "g (float[a,b,6] x, float[6] c) => (float[a,b,6] y) "


@pytest.mark.parametrize("order", ["x, c", "c, x"])
def test_bias(order):
    changes(RULES, BIAS + f"{{ t = Add({order}) y = Gelu(t) }}",
            BIAS + "{ y = com.microsoft.BiasGelu(x, c) }")  # fmt: skip
    changes(RULES, BIAS + f"{{ t = Add({order}) y = com.microsoft.FastGelu(t) }}",
            BIAS + "{ y = com.microsoft.FastGelu(x, c) }")  # fmt: skip


@pytest.mark.parametrize(("size", "reason"), [("float[1]", "no row"), ("float[b,6]", "no vector")])
def test_a_bias_of_another_size_stays(size, reason):
    text = BIAS.replace("float[6] c", f"{size} c") + "{ t = Add(x, c) y = Gelu(t) }"
    keeps(RULES, text, reason)


def test_a_sum_that_is_read_elsewhere_stays():
    head = BIAS.replace("y)", "y, float[a,b,6] t)")
    keeps(RULES, head + "{ t = Add(x, c) y = Gelu(t) }", "output of the graph")


def test_quick_gelu():
    changes(RULES, HEAD + "{ s = Sigmoid(x) y = Mul(s, x) }",
            HEAD + "{ y = com.microsoft.QuickGelu<alpha=1.0>(x) }")  # fmt: skip
    alpha = "k = Constant<value_float=1.5>() "
    changes(RULES, HEAD + "{" + alpha + "t = Mul(k, x) s = Sigmoid(t) y = Mul(x, s) }",
            HEAD + "{ y = com.microsoft.QuickGelu<alpha=1.5>(x) }")  # fmt: skip


def test_a_sigmoid_of_something_else_stays():
    head = "g (float[a] x, float[a] z) => (float[a] y) "
    keeps(RULES, head + "{ s = Sigmoid(z) y = Mul(x, s) }")
