"""Sizes that follow are named; what is declared, or does not follow, stays."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from rewriting import HEAD

from torchferry.optimizer.known_sizes import name_sizes


def named(body: str, rank: int = 4, head: str = "float[a,2,b,8] x, float[a,2,t,8] y") -> list:
    """The sizes of v, of which only the rank was known."""
    unknown = ",".join("?" * rank)
    proto = onnx.parser.parse_model(
        HEAD.format(opset=20) + f"g ({head}) => (float[{unknown}] z) {{ {body} z = Neg(v) }}"
    )
    proto = onnx.shape_inference.infer_shapes(proto)
    model = ir.from_proto(proto)
    for node in model.graph:  # as torch.onnx declares what it does not follow
        for value in node.outputs:
            if value.name == "v":
                value.shape = ir.Shape([None] * rank)
    name_sizes(model)
    (value,) = [v for node in model.graph for v in node.outputs if v.name == "v"]
    return [d if isinstance(d, int) else d.value for d in value.shape]


FLAT = (
    "l = Shape<start=2, end=3>(x) w = Constant<value_ints=[8]>() m = Constant<value_ints=[-1]>()"
)

ASKED = (  # as torch.jit's exporter writes expand(-1, -1, t, -1)
    "l = Shape<start=2, end=3>(y) m = Constant<value_ints=[-1]>() "
    "given = Concat<axis=0>(m, m, l, m) none = Constant<value_ints=[-1,-1,-1,-1]>() "
    "ones = Constant<value_ints=[1,1,1,1]>() same = Equal(given, none) "
    "to = Where(same, ones, given) "
)
CUT = (
    "o = Constant<value_ints=[0]>() l = Shape<start=2, end=3>(x) i = Constant<value_ints=[2]>() "
    "w = Constant<value_ints=[-1]>() minus = Neg(l) three = Constant<value_ints=[3]>() "
    "far = Constant<value_ints=[9223372036854775807]>() two = Constant<value_ints=[2]>() "
)
COUNT = (
    "zero = Constant<value_int=0>() one = Constant<value_int=1>() "
    "l = Shape<start=2, end=3>(x) m = Squeeze(l) "
)


@pytest.mark.parametrize(
    ("body", "rank", "sizes"),
    [
        (FLAT + "to = Concat<axis=0>(m, l, w) v = Reshape(x, to)", 3, ["2*a", "b", 8]),
        ("to = Constant<value_ints=[0, -1, 4]>() v = Reshape(x, to)", 3, ["a", "4*b", 4]),
        ("to = Constant<value_ints=[3, -1]>() v = Reshape(x, to)", 2, [3, "(16*a*b)//3"]),
        (
            "to = Constant<value_ints=[0, 4, -1, 0]>() v = Reshape(x, to)",
            4,
            ["a", 4, "(2*b)//4", 8],
        ),
        ("to = Constant<value_ints=[0, -1]>() v = Reshape<allowzero=1>(x, to)", 2, [0, None]),
        ("v = Transpose<perm=[0,2,1,3]>(x)", 4, ["a", "b", 2, 8]),
        ("v = Transpose(x)", 4, [8, "b", 2, "a"]),
        ("t = Transpose<perm=[0,1,3,2]>(y) v = MatMul(x, t)", 4, ["a", 2, "b", "t"]),
        ("v = Softmax(x)", 4, ["a", 2, "b", 8]),
        ("v = Mul(x, x)", 4, ["a", 2, "b", 8]),
        ("v = Add(x, y)", 4, ["a", 2, None, 8]),
        ("v = Concat<axis=2>(x, y)", 4, ["a", 2, "b + t", 8]),
        ("o = Constant<value_ints=[3,1,2,1,1]>() v = Expand(x, o)", 5, [3, "a", 2, "b", 8]),
        (ASKED + "v = Expand(y, to)", 4, ["a", 2, "t", 8]),
        (CUT + "v = Slice(x, o, l, i)", 4, ["a", 2, "b", 8]),
        (CUT + "v = Slice(x, o, far, i)", 4, ["a", 2, "b", 8]),
        (CUT + "v = Slice(x, minus, far, i)", 4, ["a", 2, "b", 8]),
        (CUT + "v = Slice(x, three, far, i)", 4, ["a", 2, None, 8]),
        (CUT + "v = Slice(y, o, l, i)", 4, ["a", 2, None, 8]),
        (CUT + "v = Slice(x, o, l, i, two)", 4, ["a", 2, None, 8]),
        (CUT + "v = Slice(x, three, far, w, two)", 4, ["a", 2, "b", 3]),
        (CUT + "m5 = Neg(three) v = Slice(x, m5, far, w)", 4, ["a", 2, "b", 3]),
        (CUT + "m5 = Neg(three) v = Slice(x, far, m5, w, m5)", 4, ["a", 2, "b", None]),
        (CUT + "v = Slice(x, o, three)", 4, [None, 2, "b", 8]),
        (CUT + "q = Mod(l, three) v = Slice(x, o, l, q)", 4, [None, None, None, None]),
        (COUNT + "v = Range(zero, m, one)", 1, ["b"]),
        (COUNT + "k = Add(m, m) v = Range(m, k, one)", 1, ["b"]),
        (COUNT + "k = Sub(m, one) v = Range(zero, k, one)", 1, [None]),
        (COUNT + "k = Add(one, one) v = Range(zero, m, k)", 1, [None]),
        ("o = Constant<value_ints=[3,1,2,1]>() v = Tile(x, o)", 4, ["3*a", 2, "2*b", 8]),
        ("o = Shape<start=2>(x) v = ConstantOfShape(o)", 2, ["b", 8]),
        ("o = Constant<value_ints=[0]>() v = Unsqueeze(x, o)", 5, [1, "a", 2, "b", 8]),
        ("o = Constant<value_int=1>() v = Gather<axis=1>(x, o)", 3, ["a", "b", 8]),
        ("v, v1 = Split<axis=3, num_outputs=2>(x)", 4, ["a", 2, "b", 4]),
    ],
)
def test_what_follows_is_named(body, rank, sizes):
    assert named(body, rank) == sizes


def test_sizes_without_names_follow_to_none():
    assert named("v = Neg(x)", 2, "float[?,8] x") == [None, 8]


def test_what_is_declared_stays():
    text = "g (float[a,8] x) => (float[a,8] z) { v = Neg(x) z = Neg(v) }"
    model = ir.from_proto(onnx.parser.parse_model(HEAD.format(opset=20) + text))
    value = model.graph[0].outputs[0]
    value.type = ir.TensorType(ir.DataType.FLOAT)
    value.shape = ir.Shape(["rows", None])
    assert name_sizes(model) == 1
    assert [str(value.shape[0]), value.shape[1]] == ["rows", 8]
    assert name_sizes(model) == 0


def test_outputs_of_the_graph_stay():
    text = "g (float[a,8] x) => (float[?,?] z) { z = Neg(x) }"
    model = ir.from_proto(onnx.parser.parse_model(HEAD.format(opset=20) + text))
    assert name_sizes(model) == 0


@pytest.mark.parametrize(
    ("had", "told"), [("unk__2", "unk__1"), ("unk__0", "unk__0"), (None, "unk__1"), ("n", "n")]
)
def test_of_made_up_names_the_earlier_one_stays(had, told):
    text = (
        "g (float[unk__1,8] x, float[unk__1,8] z) => (float[?,8] y) { v = Add(x, z) y = Neg(v) }"
    )
    model = ir.from_proto(onnx.parser.parse_model(HEAD.format(opset=20) + text))
    value = model.graph[0].outputs[0]
    value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([had, 8])
    assert name_sizes(model) == (had != told)
    assert str(value.shape[0]) == told
    assert name_sizes(model) == 0
