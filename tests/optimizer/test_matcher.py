import numpy as np
import pytest
from rewriting import parse

from torchferry.optimizer.matcher import Miss, matches
from torchferry.optimizer.rule import Rule


def rule_of(draw):
    class Drawn(Rule):
        pattern = draw

    return Drawn()


def found(draw, body, head="g (float[a,4] x, float[a,4] z) => (float[m,n] y) ", miss=None):
    """What a pattern binds at the last node of a graph; names of values, operators of nodes."""
    model = parse(head + "{" + body + "}")
    return [
        {name: getattr(item, "name", None) or getattr(item, "op_type", item)
         for name, item in match.found.items()}
        for match in matches(rule_of(draw), list(model.graph)[-1], miss)
    ]  # fmt: skip


def test_a_name_is_one_value():
    def silu(self, p, v):
        return p.Mul(v, p.Sigmoid(v))

    assert found(silu, "s = Sigmoid(x) y = Mul(x, s)") == [{"v": "x"}]
    assert found(silu, "s = Sigmoid(x) y = Mul(s, x)") == [{"v": "x"}]
    assert found(silu, "s = Sigmoid(x) y = Mul(s, z)") == []


def test_only_commutative_operators_are_turned():
    def minus(self, p, v):
        return p.Sub(v, p.Neg(v))

    assert found(minus, "s = Neg(x) y = Sub(x, s)") == [{"v": "x"}]
    assert found(minus, "s = Neg(x) y = Sub(s, x)") == []


def test_every_way_is_found():
    def add(self, p, v, w):
        return p.Add(v, w)

    ways = found(add, "y = Add(x, z)")
    assert ways == [{"v": "x", "w": "z"}, {"v": "z", "w": "x"}]
    assert found(add, "y = Add(x, x)") == [{"v": "x", "w": "x"}]


@pytest.mark.parametrize(
    ("value", "fits"),
    [("0.5", True), ("0.50000001", True), ("0.501", False), ("-0.5", False)],
)
def test_numbers_are_as_near_as_float32_tells(value, fits):
    def half(self, p, v):
        return p.Mul(v, 0.5)

    body = f"c = Constant<value_float={value}>() y = Mul(c, x)"
    assert bool(found(half, body)) == fits


def test_numbers_of_half_precision():
    def root2(self, p, v):
        return p.Div(v, float(np.sqrt(2)))

    head = "g (float16[a] x) => (float16[a] y) "
    body = "c = Constant<value=float16 {15784}>() y = Div(x, c)"  # the bits of 1.4140625
    assert found(root2, body, head) == [{"v": "x"}]


def test_constants_by_shape_and_predicate():
    def perm(self, p, v):
        return p.Reshape(v, [0, -1])

    def small(self, p, v):
        return p.Reshape(v, p.constant(lambda content: content.size < 3, name="shape"))

    body = "s = Constant<value_ints=[0,-1]>() y = Reshape(x, s)"
    assert found(perm, body) == [{"v": "x"}]
    assert found(small, body) == [{"v": "x", "shape": "s"}]
    longer = "s = Constant<value_ints=[0,1,-1]>() y = Reshape(x, s)"
    assert found(perm, longer) == found(small, longer) == []
    many_axes = "c = Constant<value=float[1,1,1] {0.5}>() y = Mul(x, c)"
    assert found(lambda self, p, v: p.Mul(v, 0.5), many_axes) == []  # y has three axes


def test_an_overridable_initializer_is_not_constant():
    model = parse("g (float[a] x, float c) => (float[a] y) <float c = {0.5}> { y = Mul(x, c) }")
    half = rule_of(lambda self, p, v: p.Mul(v, 0.5))
    assert list(matches(half, model.graph[0])) == []


def test_attributes():
    def plain(self, p, v):
        return p.Softmax(v)

    def named(self, p, v):
        return p.Softmax(v, name="node")

    def last(self, p, v):
        return p.Softmax(v, axis=lambda axis: axis in (-1, 1))

    for axis, expected in ((-1, (1, 1, 1)), (1, (0, 1, 1)), (0, (0, 1, 0))):
        body = f"y = Softmax<axis={axis}>(x)"
        assert tuple(len(found(draw, body)) for draw in (plain, named, last)) == expected
    assert [len(found(draw, "y = Softmax(x)")) for draw in (plain, named, last)] == [1, 1, 1]


def test_optional_inputs_and_the_rest():
    def clip(self, p, v, low, high):
        return p.Clip(v, p.optional(low), p.optional(high))

    def concat(self, p):
        return p.Concat(p.rest("parts"), name="c")

    def narrow(self, p, v):
        return p.Clip(v)

    bound = "c = Constant<value_float=1.0>() "
    assert found(clip, "y = Clip(x)") == [{"v": "x", "low": None, "high": None}]
    only_high = bound + 'y = Clip(x, "", c)'
    assert found(clip, only_high) == [{"v": "x", "low": None, "high": "c"}]
    assert found(narrow, only_high) == []
    parts = found(concat, "y = Concat<axis=0>(x, z, x)")[0]["parts"]
    assert [part.name for part in parts] == ["x", "z", "x"]


def test_alternatives():
    def either(self, p, v):
        return p.Relu(p.any_of(p.Cast(v, name="cast"), v))

    ways = found(either, "c = Cast<to=1>(x) y = Relu(c)")
    assert ways == [{"cast": "Cast", "v": "x"}, {"v": "c"}]
    assert found(either, "y = Relu(x)") == [{"v": "x"}]


def test_an_output_counts():
    def second(self, p, v):
        _, right = p.Split(v, outputs=2, name="split")
        return p.Neg(right)

    split = "s, t = Split<axis=1, num_outputs=2>(x) "
    assert found(second, split + "y = Neg(t)") == [{"v": "x", "split": "Split"}]
    assert found(second, split + "y = Neg(s)") == []


def test_one_pattern_is_one_node():
    def shared(self, p, v):
        inner = p.Exp(v)
        return p.Mul(inner, p.Neg(inner))

    assert found(shared, "e = Exp(x) n = Neg(e) y = Mul(e, n)") == [{"v": "x"}]
    assert found(shared, "e = Exp(x) f = Exp(x) n = Neg(f) y = Mul(e, n)") == []


def test_siblings_are_found_upwards():
    def both(self, p, v, a, b):
        return p.MatMul(v, a, name="one"), p.MatMul(v, b, name="two")

    model = parse(
        "g (float[n,4] x, float[4,4] q, float[4,4] k) => (float[n,4] y, float[n,4] w) "
        "{ y = MatMul(x, q) w = MatMul(x, k) }"
    )
    (match,) = matches(rule_of(both), model.graph[0])
    assert [value.name for value in match.replaced] == ["y", "w"]
    assert (match.found["a"].name, match.found["b"].name) == ("q", "k")


def test_the_nearest_miss():
    def deep(self, p, v):
        return p.Relu(p.Neg(p.Exp(v)))

    miss = Miss()
    assert found(deep, "l = Log(x) n = Neg(l) y = Relu(n)", miss=miss) == []
    assert (miss.matched, miss.reason) == (2, "Log is not Exp")
