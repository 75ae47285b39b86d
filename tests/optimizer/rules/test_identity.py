import pytest
from rewriting import changes, keeps

from torchferry.optimizer.rules import identity

RULES = {rule.name: rule for rule in identity.RULES}
DROPS = "r = Constant<value_float=0.5>() b = Constant<value=bool {1}>() y = Dropout(x, r, b)"
TURNS = (
    "c = Constant<value_ints=[-1,3]>() t = Reshape(x, c) d = Constant<value_ints=[3,-1]>() "
    "u = Reshape(t, d) v = Reshape(u, c) y = Relu(v)"
)
G = "g (float[a,3] x) => (float[a,3] y) "


@pytest.mark.parametrize(
    ("rule", "node"),
    [
        ("Identity", "t = Identity(x)"),
        ("Dropout", "t = Dropout(x)"),
        ("Neutral", "c = Constant<value_float=0.0>() t = Add(c, x)"),
        ("Neutral", "c = Constant<value_float=1.0>() t = Mul(x, c)"),
        ("Neutral", "c = Constant<value_float=1.0>() t = Div(x, c)"),
        ("Neutral", "c = Constant<value_floats=[0.0]>() t = Sub(x, c)"),
        ("Neg", "s = Neg(x) t = Neg(s)"),
        ("ConcatOne", "t = Concat<axis=1>(x)"),
        ("ConcatOne", "t = Min(x)"),
        ("Pad", "c = Constant<value_ints=[0,0,0,0]>() t = Pad(x, c)"),
        ("Tile", "c = Constant<value_ints=[1,1]>() t = Tile(x, c)"),
        ("SameShape", "c = Constant<value_ints=[0,3]>() t = Reshape(x, c)"),
        ("SameShape", "c = Constant<value_ints=[1,3]>() t = Expand(x, c)"),
        ("TransposeInOrder", "t = Transpose<perm=[0,1]>(x)"),
    ],
)
def test_nodes_that_change_nothing_go(rule, node):
    changes(RULES[rule], G + "{" + node + " y = Relu(t) }", G + "{ y = Relu(x) }")


def test_twice_not():
    text = "g (bool[a] x, bool[a] z) => (bool[a] y) {{ {} }}"
    changes(
        RULES["Not"],
        text.format("s = Not(x) t = Not(s) y = And(t, z)"),
        text.format("y = And(x, z)"),
    )


def test_the_name_of_an_output_stays():
    changes(RULES["Identity"], G + "{ r = Relu(x) y = Identity(r) }", G + "{ y = Relu(x) }")
    changes(RULES["Neg"], G + "{ n = Neg(x) y = Neg(n) }", G + "{ y = Identity(x) }")


@pytest.mark.parametrize(
    ("rule", "node", "reason"),
    [
        ("Identity", "y = Identity(x)", "a node of its own"),
        ("Dropout", DROPS, "it drops"),
        ("Neutral", "c = Constant<value_float=2.0>() y = Mul(x, c)", None),
        ("ConcatOne", "y = Max(x)", None),  # it keeps apart what onnxruntime would fuse wrongly
        ("Pad", "c = Constant<value_ints=[0,1,0,-1]>() y = Pad(x, c)", "it pads"),
        ("SameShape", TURNS, "the shape may change"),
        ("TransposeInOrder", "t = Transpose<perm=[1,0]>(x) y = Transpose(t)", "change places"),
    ],
)  # fmt: skip
def test_declines(rule, node, reason):
    keeps(RULES[rule], G + "{" + node + "}", reason)


def test_a_neutral_number_that_gives_more_axes_stays():
    keeps(
        RULES["Neutral"],
        "g (float x) => (float[1] y) { c = Constant<value_floats=[0.0]>() y = Add(x, c) }",
        "more axes",
    )


def test_tile_declines():
    text = "g (float[a,3] x) => (float[a,6] y) { c = Constant<value_ints=[1,2]>() y = Tile(x, c) }"
    keeps(RULES["Tile"], text, "it repeats")


def test_two_outputs_of_one_value_stay_two():
    changes(
        RULES["Neg"],
        "g (float[a] x) => (float[a] y, float[a] z) "
        "{ r = Relu(x) s = Neg(r) y = Neg(s) t = Neg(r) z = Neg(t) }",
        "g (float[a] x) => (float[a] y, float[a] z) { y = Relu(x) z = Identity(y) }",
    )
