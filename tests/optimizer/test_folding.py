import numpy as np
import onnx_ir as ir
import pytest
from rewriting import changes, keeps, parse, same_numbers

from torchferry.optimizer.driver import apply_rules, remove_dead
from torchferry.optimizer.folding import ConstantSize, Fold
from torchferry.optimizer.tally import Tally

G = "g (float[a,3] x) => (float[m,n] y) "
TWO = "two = Constant<value_float=2.0>() "


def test_what_depends_on_no_input_is_computed():
    changes(
        Fold(),
        G + "{" + TWO + "four = Mul(two, two) half = Reciprocal(four) y = Mul(x, half) }",
        G + "{ c = Constant<value_float=0.25>() y = Mul(x, c) }",
    )


def test_an_output_may_be_constant():
    model = parse("g (float[a] x) => (float y) {" + TWO + "y = Neg(two) }")
    assert apply_rules(model, [Fold()], Tally()) == 1
    assert [node.op_type for node in model.graph] == ["Identity"]
    assert apply_rules(model, [Fold()], Tally()) == 0


def test_only_the_operators_that_are_asked_for():
    text = G + "{" + TWO + "s = Neg(two) y = Mul(x, s) }"
    keeps(Fold({"Mul"}), text, "not asked for")
    changes(Fold({"Neg"}), text, G + "{ s = Constant<value_float=-2.0>() y = Mul(x, s) }")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("r = RandomNormal<shape=[1, 3]>() y = Add(x, r)", "RandomNormal stays"),
        ("s = Constant<value_ints=[9000, 3000]>() z = ConstantOfShape(s) y = Add(x, z)", "large"),
        ("q = Constant<value=int8[3] {1,2,3}>() d = DequantizeLinear(q, two) y = Add(x, d)",
         "DequantizeLinear stays"),
    ],
)  # fmt: skip
def test_declines(body, reason):
    keeps(Fold(), G + "{" + TWO + body + "}", reason)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [11, 13])
def test_what_meant_something_else_is_not_computed_by_what_it_means_now(op, opset):
    """Up to opset 12 these flatten."""
    values = "<float[2,2,2] c = {1,2,3,4,5,6,7,9}>"
    text = f"g (float[a,2] x) => (float[2,a,2] y) {values} {{ s = {op}(c) y = Mul(x, s) }}"
    before, after = parse(text, opset), parse(text, opset)
    assert apply_rules(after, [Fold()], Tally()) == (opset >= 13)
    same_numbers(before, after, ({"a": 2}, {"a": 1}))


@pytest.mark.parametrize("node", ["LRN<size=3>(c)", "LpNormalization<p=1>(c)"])
def test_what_the_reference_computes_otherwise_stays(node):
    values = "<float[1,4,1,1] c = {1,2,3,4}>"
    text = f"g (float[a,1,1,1] x) => (float[a,4,1,1] y) {values} {{ s = {node} y = Mul(x, s) }}"
    keeps(Fold(), text, "stays")


def test_large_vectors_of_one_number_are_not_made():
    text = """g (int64[a] i) => (int64[a] y) {
        n = Constant<value_ints=[200000]>() z = ConstantOfShape<value=int64[1] {3}>(n)
        y = Gather(z, i) }"""
    keeps((Fold(), ConstantSize()), text)


def weights(tensor, node):
    model = parse(G + "<float[3,3] w = {1,2,3,4,5,6,7,8,9}> {" + node + "y = MatMul(x, t) }")
    value = model.graph.initializers["w"]
    value.const_value = tensor
    return model


def test_weights_are_laid_out_anew_without_a_copy():
    data = np.arange(9, dtype=np.float32).reshape(3, 3)
    model = weights(ir.Tensor(data), "t = Transpose<perm=[1,0]>(w) ")
    assert apply_rules(model, [Fold()], Tally()) == 1
    (new,) = (v for v in model.graph.initializers.values() if v.name != "w")
    assert np.shares_memory(new.const_value.numpy(), data)
    np.testing.assert_array_equal(new.const_value.numpy(), data.T)


def test_large_weights_are_not_computed_with():
    def loud():
        raise AssertionError("the weight was read")

    lazy = ir.LazyTensor(loud, ir.DataType.FLOAT, ir.Shape([3000, 3000]))
    tally = Tally()
    assert apply_rules(weights(lazy, "t = Neg(w) "), [Fold()], tally) == 0
    assert tally.declined["Fold"] == {"its inputs are large": 1}


def test_sizes_that_are_numbers():
    text = "g (float[a,3] x) => (int64[1] y, int64 z) { s = Shape<end=1>(x) d = Sub(s, s) "
    text += (
        "f = Constant<value_ints=[4]>() y = Add(d, f) i = Constant<value_int=1>() h = Shape(x) "
    )
    text += "z = Gather(h, i) }"
    model = parse(text)
    apply_rules(model, [ConstantSize()], Tally())
    remove_dead(model)
    assert [node.op_type for node in model.graph if node.op_type != "Constant"] == ["Identity"] * 2
    found = {v.name: v.const_value.numpy().tolist() for v in model.graph.initializers.values()}
    assert sorted(found.values(), key=str) == [3, [4]]


def test_sizes_that_are_not():
    keeps(ConstantSize(), "g (float[a,3] x) => (int64[2] y) { y = Shape(x) }")


def test_what_the_reference_cannot_compute_stays():
    text = G + "{ s = Constant<value_ints=[5]>() z = Constant<value_floats=[1.0, 2.0]>() "
    tally, model = Tally(), parse(text + "t = Reshape(z, s) y = Add(x, t) }")
    model.graph[2].op_type = "Expand"  # a shape it cannot have
    assert apply_rules(model, [Fold()], tally) == 0
    assert "Fold" in tally.declined


def test_strings_and_what_onnxruntime_computes_otherwise_stay():
    keeps(Fold(), "g (float[a] x) => (string[2] y) "
          "{ c = Constant<value_floats=[1.5,2.0]>() y = Cast<to=8>(c) }")  # fmt: skip
    keeps(
        Fold(),
        "g (float[a] x) => (float[1,1,1,2] y) { c = Constant<value=float[1,1,1,4] "
        "{1.0,2.0,3.0,4.0}>() s = Constant<value_floats=[1.0,1.0,1.0,0.6]>() "
        'y = Resize<mode="linear",coordinate_transformation_mode="align_corners">(c, , s) }',
        opset=18,
    )
