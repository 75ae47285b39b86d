"""Heads stay within the last axis where the kernel takes them so; numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from rewriting import feeds_for, keeps, parse, run, same_numbers

from torchferry.graph.runtime import HIDDEN_ROWS
from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rules import identity, reshape, transpose
from torchferry.optimizer.rules.onnxruntime.attention_form import RULES
from torchferry.optimizer.tally import Tally
from versions import needs

CLEAN = (*reshape.RULES, *transpose.RULES, *identity.RULES)
SIZES = ({"a": 2, "b": 3, "t": 4}, {"a": 1, "b": 1, "t": 1}, {"a": 3, "b": 1, "t": 5})
CONSTANTS = """
  hq = Constant<value_ints=[0,0,4,8]>() hk = Constant<value_ints=[0,0,2,8]>()
  hv = Constant<value_ints=[0,0,2,6]>() join = Constant<value_ints=[0,0,24]>()
  zero = Constant<value_float=0.0>() inf = Constant<value_float=-inf>()
  low = Constant<value_float=-3.4028235e38>() few = Constant<value_float=-1e4>()
  last = Constant<value_ints=[-1]>()
"""
SPLIT = """
  q1 = Reshape(q, hq) q4 = Transpose<perm=[0,2,1,3]>(q1)
  k1 = Reshape(k, hk) k4 = Transpose<perm=[0,2,1,3]>(k1)
  v1 = Reshape(v, hv) v4 = Transpose<perm=[0,2,1,3]>(v1)
"""
JOIN = "y1 = Transpose<perm=[0,2,1,3]>(y4) y = Reshape(y1, join)"
HEAD = "float[a,b,32] q, float[a,t,16] k, float[a,t,12] v"


def graph(body: str, head: str = HEAD, out: str = "float[a,b,24] y") -> str:
    return f"g ({head}) => ({out}) {{ {CONSTANTS} {body} }}"


def flat(text: str, sizes=SIZES) -> list[str]:
    after = parse(text, 23)
    apply_rules(after, RULES, Tally())
    apply_rules(after, (*CLEAN, *RULES), Tally())
    same_numbers(parse(text, 23), after, sizes)
    assert apply_rules(after, (*CLEAN, *RULES), Tally()) == 0
    return [node.op_type for node in after.graph if node.op_type != "Constant"]


def test_nothing_is_left_around_attention():
    body = SPLIT + "y4 = Attention<scale=0.3>(q4, k4, v4)" + JOIN
    assert flat(graph(body)) == ["Attention"]


@pytest.mark.parametrize("mask", ["float[b,t]", "float[a,1,b,t]", "float[1,4,b,t]"])
def test_a_mask_stays(mask):
    body = SPLIT + "y4 = Attention<scale=0.3>(q4, k4, v4, m)" + JOIN
    assert flat(graph(body, f"{HEAD}, {mask} m")) == ["Attention"]


def test_causal_stays_causal():
    body = SPLIT + "y4 = Attention<is_causal=1>(q4, k4, v4)" + JOIN
    assert flat(graph(body)) == ["Attention"]


def test_a_cache_keeps_its_heads():
    body = SPLIT + "y4, ok, ov = Attention(q4, k4, v4, , pk, pv)" + JOIN
    head = HEAD.replace("t,", "b,") + ", float[a,2,p,8] pk, float[a,2,p,6] pv"
    out = "float[a,b,24] y, float[a,2,n,8] ok, float[a,2,n,6] ov"
    sizes = tuple({**item, "p": p} for item, p in zip(SIZES, (3, 1, 0), strict=True))
    assert flat(graph(body, head, out), sizes) == ["Attention"]


def test_rotary_embedding_too():
    body = (
        SPLIT + "q5 = RotaryEmbedding(q4, cq, sq) k5 = RotaryEmbedding(k4, ck, sk)"
        "y4 = Attention(q5, k5, v4)" + JOIN
    )
    caches = "float[a,b,4] cq, float[a,b,4] sq, float[a,t,4] ck, float[a,t,4] sk"
    found = flat(graph(body, f"{HEAD}, {caches}"))
    assert sorted(found) == ["Attention", "RotaryEmbedding", "RotaryEmbedding"]


def test_keys_that_are_an_output_too_keep_their_heads():
    body = SPLIT + "k5 = RotaryEmbedding(k4, ck, sk) y4 = Attention(q4, k5, v4)" + JOIN
    head = f"{HEAD}, float[a,t,4] ck, float[a,t,4] sk"
    found = flat(graph(body, head, "float[a,b,24] y, float[a,2,t,8] k5"))
    assert sorted(found) == ["Attention", "Reshape", "RotaryEmbedding", "Transpose"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("k4 = Transpose<perm=[0,2,1,3]>(k1)", "k0 = Transpose<perm=[0,2,1,3]>(k1) k4 = Neg(k0)",
         "not transposed"),
        ("v4 = Transpose<perm=[0,2,1,3]>(v1)", "v0 = Transpose<perm=[0,2,1,3]>(v1) v4 = Neg(v0)",
         "not transposed"),
    ],
)  # fmt: skip
def test_what_is_made_otherwise_stays(old, new, reason):
    body = SPLIT.replace(old, new) + "y4 = Attention(q4, k4, v4)" + JOIN
    keeps(RULES, graph(body), reason, opset=23)


def test_a_norm_of_each_head_is_joined():
    body = SPLIT.replace("(q1)", "(q2)").replace("q4 =", "q2 = RMSNormalization(q1, w) q4 =")
    body += "q5 = RotaryEmbedding(q4, c, s) y4 = Attention(q5, k4, v4)" + JOIN
    found = flat(graph(body, f"{HEAD}, float[8] w, float[a,b,4] c, float[a,b,4] s"))
    assert found == ["Reshape", "RMSNormalization", "Reshape", "RotaryEmbedding", "Attention"]


def test_heads_that_are_read_apart_stay():
    body = SPLIT + "y4 = Attention(q4, k4, v4)" + JOIN
    text = graph(body, out="float[a,b,24] y, float[a,4,b,6] y4")
    keeps(RULES, text, "used apart", opset=23)


def test_heads_transposed_otherwise_stay():
    body = SPLIT.replace("k4 = Transpose<perm=[0,2,1,3]>", "k4 = Transpose<perm=[0,2,3,1]>")
    body += "k5 = Transpose<perm=[0,1,3,2]>(k4) y4 = Attention(q4, k5, v4)" + JOIN
    keeps(RULES, graph(body), "transposed otherwise", opset=23)


# Rows that the mask hides ------------------------------------------------------------------------

SEEN = """c = Cast<to=1>(m) n = ReduceSum(c, last) some = Greater(n, zero)
  added = Where(m, zero, inf) u = Attention<scale=0.3>(q, k, v, added) y = Where(some, u, zero)"""
FOUR = "float[a,4,b,8] q, float[a,2,t,8] k, float[a,2,t,8] v, bool[a,1,b,t] m"
OUT = "float[a,4,b,8] y"


@needs(HIDDEN_ROWS)
@pytest.mark.parametrize("hidden", ["inf", "low"])
@pytest.mark.parametrize("mask", ["bool[a,1,b,t]", "bool[b,t]", "bool[a,4,b,t]"])
def test_the_kernel_makes_zeros_of_hidden_rows(mask, hidden):
    text = graph(SEEN.replace("inf", hidden), FOUR.replace("bool[a,1,b,t]", mask), OUT)
    assert flat(text) == ["Where", "Attention"]
    before, after = parse(text, 23), parse(text, 23)
    apply_rules(after, RULES, Tally())
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    feeds["m"][...] = True
    feeds["m"][..., 1, :] = False  # a whole row
    feeds["m"][..., 2, 1:] = False
    want, got = run(before, feeds)[0], run(after, feeds)[0]
    assert not want[:, :, 1].any()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@needs(HIDDEN_ROWS)
def test_in_flat_form_and_behind_a_cache_too():
    body = (
        SPLIT + "c = Cast<to=1>(m) n = ReduceSum(c, last) some = Greater(n, zero)"
        "added = Where(m, zero, inf) u, ok, ov = Attention(q4, k4, v4, added, pk, pv)"
        "y4 = Where(some, u, zero)" + JOIN
    )
    head = HEAD.replace("t,", "b,") + ", bool[a,1,b,n] m, float[a,2,p,8] pk, float[a,2,p,6] pv"
    out = "float[a,b,24] y, float[a,2,n,8] ok, float[a,2,n,6] ov"
    sizes = ({"a": 2, "b": 3, "p": 4, "n": 7}, {"a": 1, "b": 1, "p": 2, "n": 3})
    assert flat(graph(body, head, out), sizes) == ["Where", "Attention"]


FLOAT_SEEN = """f = Greater(m, inf) c = Cast<to=1>(f) n = ReduceSum(c, last)
  some = Greater(n, zero)
  bound = Constant<value_float=-1e38>() most = Max(m, bound) {}
  u = Attention<scale=0.3>(q, k, v, added) y = Where(some, u, zero)"""
KEPT = "i = IsInf(m) added = Where(i, m, most)"


@needs(HIDDEN_ROWS)
def test_the_kernel_makes_zeros_of_rows_that_an_added_mask_hides():
    text = graph(FLOAT_SEEN.format(KEPT), FOUR.replace("bool", "float"), OUT)
    assert flat(text) == ["Max", "IsInf", "Where", "Attention"]
    before, after = parse(text, 23), parse(text, 23)
    apply_rules(after, RULES, Tally())
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    feeds["m"][..., 1, :] = -np.inf  # a whole row
    feeds["m"][..., 2, 1:] = -np.inf
    feeds["m"][0, ..., 0, :] = np.finfo(np.float32).min  # equal weights
    want, got = run(before, feeds)[0], run(after, feeds)[0]
    assert not want[:, :, 1].any()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@needs(HIDDEN_ROWS)
def test_a_mask_of_numbers_hides_no_row():
    mask = FLOAT_SEEN.format("").replace("v, added", "v, most")
    chosen = mask.replace("f =", "m = Where(o, few, low) f =")
    head = FOUR.replace("bool[a,1,b,t] m", "bool[a,1,b,t] o")
    assert flat(graph(chosen, head, OUT))[-1] == "Attention"
    keeps(RULES, graph(mask, FOUR.replace("bool", "float"), OUT), "Max does not keep", opset=23)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("Cast<to=1>(m)", "Cast<to=1>(o)", "not asked"),
        ("Where(m, zero, inf)", "Where(m, zero, few)", None),
        ("Where(some, u, zero)", "Where(some, u, inf)", None),
        ("Where(some, u, zero)", "Where(some, zero, u)", None),
        ("Where(m, zero, inf)", "Where(m, inf, zero)", None),
    ],
)
def test_rows_that_something_else_puts_aside_stay(old, new, reason):
    text = graph(SEEN.replace(old, new), f"{FOUR}, bool[a,1,b,t] o", OUT)
    keeps(RULES, text, reason, opset=23)


DIRECT = """c = Cast<to=1>(m) n = ReduceSum(c, last) some = Greater(n, zero)
  u = Attention<scale=0.3>(q, k, v, m) y = Where(some, u, zero)"""


@needs(HIDDEN_ROWS)
@pytest.mark.parametrize("mask", ["bool[a,1,b,t]", "bool[b,t]", "bool[1,1,b,t]"])
def test_a_bool_mask_that_the_node_takes_as_it_is(mask):
    text = graph(DIRECT, FOUR.replace("bool[a,1,b,t]", mask), OUT)
    assert flat(text) == ["Attention"]
    before, after = parse(text, 23), parse(text, 23)
    apply_rules(after, RULES, Tally())
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    feeds["m"][..., 1, :] = False
    want, got = run(before, feeds)[0], run(after, feeds)[0]
    assert not want[:, :, 1].any()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_added_mask_may_hide_by_the_least_number():
    text = graph(DIRECT.replace("Cast<to=1>(m)", "Cast<to=1>(f)").replace(
        "c =", "f = Greater(m, inf) c ="), FOUR.replace("bool", "float"), OUT)  # fmt: skip
    keeps(RULES, text, "hide by the least number", opset=23)


@pytest.mark.parametrize("body", [SEEN, SEEN.replace("inf", "low"), DIRECT])
def test_an_onnxruntime_without_zeros_keeps_the_choice(body):
    tally = Tally(onnxruntime="1.27.0")
    before, after = parse(graph(body, FOUR, OUT), 23), parse(graph(body, FOUR, OUT), 23)
    assert apply_rules(after, RULES, tally) == 0
    assert tally.declined["SeenRows"][HIDDEN_ROWS.before] == 1
    assert not tally.needs
    feeds = feeds_for(before, {"a": 2, "b": 3, "t": 4})
    feeds["m"][..., 1, :] = False
    got = run(after, feeds)[0]
    assert not got[:, :, 1].any()  # with every onnxruntime
    assert np.isfinite(got).all()
