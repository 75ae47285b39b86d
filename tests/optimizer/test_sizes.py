import onnx_ir as ir
import pytest
from rewriting import parse

from torchferry.dims import Dim, maximum, minimum
from torchferry.optimizer.sizes import contents

A, B = Dim.of("a"), Dim.of("b")
HEAD = (
    "g (float[a,b,4] x, int64[2] w) => (int64[m] y) { s = Shape(x) i = Constant<value_ints=[1]>() "
)
FOUR = (
    "f = Constant<value_ints=[4]>() zero = Constant<value_ints=[0]>() "
    "large = Constant<value_ints=[4611686018427387904]>() "
)


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("y = Identity(s)", (A, B, 4)),
        ("y = Shape<start=1, end=-1>(x)", (B,)),
        ("y = Size(x)", (4 * A * B,)),
        ("y = Gather(s, i)", (B,)),
        ("e = Constant<value_ints=[2]>() y = Slice(s, i, e)", (B,)),
        ("g0 = Gather(s, i) y = Concat<axis=0>(g0, i, g0)", (B, 1, B)),
        ("y = Cast<to=6>(s)", (A, B, 4)),
        ("g0 = Gather(s, i) t = Sub(g0, g0) y = Add(t, f)", (4,)),
        ("g0 = Gather(s, i) t = Mul(g0, f) y = Div(t, f)", (B,)),
        ("g0 = Gather(s, i) t = Mul(g0, f) y = Mod(t, f)", (0,)),
        ("g0 = Gather(s, i) y = Max(g0, f)", (maximum(B, 4),)),
        ("y = ReduceProd(s)", (4 * A * B,)),
        ("y = Max(f, i, large)", (2**62,)),
        ("g0 = Gather(s, i) y = Min(g0, f, i)", (minimum(minimum(B, 4), 1),)),
        ("y = Max(f, i, w)", None),
        ("z = ConstantOfShape<value=int64[1] {7}>(f) y = Add(z, i)", (8, 8, 8, 8)),
        ("n = Neg(s) y = Add(n, s)", (0, 0, 0)),
        ("m = Neg(i) e = Equal(s, m) y = Where(e, i, s)", (A, B, 4)),
        ("e = Equal(s, s) y = Where(e, i, f)", (1, 1, 1)),
        ("e = Equal(f, i) y = Where(e, i, s)", (A, B, 4)),
        ("e = Equal(s, i) y = Where(e, i, s)", None),  # a may be 1
        ("n = Sub(s, i) m = Neg(i) e = Equal(n, m) y = Where(e, i, s)", None),  # a may be 0
        ("e = Less(s, i) y = Where(e, i, s)", None),
        ("d = Sub(s, f) n = Min(d, i) m = Neg(i) e = Equal(n, m) y = Where(e, i, f)", None),
        ("d = Sub(s, f) n = Min(d, i) y = Div(n, f)", None),
        ("n = Min(s, f) y = Div(n, i)", (minimum(A, 4), minimum(B, 4), 4)),
        (
            "d = Sub(s, f) n = Max(d, i) y = Div(n, i)",
            (
                maximum(A - 4, 1),
                maximum(B - 4, 1),
                1,
            ),
        ),
        ("e = ConstantOfShape<value=int64[1] {0}>(zero) y = Slice(s, e, e, e)", None),
        ("y = Mul(large, large)", None),
        ("n = Mul(s, large) y = Mul(n, f)", None),
        ("y = Add(w, i)", None),
        ("g0 = Gather(s, i) h = Sub(g0, f) y = Div(h, f)", None),  # it may be negative
        ("t = Constant<value_ints=[2]>() y = Slice(s, i, f, i, t)", None),
        ("z = Constant<value_ints=[0]>() y = Div(s, z)", None),
        ("y = Mul(s, w)", None),
    ],
)
def test_what_is_in_vectors_of_sizes(body, known):
    model = parse(HEAD + FOUR + body + "}")
    assert contents(model.graph.outputs[0]) == known
    assert contents(model.graph.outputs[0]) == known  # remembered


def test_only_small_integers():
    floats = ir.val("c", ir.DataType.FLOAT, [1], const_value=ir.tensor([1.0]))
    assert contents(floats) is None
    assert contents(None) is None
    model = parse("g (float[a] x) => (int64[1,2] y) { c = Constant<value_ints=[1,2]>() "
                  "z = Constant<value_ints=[0]>() y = Unsqueeze(c, z) }")  # fmt: skip
    assert contents(model.graph.outputs[0]) is None


def test_long_chains_are_no_trouble():
    body = "".join(f"t{n + 1} = Add(t{n}, i) " for n in range(200))
    model = parse(HEAD + "t0 = Gather(s, i) " + body + "y = Identity(t200) }")
    for node in model.graph:
        contents(node.outputs[0])
    assert contents(model.graph.outputs[0]) == (B + 200,)


def test_what_older_or_empty_forms_make_is_not_known():
    old = parse("g (float[a,3] x) => (int64[m] y) { s = Shape(x) y = Neg(s) }", opset=9)
    cut = ir.node("Slice", [old.graph[0].outputs[0]], {"starts": [0], "ends": [1]})
    cut.outputs[0].type = ir.TensorType(ir.DataType.INT64)
    assert contents(cut.outputs[0]) is None
    body = "s = Shape(x) y = ReduceProd<noop_with_empty_axes=1,keepdims=0>(s)"
    idle = parse(f"g (float[a,3] x) => (int64[m] y) {{ {body} }}", opset=18)
    assert contents(idle.graph.outputs[0]) is None
