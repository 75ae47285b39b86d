"""What hides the keys behind each query, in every spelling; what hides something else is told."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from rewriting import parse

from torchferry.optimizer.facts import size_of_text
from torchferry.optimizer.rules.onnxruntime.attention_mask import (
    hides,
    hides_or_keeps,
    is_causal,
    is_finite,
    is_number,
    least,
    made_by,
    sees,
)

HEAD = """g (float[a,b] x, float[b,t] z, bool[b,t] m) => (float[N,M] y) {
  n = Shape<start=1, end=2>(x) l = Shape<start=1, end=2>(z) both = Concat<axis=0>(n, n)
  other = Concat<axis=0>(n, l) zero = Constant<value_float=0.0>() one = Constant<value_float=1.0>()
  low = Constant<value_float=-3.4028235e38>() inf = Constant<value_float=-inf>()
  few = Constant<value_float=-1e4>() k0 = Constant<value_int=0>() k1 = Constant<value_int=1>()
  k2 = Constant<value_int=2>() axes = Constant<value_ints=[-1]>()
"""
ABOVE = "f = Expand(inf, both) y = Trilu<upper=1>(f, k1)"
BELOW = "f = Expand(one, both) c = Trilu<upper=0>(f) e = Equal(c, zero) y = Where(e, low, zero)"
CHOSEN = "f = Expand(one, both) g = Cast<to=9>(f) c = Trilu<upper=0>(g) y = Where(c, zero, inf)"


def value(body: str, name: str = "y") -> ir.Value:
    model = parse(HEAD + body + "}")
    (found,) = [v for node in model.graph for v in node.outputs if v.name == name]
    return found


def causal(body: str, columns: str = "b") -> bool:
    return is_causal(value(body), size_of_text("b"), size_of_text(columns))


@pytest.mark.parametrize("body", [ABOVE, ABOVE.replace("inf", "low"), BELOW])
def test_what_is_causal(body):
    assert causal(body)


@pytest.mark.parametrize(
    "body",
    [
        ABOVE.replace("k1", "k0"),  # a query does not see itself
        ABOVE.replace("k1", "k2"),
        ABOVE.replace("upper=1", "upper=0"),
        ABOVE.replace("inf", "few"),
        ABOVE.replace("both", "other"),
        ABOVE.replace("(f, k1)", "(x, k1)"),
        BELOW.replace("upper=0", "upper=1"),
        BELOW.replace("low, zero", "zero, low"),
        BELOW.replace("low", "few"),
        BELOW.replace("(f)", "(f, k1)"),
        BELOW.replace("Equal(c, zero)", "Equal(c, one)"),
        BELOW.replace("Expand(one", "Expand(zero"),
        "y = Neg(x)",
    ],
)
def test_what_is_not(body):
    assert not causal(body)


def test_another_number_of_keys_is_not():
    assert not causal(ABOVE, "t")
    assert not is_causal(None, 3, 3)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (np.triu(np.full((3, 3), -np.inf), 1), True),
        (np.triu(np.full((3, 3), -np.inf), 0), False),
        (np.triu(np.full((3, 3), -1.0), 1), False),
        (np.triu(np.full((3, 3), -np.inf), 1) + np.eye(3), False),
        (np.triu(np.full((3, 4), -np.inf), 1), False),
        (np.triu(np.full((3, 3), -np.inf), 1)[None], False),
    ],
)
def test_constants(content, wanted):
    bias = ir.Value(name="bias", const_value=ir.tensor(content.astype(np.float32)))
    assert is_causal(bias, 3, 3) is wanted


@pytest.mark.parametrize(
    ("number", "wanted"), [(-np.inf, True), (-3.4028235e38, True), (-1e30, False), (0.0, False)]
)
def test_numbers_that_hide(number, wanted):
    assert hides(np.float32(number)) is wanted
    assert not hides(np.array([number, number], np.float32))


def test_finite_values():
    assert is_finite(value("c = Where(m, zero, low) y = Add(c, few)"))
    assert is_finite(value("c = Where(m, zero, few) y = Cast<to=1>(c)"))
    assert not is_finite(value("c = Where(m, zero, low) h = Cast<to=10>(c) y = Cast<to=1>(h)"))
    assert not is_finite(value("c = Where(m, zero, low) d = Cast<to=11>(c) y = Cast<to=1>(d)"))
    full = "t = Expand(low, both) i = Constant<value_ints=[0]>() u = Expand(low, l) "
    assert is_finite(value(full + "y = ScatterND(t, i, u)"))
    for reduction in ("add", "mul"):
        assert not is_finite(value(full + f'y = ScatterND<reduction="{reduction}">(t, i, u)'))
    assert is_finite(value("t = Expand(low, both) y = Trilu(t)"))
    assert is_finite(value("c = Cast<to=1>(m) t = Where(m, zero, low) y = Mul(c, t)"))
    assert not is_finite(value("c = Cast<to=1>(both) t = Where(m, zero, low) y = Mul(t, c)"))
    assert not is_finite(value("c = Cast<to=1>(m) y = Mul(x, c)"))
    assert not is_finite(value("y = Where(m, zero, inf)"))
    assert not is_finite(value("y = Where(m, zero, x)"))
    assert not is_finite(None)


def test_what_hides_for_good_or_not_at_all():
    assert hides_or_keeps(value("c = Where(m, zero, inf) y = Unsqueeze(c, k0)"))
    assert hides_or_keeps(value("y = Where(m, inf, zero)"))
    assert not hides_or_keeps(value("y = Where(m, zero, low)"))
    assert not hides_or_keeps(value("y = Where(m, zero, x)"))
    assert not hides_or_keeps(value("y = Add(x, zero)"))
    assert not hides_or_keeps(None)


def test_what_asks_whether_a_row_is_seen():
    asked = "c = Cast<to=1>(m) s = ReduceSum(c, axes) y = Greater(s, zero)"
    mask = next(v for v in value(asked).producer().graph.inputs if v.name == "m")
    assert sees(mask.graph.node(-1).outputs[0], mask)
    for same in (
        "q = ReduceMax(m, axes)",
        asked.replace("y = Greater(s, zero)", "q = Cast<to=9>(s)"),
    ):
        found = value(f"{same} y = Cast<to=1>(q)", "q")
        inputs = found.producer().graph.inputs
        assert sees(found, next(v for v in inputs if v.name == "m"))
    for other in (
        asked.replace("s, zero", "s, one"),
        asked.replace("ReduceSum(c, axes)", "Neg(c)"),
        asked.replace("ReduceSum(", "ReduceSum<keepdims=0>("),
        asked.replace(
            "y = Greater(s, zero)", "g = Greater(s, zero) h = Cast<to=1>(g) y = Greater(h, zero)"
        ),
    ):
        found = value(other)
        inputs = found.producer().graph.inputs
        assert not sees(found, next(v for v in inputs if v.name == "m"))


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("s = ReduceMax(z, axes) y = Greater(s, inf)", True),
        (
            "g = Greater(z, inf) c = Cast<to=1>(g) s = ReduceSum(c, axes) y = Greater(s, zero)",
            True,
        ),
        ("s = ReduceMax(z, axes) y = Greater(s, zero)", False),
        ("s = ReduceSum(z, axes) y = Greater(s, inf)", False),
        ("s = ReduceSum(z, axes) y = Greater(s, zero)", False),
        ("c = Cast<to=1>(z) s = ReduceSum(c, axes) y = Greater(s, zero)", False),
    ],
)
def test_what_asks_whether_an_added_mask_hides_a_row(asked, wanted):
    found = value(asked)
    mask = next(v for v in found.producer().graph.inputs if v.name == "z")
    assert sees(found, mask) is wanted


def test_numbers_and_makers():
    found = value("y = Add(x, zero)")
    node = made_by(found, "Mul", "Add")
    assert [is_number(value) for value in node.inputs] == [False, True]
    assert made_by(found, "Mul") is None
    assert made_by(None, "Mul") is None
    assert not is_number(None)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("y = Where(m, zero, low)", np.finfo(np.float32).min),
        ("t = Where(m, zero, few) u = Add(t, few) y = Unsqueeze(u, k0)", -2e4),
        ("y = Expand(one, both)", 1),
        ("y = ConstantOfShape(both)", 0),
        ("t = Expand(few, both) y = Trilu(t)", -1e4),
        ("t = Expand(one, both) y = Trilu(t)", 0),
        ("c = Cast<to=1>(m) y = Mul(c, one)", 0),
        ("c = Cast<to=1>(m) y = Mul(few, c)", -1e4),
        ("y = Add(x, few)", -np.inf),
        ("y = Neg(one)", -np.inf),
    ],
)
def test_how_low_a_mask_is(body, wanted):
    assert least(value(body)) == pytest.approx(wanted)
