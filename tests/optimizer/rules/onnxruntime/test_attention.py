"""Attention in every spelling becomes one node; what would change numbers stays."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from attention_graphs import END, FINITE, PRODUCT, SIZES, fused, graph
from rewriting import keeps, parse, same_numbers

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.known_sizes import name_sizes
from torchferry.optimizer.rules import identity
from torchferry.optimizer.rules.onnxruntime.attention import RULES
from torchferry.optimizer.tally import Tally


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


def test_two_negative_scales_are_a_positive_one():
    body = "qs = Mul(q, minus) kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(qs, kt) "
    assert fused(graph(body + "x = Mul(minus, x0) " + END.replace("(w)", "(x)")))


def test_no_mask():
    assert len(fused(graph(PRODUCT + END.replace("(w)", "(x)"))).inputs) == 3


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


def test_a_scale_of_more_axes_stays():
    wide = "wide = Constant<value=float[1,1,1,1,1] {0.5}>() "
    text = graph(wide + PRODUCT + "w = Mul(x, wide) " + END)
    keeps(RULES, text.replace("float[a,4,b,8] y", "float[1,a,4,b,8] y"), opset=23)


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
