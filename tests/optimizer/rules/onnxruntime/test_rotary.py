from __future__ import annotations

import numpy as np
import pytest
from rewriting import changes, keeps, parse, same_numbers

from torchferry.optimizer.driver import apply_rules
from torchferry.optimizer.rules.onnxruntime.rotary import RULES
from torchferry.optimizer.tally import Tally

SIZES = ({}, {"a": 1, "b": 1}, {"a": 3, "b": 5})
ANGLES = """
    two_axes = Constant<value_ints=[1]>() d = Concat<axis=-1>(angle, angle)
    cos3 = Cos(d) sin3 = Sin(d) cos = Unsqueeze(cos3, two_axes) sin = Unsqueeze(sin3, two_axes)
    zero = Constant<value_ints=[0]>() half = Constant<value_ints=[4]>()
    far = Constant<value_ints=[9223372036854775807]>() last = Constant<value_ints=[3]>()
"""
SLICES = "l = Slice(x, zero, half, last) r = Slice(x, half, far, last) "
SPLIT = "l, r = Split<axis=-1, num_outputs=2>(x) "
TURN = "n = Neg(r) c = Concat<axis=-1>(n, l) p = Mul(x, cos) q = Mul(c, sin) y = Add(p, q)"


def graph(body: str, angles: str = ANGLES, batch="1", width=8) -> str:
    inputs = f"float[a,3,b,{width}] x, float[{batch},b,4] angle"
    return f"g ({inputs}) => (float[a,3,b,{width}] y) {{ {angles} {body} }}"


def turned(text: str, opset: int):
    after = parse(text, opset)
    assert apply_rules(after, RULES, Tally()) >= 1
    same_numbers(parse(text, opset), after, SIZES)
    assert apply_rules(after, RULES, Tally()) == 0
    (found,) = [node for node in after.graph if node.op_type == "RotaryEmbedding"]
    return found


@pytest.mark.parametrize("batch", ["1", "a"])
@pytest.mark.parametrize("cut", [SLICES, SPLIT])
@pytest.mark.parametrize(("opset", "domain"), [(20, "com.microsoft"), (23, ""), (24, "")])
def test_half_rotation(cut, opset, domain, batch):
    found = turned(graph(cut + TURN, batch=batch), opset)
    assert found.domain == domain
    assert found.inputs[0].name == "x"


def test_a_model_of_an_opset_without_shapes_of_some_axes_stays():
    model = parse(graph(SLICES + TURN), 14)
    assert apply_rules(model, RULES, Tally()) == 0


def test_order_of_terms_and_factors():
    other = TURN.replace("Mul(x, cos)", "Mul(cos, x)").replace("Add(p, q)", "Add(q, p)")
    turned(graph(SPLIT + other), 23)


def test_cosines_from_a_table():
    rows = np.cos(np.arange(12).reshape(3, 4)).round(3)
    even = ", ".join(str(v) for row in rows for v in (*row, *row))
    picked = """g (float[a,3,b,8] x, int64[a,b] pos) => (float[a,3,b,8] y)
        <float[3,8] table = {%s}> {
        one = Constant<value_ints=[1]>()
        picked = Gather(table, pos) cos = Unsqueeze(picked, one) sin = Unsqueeze(picked, one) """
    turned(picked % even + SPLIT + TURN + "}", 23)
    uneven = ", ".join(str(float(i)) for i in range(24))
    keeps(RULES, picked % uneven + SPLIT + TURN + "}", "halves of the cosine may differ", opset=23)


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("cut", ["slices", "split"])
def test_a_part_is_turned(opset, cut):
    sizes = "parts = Constant<value_ints=[8,4]>() eight = Constant<value_ints=[8]>() "
    start = {
        "slices": "x = Slice(w, zero, eight, last) t = Slice(w, eight, far, last) ",
        "split": "x, t = Split<axis=-1>(w, parts) ",
    }[cut]
    turn = TURN.replace("y = Add", "z = Add") + " y = Concat<axis=-1>(z, t)"
    text = graph(sizes + start + SPLIT + turn, width=12).replace("12] x", "12] w")
    found = turned(text, opset)
    attributes = {name: a.value for name, a in found.attributes.items()}
    assert attributes == {"rotary_embedding_dim": 8, "num_heads": 3}
    assert found.inputs[0].name == "w"


BY_OTHER = "sq = Unsqueeze(other, two_axes) uneven = Cos(sq) cos4 = Mul(cos, uneven) "


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (SLICES + TURN.replace("(n, l)", "(l, n)"), None),
        (SPLIT + TURN.replace("(n, l)", "(l, n)"), None),
        (SLICES + TURN.replace("Neg(r)", "Neg(l)").replace("(n, l)", "(n, r)"), "two halves"),
        (SPLIT + TURN.replace("Neg(r)", "Neg(l)").replace("(n, l)", "(n, r)"), None),
        (BY_OTHER + SPLIT + TURN.replace("cos)", "cos4)"), "halves of the cosine may differ"),
    ],
)
def test_what_turns_otherwise_stays(body, reason):
    text = graph(body).replace("angle)", "angle, float[1,b,8] other)", 1)
    keeps(RULES, text, reason, opset=23)


def test_inner_values_that_are_read_stay():
    text = graph(SPLIT + TURN).replace("8] y)", "8] y, float[a,3,b,8] c)")
    keeps(RULES, text, "output of the graph", opset=23)


def test_what_is_made():
    changes(
        RULES,
        "g (float[a,3,b,8] x, float[1,b,4] angle) => (float[a,3,b,8] y) {"
        + ANGLES.replace("zero =", "zero0 =").replace("half =", "half0 =") + SPLIT + TURN + "}",
        """g (float[a,3,b,8] x, float[1,b,4] angle) => (float[a,3,b,8] y) {
            one = Constant<value_ints=[1]>() ones = Constant<value_ints=[1,1]>()
            c = Cos(angle) c4 = Unsqueeze(c, one) c3 = Squeeze(c4, one)
            n = Shape<start=0, end=1>(x) to = Concat<axis=0>(n, ones) e = Expand(c3, to)
            s = Sin(angle) s4 = Unsqueeze(s, one) s3 = Squeeze(s4, one)
            n2 = Shape<start=0, end=1>(x) to2 = Concat<axis=0>(n2, ones) e2 = Expand(s3, to2)
            y = RotaryEmbedding(x, e, e2) }""",
        opset=23, sizes=SIZES,
    )  # fmt: skip
