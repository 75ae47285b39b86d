import numpy as np
import pytest
from rewriting import changes, keeps, parse, run, same_numbers

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rules import reshape
from torchferry.optimizer.tally import Tally

RULES = {rule.name: rule for rule in reshape.RULES}


def constants(**vectors):
    return " ".join(f"{n} = Constant<value_ints={list(v)}>()" for n, v in vectors.items())


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ([-1, 4], [3, -1], [3, -1]),
        ([0, 2, 6], [0, 12], [0, 12]),  # the copied size is that of x too
        ([-1, 3], [-1, 0], [-1, 3]),  # it is known
    ],
)
def test_two_reshapes_become_one(first, second, one):
    g = "g (float[a,12] x) => (float[m,n] y) "
    changes(
        RULES["ReshapeReshape"],
        g + "{" + constants(s=first, t=second) + "u = Reshape(x, s) y = Reshape(u, t) }",
        g + "{" + constants(t=one) + "y = Reshape(x, t) }",
        sizes=({}, {"a": 1}, {"a": 5}),
    )


def test_a_target_that_may_have_zeros_but_has_none():
    g = "g (float[a,12] x) => (float[m,n] y) {" + constants(s=[0, 3, 4], t=[-1, 6], z=[0, 6])
    outer = "u = Reshape(x, s) y = Reshape<allowzero=1>(u, {}) }}"
    after = "g (float[a,12] x) => (float[m,n] y) {" + constants(t=[-1, 6]) + "y = Reshape(x, t) }"
    changes(RULES["ReshapeReshape"], g + outer.format("t"), after)
    keeps(RULES["ReshapeReshape"], g + outer.format("z"), "a size of 0")


def test_computed_sizes_become_copies():
    text = """g (float[a,b,12] x) => (float[m,n,k] y) { s = Shape<end=2>(x)
        r = Constant<value_ints=[-1,4]>() t = Concat<axis=0>(s, r)
        y = Reshape<allowzero=1>(x, t) }"""
    after = "g (float[a,b,12] x) => (float[m,n,k] y) {" + constants(t=[0, 0, 3, 4])
    changes(
        RULES["ReshapeConstant"], text, after + "y = Reshape(x, t) }",
        sizes=({}, {"a": 1, "b": 1}, {"a": 5}),
    )  # fmt: skip


def test_a_copied_size_that_x_does_not_have():
    text = "g (float[a,12] x) => (float[m,n] y) {" + constants(s=[-1, 1, 4], t=[0, 4])
    keeps(RULES["ReshapeReshape"], text + "u = Reshape(x, s) y = Reshape(u, t) }", "a 0 copies")


def test_squeeze_before_reshape():
    g = "g (float[a,1,12] x) => (float[m,n] y) "
    changes(
        RULES["SqueezeReshape"],
        g + "{" + constants(s=[1], t=[-1, 6]) + "u = Squeeze(x, s) y = Reshape(u, t) }",
        g + "{" + constants(t=[-1, 6]) + "y = Reshape(x, t) }",
    )
    text = g + "{" + constants(s=[1], t=[0, 12]) + "u = Squeeze(x, s) y = Reshape(u, t) }"
    keeps(RULES["SqueezeReshape"], text, "a 0 copies")


COMPUTED = (
    "g (float[a,b,12] x) => (float[m,n,p,q] y) { s = Shape<start=0, end=1>(x) "
    "t = Shape<start=1, end=2>(x)"
)


def test_computed_sizes_become_constant():
    changes(
        RULES["ReshapeConstant"],
        COMPUTED + constants(h=[3, 4]) + "u = Concat<axis=0>(s, t, h) y = Reshape(x, u) }",
        "g (float[a,b,12] x) => (float[m,n,p,q] y) {" + constants(u=[0, 0, 3, 4])
        + "y = Reshape(x, u) }",
    )  # fmt: skip


def test_what_is_left_is_found_out_only_where_nothing_can_be_zero():
    g = "g (float[a,b,12] x) => (float[m,n] y) { s = Shape<end=1>(x) t = Shape<start=1, end=2>(x)"
    body = "u = Mul(s, t) v = Concat<axis=0>(u, h) y = Reshape(x, v) }"
    changes(
        RULES["ReshapeConstant"],
        g + constants(h=[12]) + body,
        "g (float[a,b,12] x) => (float[m,n] y) {" + constants(v=[-1, 12]) + "y = Reshape(x, v) }",
    )
    body = "k = Mul(t, h) v = Concat<axis=0>(s, k) y = Reshape(x, v) }"
    keeps(RULES["ReshapeConstant"], g + constants(h=[12]) + body, "a size of 0")


def test_two_unsqueezes_become_one():
    g = "g (float[a,3] x) => (float[m,n,p,q,r] y) "
    changes(
        RULES["UnsqueezeUnsqueeze"],
        g + "{" + constants(s=[1], t=[0, -1]) + "u = Unsqueeze(x, s) y = Unsqueeze(u, t) }",
        g + "{" + constants(t=[0, 2, 4]) + "y = Unsqueeze(x, t) }",
    )
    text = "g (float[a,3] x, int64[1] s) => (float[m,n,p,q] y) {" + constants(t=[0])
    keeps(RULES["UnsqueezeUnsqueeze"], text + "u = Unsqueeze(x, s) y = Unsqueeze(u, t) }")


def test_squeeze_undoes_unsqueeze():
    g = "g (float[a,3] x) => (float[a,3] y) "
    changes(
        RULES["SqueezeUnsqueeze"],
        g + "{" + constants(s=[1], t=[-2]) + "u = Unsqueeze(x, s) v = Squeeze(u, t) y = Relu(v) }",
        g + "{ y = Relu(x) }",
    )
    text = "g (float[1,3] x) => (float[3,1] y) {" + constants(s=[2], t=[0])
    keeps(RULES["SqueezeUnsqueeze"], text + "u = Unsqueeze(x, s) y = Squeeze(u, t) }", "differ")


def test_an_expand_that_broadcasting_does():
    g = "g (float[1,3] x, float[a,3] z) => (float[a,3] y) { s = Shape(z) "
    changes(
        RULES["ExpandBroadcast"],
        g + "e = Expand(x, s) y = Sub(z, e) }",
        "g (float[1,3] x, float[a,3] z) => (float[a,3] y) { y = Sub(z, x) }",
    )
    wide = "g (float[1,3] x, float[1,3] z) => (float[4,3] y) {" + constants(s=[4, 3])
    keeps(RULES["ExpandBroadcast"], wide + "e = Expand(x, s) y = Sub(z, e) }", "y is smaller")


def test_dims_that_nobody_named_are_not_equal():
    text = (
        "g (float[a,b,4] x) => (float[m,n] y) { s = Shape<start=0, end=1>(x)"
        + constants(h=[-1])
        + "u = Concat<axis=0>(s, h) y = Reshape(x, u) }"
    )
    model = parse(text)
    apply_rules(model, reshape.RULES, Tally())
    feeds = {"a": 3, "b": 5}
    same_numbers(parse(text), model, (feeds,))
    assert run is not None


def test_what_is_left_open_becomes_a_number():
    changes(
        RULES["ReshapeRest"],
        "g (float[a,b,4,8] x) => (float[a,b,m] y) "
        "{ c = Constant<value_ints=[0,0,-1]>() y = Reshape(x, c) }",
        "g (float[a,b,4,8] x) => (float[a,b,m] y) "
        "{ c = Constant<value_ints=[0,0,32]>() y = Reshape(x, c) }",
        sizes=({"a": 1, "b": 1}, {"a": 2, "b": 3}),
    )


def test_a_number_for_what_is_left_open_makes_size_0_possible():
    text = "g (float[a,b,32] x) => (float[a,b,4,m] y) { c = Constant<value_ints=[0,0,4,-1]>() "
    model = parse(text + "y = Reshape(x, c) }")
    apply_rules(model, [RULES["ReshapeRest"]], Tally())
    assert run(model, {"x": np.zeros((0, 3, 32), np.float32)})[0].shape == (0, 3, 4, 8)


@pytest.mark.parametrize(
    ("shape", "target", "reason"),
    [
        ("a,b,8", "0,-1", "leave another one open"),
        ("a,8", "-1,8", "no size is copied"),
        ("a,8", "0,8", "none is left open"),
        ("a,0", "0,-1", "leave another one open"),
    ],
)
def test_what_is_left_open_stays_where_it_does_not_follow(shape, target, reason):
    sizes = "p,q,r"[: len(target.split(",")) * 2 - 1]
    body = f"c = Constant<value_ints=[{target}]>() y = Reshape(x, c)"
    text = f"g (float[{shape}] x) => (float[{sizes}] y) {{ {body} }}"
    keeps(RULES["ReshapeRest"], text, reason)
