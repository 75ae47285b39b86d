"""Masks of attention: rows that are hidden as a whole, several masks, half precision."""

from __future__ import annotations

import numpy as np
import pytest
from attention_graphs import CLEARED, END, FINITE, PRODUCT, SIZES, fused, graph
from rewriting import feeds_for, keeps, parse, run, same_numbers

from torchferry.graph.runtime import HIDDEN_ROWS
from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.folding import Fold
from torchferry.optimizer.rules.identity import Identity
from torchferry.optimizer.rules.onnxruntime.attention import RULES
from torchferry.optimizer.tally import Tally
from versions import can, needs


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


HALF = "sh = Cast<to=10>(s) zh = Cast<to=10>(zero) hh = Cast<to=10>({}) "
HALF_BODY = (
    "kt = Transpose<perm=[0,1,3,2]>(k) x0 = MatMul(q, kt) x = Mul(x0, sh) m0 = Where(m, zh, hh) "
    "w = Add(x, m0) p0 = Softmax<axis=-1>(w) n = IsNaN(p0) p = Where(n, zh, p0) y = MatMul(p, v)"
)


@needs(HIDDEN_ROWS)
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


@needs(HIDDEN_ROWS)
@pytest.mark.parametrize("masked", [FINITE, FINITE.replace("low", "inf"), "w = Where(m, x, inf) "])
def test_cleared_nan(masked):
    fused(graph(PRODUCT + masked + CLEARED))


@pytest.mark.parametrize(
    ("masked", "mask"),
    [
        (FINITE.replace("low", "inf"), "bool[a,1,b,t]"),
        ("w = Where(m, x, inf) ", "bool[b,t]"),
        ("w = Add(x, m) ", "float[a,1,b,t]"),
        (HALF, "bool[a,1,b,t]"),
    ],
)
def test_cleared_nan_stay_for_an_onnxruntime_that_makes_them(masked, mask):
    text = graph(PRODUCT + masked + CLEARED, mask)
    if masked == HALF:
        text = graph(HALF.format("inf") + HALF_BODY, mask).replace("float[", "float16[")
    tally, after = Tally(onnxruntime="1.27"), parse(text, 23)
    rules = (Fold(), *RULES) if masked == HALF else RULES
    apply_rules(after, rules, tally)
    assert tally.declined["Attention"] == {HIDDEN_ROWS.before: 1}
    assert "Softmax" in {node.op_type for node in after.graph}
    newer = Tally(onnxruntime="1.28")
    assert apply_rules(parse(text, 23), rules, newer)
    assert newer.needs == {HIDDEN_ROWS}


def test_cleared_nan_of_a_mask_that_hides_no_row_are_fused_for_every_onnxruntime():
    for masked in (FINITE, "w = Identity(x) "):
        text = graph(PRODUCT + masked + CLEARED)
        tally, after = Tally(onnxruntime="1.25"), parse(text, 23)
        apply_rules(after, (Identity(), *RULES), tally)
        assert tally.applied["Attention"] == 1
        assert not tally.needs
        same_numbers(parse(text, 23), after, SIZES)


@needs(HIDDEN_ROWS)
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


@needs(HIDDEN_ROWS)
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

    for end in (END, CLEARED) if can(HIDDEN_ROWS) else (END,):
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
