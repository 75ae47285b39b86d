"""Attention in every spelling becomes one node; what would change numbers stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from rewriting import feeds_for, keeps, parse, run, same_numbers

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.folding import Fold
from torchferry.optimizer.known_sizes import name_sizes
from torchferry.optimizer.rules import identity
from torchferry.optimizer.rules.onnxruntime.attention import RULES
from torchferry.optimizer.tally import Tally

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


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize(
    "product",
    [
        PRODUCT,
        "kt = Transpose<perm=[0,1,3,2]>(k) qs = Mul(s, q) x = MatMul(qs, kt) ",
        "kt = Transpose<perm=[0,1,3,2]>(k) qs = Mul(q, r) ks = Mul(kt, r) x = MatMul(qs, ks) ",
        "ks = Mul(k, s) kt = Transpose<perm=[0,1,3,2]>(ks) x = MatMul(q, kt) ",
        "kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(q, kt) x = Div(x0, d) ",
    ],
)
def test_the_scale_may_stand_anywhere(product, opset):
    found = fused(graph(product + FINITE + END), opset)
    assert found.attributes["scale"].value == pytest.approx(0.36, abs=0.02)


@pytest.mark.parametrize(
    ("body", "mask"),
    [
        (FINITE, "bool[a,4,b,t]"),
        (FINITE.replace("x, m0", "m0, x"), "bool[b,t]"),
        (FINITE, "bool[a,1,1,t]"),
        ("w = Where(m, x, low) ", "bool[a,1,b,t]"),
        ("w = Where(m, x, low) ", "bool[1,1,b,t]"),
        ("w = Where(m, x, least) ", "bool[a,1,b,t]"),
        (FINITE.replace("low", "least"), "bool[a,1,b,t]"),
        ("w = Where(m, x, low) ", "bool[a,1,1,t]"),
    ],
)
def test_masks(body, mask):
    """Drawn at random, with rows that are masked as a whole among them."""
    fused(graph(PRODUCT + body + END, mask))


def test_rows_masked_by_infinity_keep_what_is_put_for_them():
    hidden = PRODUCT + "w = Where(m, x, inf) p = Softmax<axis=-1>(w) u = MatMul(p, v) "
    seen = "c = Cast<to=1>(m) o = Constant<value_ints=[-1]>() n = ReduceSum(c, o) "
    fused(graph(hidden + seen + "some = Greater(n, zero) y = Where(some, u, zero)"))


def test_rows_that_another_mask_puts_aside():
    hidden = PRODUCT + "w = Where(m, x, inf) p = Softmax<axis=-1>(w) u = MatMul(p, v) "
    seen = "c = Cast<to=1>(x) o = Constant<value_ints=[-1]>() n = ReduceSum(c, o) "
    text = graph(hidden + seen + "some = Greater(n, zero) y = Where(some, u, zero)")
    after = parse(text, 23)
    assert apply_rules(after, RULES, Tally()) > 0
    same_numbers(parse(text, 23), after, SIZES)


@pytest.mark.parametrize(
    ("body", "mask"),
    [
        ("w = Where(m, x, inf) ", "bool[a,1,b,t]"),
        (FINITE.replace("low", "inf"), "bool[a,1,1,t]"),
        (FINITE.replace("low", "inf"), "bool[b,t]"),
        ("w = Add(x, m) ", "float[a,1,b,t]"),
        ("w = Add(m, x) ", "float[a,4,1,t]"),
        ("c = Cast<to=1>(m) i = Sub(one, c) l = Mul(i, least) w = Add(x, l) ", "int64[a,1,1,t]"),
    ],
)
@pytest.mark.parametrize("hidden", [-np.inf, np.inf, np.finfo(np.float32).min, -1e38, np.nan])
def test_a_row_that_is_masked_as_a_whole_stays_nan(body, mask, hidden):
    one = "one = Constant<value_float=1.0>() "
    text = graph(one + PRODUCT + body + END, mask)
    fused(text)
    before, after = parse(text, 23), parse(text, 23)
    apply_rules(after, RULES, Tally())
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    rows = feeds["m"].reshape(-1, feeds["m"].shape[-1])
    if rows.dtype.kind == "f":
        rows[0], rows[-1, 1:] = hidden, hidden
    else:  # of integers, some are no masks but hide for good
        rows[0], rows[-1] = (0, 1) if rows.dtype == bool or np.isfinite(hidden) else (-3, 1)
    (want,), (got,) = run(before, feeds), run(after, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert np.isfinite(want).any()
    assert rows[0, 0] != rows[-1, 0]


def test_two_negative_scales_are_a_positive_one():
    body = "qs = Mul(q, minus) kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(qs, kt) "
    assert fused(graph(body + "x = Mul(minus, x0) " + END.replace("(w)", "(x)")))


HALF = "sh = Cast<to=10>(s) zh = Cast<to=10>(zero) hh = Cast<to=10>({}) "
HALF_BODY = (
    "kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(q, kt) x = Mul(x0, sh) m0 = Where(m, zh, hh) "
    "w = Add(x, m0) p0 = Softmax<axis=-1>(w) n = IsNaN(p0) p = Where(n, zh, p0) y = MatMul(p, v)"
)


@pytest.mark.parametrize("hidden", ["inf", "few"])
def test_half_precision_where_no_score_is_rounded(hidden):
    text = graph(HALF.format(hidden) + HALF_BODY).replace("float[", "float16[")
    after, tally = parse(text, 23), Tally()
    apply_rules(after, (Fold(), *RULES), tally)
    counts = [node.op_type for node in after.graph]
    if hidden == "few":
        assert "Attention" not in counts
        assert any("may round otherwise" in reason for reason in tally.declined["Attention"])
        return
    assert counts.count("Attention") == 1
    same_numbers(parse(text, 23), after, SIZES, tolerance=4e-3)


def test_no_mask():
    assert len(fused(graph(PRODUCT + END.replace("(w)", "(x)"))).inputs) == 3


@pytest.mark.parametrize("masked", [FINITE, FINITE.replace("low", "inf"), "w = Where(m, x, inf) "])
def test_cleared_nan(masked):
    fused(graph(PRODUCT + masked + CLEARED))


@pytest.mark.parametrize("hidden", [-np.inf, np.finfo(np.float32).min, -1.0])
def test_a_mask_from_outside_whose_nan_are_cleared(hidden):
    text = graph(PRODUCT + "w = Add(x, m) " + CLEARED, "float[a,1,b,t]")
    fused(text)
    before, after = parse(text, 23), parse(text, 23)
    apply_rules(after, RULES, Tally())
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    feeds["m"][0, 0, 0] = hidden
    feeds["m"][1, 0, 2, 1:] = hidden
    np.testing.assert_allclose(run(after, feeds)[0], run(before, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", [FINITE.replace("x, m0", "x1, m0"), "w = Add(m, x1)"])
def test_a_bias_beside_the_mask(mask):
    """As relative positions are: the two are added to one another first."""
    body = PRODUCT + "x1 = Add(g, x) " + mask + CLEARED
    kind = "bool" if "Where" in mask else "float"
    assert len(fused(graph(body, f"float[1,4,b,t] g, {kind}[a,1,b,t]")).inputs) == 4


TWO = "m0 = Where(m, zero, least) g0 = Where(g, zero, least) x1 = Add(x, g0) w = Add(x1, m0) "
"""What one of them hides is the least number, what both hide is -inf."""


def test_two_masks():
    def text(end):
        return graph(PRODUCT + TWO + end, "bool[1,1,b,t] g, bool[a,1,b,t]")

    for end in (END, CLEARED):
        fused(text(end))
        before, after = parse(text(end), 23), parse(text(end), 23)
        apply_rules(after, RULES, Tally())
        feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
        feeds["m"][...], feeds["g"][...] = True, True
        feeds["m"][0, 0, 0] = [False, False, False, True]
        feeds["g"][0, 0, 0] = [False, True, True, False]  # a whole row, the first key by both
        (want,), (got,) = run(before, feeds), run(after, feeds)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


CHOSEN = "m0 = Where(m, zero, low) x1 = Where(g, x, low) "


@pytest.mark.parametrize("total", ["w = Add(x1, m0) ", "w = Add(m0, x1) "])
@pytest.mark.parametrize("chosen", ["bool[b,t] g", "bool[1,1,b,t] g", "bool[a,4,b,t] g"])
def test_scores_that_are_chosen_and_a_mask_besides(chosen, total):
    """As GPT-2 does: a row may be hidden by one of them, by both, or in parts by each."""
    text = graph(PRODUCT + CHOSEN + total + END, f"{chosen}, bool[a,1,b,t]")
    fused(text)
    before, after = parse(text, 23), parse(text, 23)
    apply_rules(after, RULES, Tally())
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    for rows in (feeds["m"][0, 0], feeds["g"].reshape(-1, 3, 4)[0]):
        rows[...] = True
    feeds["m"][0, 0, 0] = [False, False, True, True]
    feeds["g"].reshape(-1, 3, 4)[0, 0] = [False, True, False, False]  # the first key by both
    feeds["m"][0, 0, 1] = False
    feeds["g"].reshape(-1, 3, 4)[0, 2] = False
    (want,), (got,) = run(before, feeds), run(after, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hidden", [-3e38, -3.4e38])
def test_a_row_that_is_hidden_by_unlike_numbers_keeps_the_smaller(hidden):
    body = "w0 = Add(x, g) m0 = Where(m, zero, least) w = Add(w0, m0) "
    text = graph(PRODUCT + body + END, "float[b,t] g, bool[a,1,b,t]")
    before, after = parse(text, 23), parse(text, 23)
    assert apply_rules(after, RULES, Tally()) > 0
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    feeds["g"][...], feeds["m"][...] = 0, True
    feeds["g"][0], feeds["m"][:, :, 0] = [hidden, hidden, 0, 0], [True, True, False, False]
    (want,), (got,) = run(before, feeds), run(after, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (CHOSEN.replace("zero, low", "zero, few"), "same number"),
        (CHOSEN.replace("zero, low", "zero, least"), "same number"),
        (CHOSEN.replace("zero, low", "zero, inf"), "same number"),
        (CHOSEN.replace("x, low", "x, few"), "hidden scores count"),
        (CHOSEN.replace("x1 =", "n = Neg(x) x1 =").replace("x, low", "n, low"), "no product"),
        (CHOSEN.replace("Where(m, zero, low)", "Cast<to=1>(m)"), "same number"),
    ],
)
def test_what_is_chosen_otherwise_is_no_mask(body, reason):
    text = graph(PRODUCT + body + "w = Add(x1, m0) " + END, "bool[b,t] g, bool[a,1,b,t]")
    keeps(RULES, text, reason, opset=23)


def test_a_bias_of_constants_hides_nothing():
    body = PRODUCT + "g = ConstantOfShape(z) x1 = Add(g, x) " + FINITE.replace("x, m0", "x1, m0")
    text = graph("z0 = Shape(m) one = Constant<value_ints=[1]>() z1 = Shape<start=1>(m) "
                 "z = Concat<axis=0>(one, z1) " + body + END)  # fmt: skip
    fused(text)


def test_another_term_that_is_a_product_stays():
    body = PRODUCT + "x1 = Add(x0, x) " + FINITE.replace("x, m0", "x1, m0") + END
    keeps(RULES, graph(body), "not clear which term", opset=23)


def test_capped_scores_stay():
    """Older kernels cap what the mask is added to already, and so hide nothing."""
    cap = "c0 = Div(x0, d) c1 = Tanh(c0) x = Mul(c1, d) "
    body = PRODUCT.replace("x = Mul(x0, s) ", cap) + FINITE + END
    keeps(RULES, graph(body), "caps scores", opset=23)


@pytest.mark.parametrize("grouped", [1, 2])
def test_repeated_heads_are_not_repeated(grouped):
    def repeat(x):
        return f"{x}1 = Unsqueeze({x}, two) {x}2 = Expand({x}1, by) {x}3 = Reshape({x}2, to) "

    body = (
        "two = Constant<value_ints=[2]>() "
        f"by = Constant<value_ints=[1,1,{4 // grouped},1,1]>() "
        "head = Constant<value_ints=[0,4,-1,8]>() to = Identity(head) "
    )
    text = graph(
        body + repeat("k") + repeat("v")
        + "kt = Transpose<perm=[0,1,3,2]>(k3) x0 = MatMul(q, kt) x = Mul(x0, s) "
        + "w = Where(m, x, low) p = Softmax<axis=-1>(w) y = MatMul(p, v3)",
        kv=f"a,{grouped},t,8",
    )  # fmt: skip
    declared = text.replace("=> (", "=> (", 1)
    model = parse(declared, 23)
    for node in model.graph:  # the sizes that a converter would have written
        if node.op_type == "Reshape":
            node.outputs[0].shape = type(model.graph.inputs[0].shape)(["a", 4, "t", 8])
    assert apply_rules(model, RULES, Tally()) == 1
    same_numbers(parse(declared, 23), model, SIZES)
    (found,) = [n for n in model.graph if n.op_type == "Attention"]
    assert [found.inputs[i].name for i in (1, 2)] == ["k", "v"]


def test_a_key_that_is_transposed_together_with_its_heads():
    body = "kt = Transpose<perm=[0,2,3,1]>(k) x0 = MatMul(q, kt) x = Mul(x0, s) "
    values = "vt = Transpose<perm=[0,2,1,3]>(v) p = Softmax<axis=-1>(x) y = MatMul(p, vt)"
    fused(graph(body + values, kv="a,t,4,8"))


def test_key_transposed_as_torch_writes_it():
    body = (
        "l = Shape<start=2, end=3>(k) a0 = Shape<start=0, end=1>(k) "
        "minus1 = Constant<value_ints=[-1]>() e = Constant<value_ints=[8]>() "
        "n = Constant<value_ints=[4]>() flat = Concat<axis=0>(minus1, l, e) "
        "k1 = Reshape(k, flat) k2 = Transpose<perm=[0,2,1]>(k1) to = Concat<axis=0>(a0, n, e, l) "
        "kt = Reshape(k2, to) x0 = MatMul(q, kt) x = Mul(x0, s) "
        "p = Softmax<axis=-1>(x) y = MatMul(p, v)"
    )
    text = graph(body)
    fused(text, sizes=({}, {"a": 1, "b": 1, "t": 1}, {"a": 3, "b": 1, "t": 5}))


CACHE = """g (float[a,4,b,8] q, float[a,2,b,8] k0, float[a,2,b,8] v0, float[a,2,p,8] pk,
     float[a,2,p,8] pv, float[a,1,b,t] m)
  => (float[a,4,b,8] y, float[a,2,t,8] k, float[a,2,t,8] v) {
  k = Concat<axis=2>(pk, k0) v = Concat<axis=-2>(pv, v0)
  y = Attention<scale=0.3>(q, k, v, m) }"""


def test_the_cache_is_made_by_attention():
    after = parse(CACHE, 23)
    assert apply_rules(after, RULES, Tally()) == 1
    assert [n.op_type for n in after.graph] == ["Attention"]
    sizes = (
        {"a": 2, "b": 1, "p": 3, "t": 4}, {"a": 1, "b": 3, "p": 0, "t": 3},
        {"a": 3, "b": 2, "p": 5, "t": 7},
    )  # fmt: skip
    same_numbers(parse(CACHE, 23), after, sizes)


@pytest.mark.parametrize(
    ("body", "mask", "reason"),
    [
        (PRODUCT + "w = Where(m, x, few) " + END, "bool[a,1,b,t]", "hidden scores count"),
        (PRODUCT + "w = Add(x, m) " + END, "float[4,b,t]", "two or four axes"),
        (PRODUCT + "w = Add(x, m) " + END, "float[1,1,l,t]", "larger than the scores"),
        (PRODUCT + "w = Add(x, m) " + END, "float[7,t]", "larger than the scores"),
        ("x = MatMul(q, k) w = Add(x, m) " + END, "float[b,t]", "not transposed"),
        (PRODUCT.replace("s)", "minus)") + FINITE + END, "bool[b,t]", "not positive"),
        ("w = Add(m, m) " + END, "float[a,4,b,t]", "which term"),
    ],
)
def test_what_would_be_something_else_stays(body, mask, reason):
    text = graph(body, mask)
    if "(q, k)" in body:
        text = text.replace("float[a,4,t,8] k", "float[a,4,8,t] k")
    keeps(RULES, text, reason, opset=23)


def test_weights_that_are_asked_for_stay():
    text = graph(PRODUCT + "w = Add(x, m) " + END, "float[b,t]")
    text = text.replace("float[a,4,b,8] y)", "float[a,4,b,8] y, float[a,4,b,t] p)")
    keeps(RULES, text, "is an output of the graph", opset=23)


def test_nothing_to_attend_to_stays():
    text = graph(PRODUCT + "w = Add(x, m) " + END, "float[b,t]", kv="a,4,0,8")
    keeps(RULES, text.replace("float[b,t] m", "float[b,0] m"), "empty", opset=23)


def test_another_batch_of_keys_stays():
    keeps(RULES, graph(PRODUCT + "w = Add(x, m) " + END, "float[b,t]", kv="1,4,t,8"),
          "the batch is broadcast", opset=23)  # fmt: skip


def test_one_head_for_all_by_broadcasting_stays_right():
    fused(graph(PRODUCT + FINITE + END, "bool[b,t]", kv="a,1,t,8"))


def test_older_opsets_have_no_attention():
    keeps(RULES, graph(PRODUCT + "w = Add(x, m) " + END, "float[b,t]"), opset=22)


CAUSAL = (
    "n = Shape<start=2, end=3>(q) both = Concat<axis=0>(n, n) f = Expand(inf, both) "
    "one = Constant<value_int=1>() m1 = Trilu<upper=1>(f, one) w = Add(x, m1) "
)


def test_what_hides_later_keys_is_said_by_an_attribute():
    square = {"kv": "a,4,b,8", "mask": "bool[a,1,b,b]"}
    found = fused(graph(PRODUCT + CAUSAL + END, **square))
    assert found.attributes["is_causal"].value == 1
    assert len(found.inputs) == 3


def test_with_more_keys_than_queries_it_is_not_said():
    text = graph(PRODUCT + CAUSAL.replace("(n, n)", "(n, l)") + END)
    text = text.replace("n = Shape", "l = Shape<start=2, end=3>(k) n = Shape", 1)
    assert "is_causal" not in fused(text).attributes


GROUPED = """
    rows = Constant<value_ints=[0,2,-1,0]>() heads = Constant<value_ints=[0,4,-1,0]>()
    qs = Mul(q, s) qr = Reshape(qs, rows) kt = Transpose<perm=[0,1,3,2]>(k)
    x0 = MatMul(qr, kt) x = Reshape(x0, heads) """
ROWS = "p = Softmax<axis=-1>(w) pr = Reshape(p, rows) y0 = MatMul(pr, v) y = Reshape(y0, heads)"


def grouped(masked: str, more: str = "", kv: str = "a,2,t,8") -> ir.Model:
    model = parse(graph(GROUPED + masked + ROWS + more, kv=kv), 23)
    name_sizes(model)
    return model


@pytest.mark.parametrize("masked", ["w = Identity(x) ", "w = Where(m, x, low) ", FINITE])
def test_heads_of_a_group_that_are_rows_of_one_matrix(masked):
    model = grouped(masked)
    assert apply_rules(model, (*identity.RULES, *RULES), Tally()) > 0
    name_sizes(model)
    same_numbers(parse(graph(GROUPED + masked + ROWS, kv="a,2,t,8"), 23), model, SIZES)
    (found,) = [n for n in model.graph if n.op_type == "Attention"]
    assert found.inputs[0].name == "q"
    assert not [n for n in model.graph if n.op_type in ("Softmax", "MatMul")]


def test_rows_that_are_joined_otherwise_stay():
    """All rows in one matrix for each batch is no grouping of heads."""
    text = graph(GROUPED + "w = Identity(x) " + ROWS, kv="a,2,t,8")
    text = text.replace("[0,2,-1,0]", "[0,2,-1,4]").replace("kv", "kv")
    text = text.replace("float[a,2,t,8] k", "float[a,2,t,4] k")
    model, tally = parse(text, 23), Tally()
    name_sizes(model)
    apply_rules(model, (*identity.RULES, *RULES), tally)
    assert not [n for n in model.graph if n.op_type == "Attention"]
    assert any("joined" in reason for reason in tally.declined["AttentionGrouped"])
