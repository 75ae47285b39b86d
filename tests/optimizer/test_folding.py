import numpy as np
import onnx_ir as ir
import pytest
from rewriting import changes, keeps, parse, same_numbers

from torchferry.optimizer.driver import apply_rules, remove_dead
from torchferry.optimizer.folding import ConstantSize, Fold, compute
from torchferry.optimizer.rule import Declined
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


LARGE = np.arange(512 * 256, dtype=np.int64).reshape(512, 256).astype(np.int8)  # 128 KiB


def folded(body, **weights):
    """The model after folding; its result is small, whatever the weights are."""
    declared = ", ".join(
        f"{ir.tensor(w).dtype.name.lower()}{list(w.shape)} {name}" for name, w in weights.items()
    )
    inputs = f"float[a,512] x, {declared}".rstrip(", ")
    model = parse(f"g ({inputs}) => (float[m,n] y) {{ {body} }}")
    for index in reversed(range(1, len(model.graph.inputs))):
        value = model.graph.inputs[index]
        model.graph.inputs.pop(index)
        value.const_value = ir.tensor(weights[value.name], name=value.name)
        model.graph.register_initializer(value)
    tally = Tally()
    apply_rules(model, [Fold()], tally)
    remove_dead(model)
    return model, tally


def held(model):
    return sum(v.const_value.nbytes for v in model.graph.initializers.values())


def operators(model):
    return [node.op_type for node in model.graph if node.op_type != "Constant"]


DOUBLED = "t = Concat<axis=0>(w, w) h = Slice(t, zero, length, zero) "
SCALE = np.linspace(0.01, 0.02, 256, dtype=np.float32)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("c = Cast<to=1>(w) y = MatMul(x, c)", ["Cast", "MatMul"]),
        ("c = Cast<to=1>(w) d = Mul(c, s) y = MatMul(x, d)", ["Cast", "Mul", "MatMul"]),
        ("c = Cast<to=7>(w) d = Sub(c, c) e = Cast<to=1>(d) y = MatMul(x, e)",
         ["Cast", "Sub", "Cast", "MatMul"]),
        ("n = Neg(w) c = Cast<to=1>(n) y = MatMul(x, c)", ["Cast", "MatMul"]),
        (DOUBLED + "c = Cast<to=1>(h) y = MatMul(x, c)", ["Cast", "MatMul"]),
    ],
)  # fmt: skip
def test_a_weight_of_bytes_stays_one(body, left):
    zero, length = np.zeros(1, np.int64), np.array([512])
    model, _ = folded(body, w=LARGE, s=SCALE, zero=zero, length=length)
    assert operators(model) == left
    assert held(model) <= LARGE.nbytes + SCALE.nbytes + 64


def test_what_becomes_small_again_is_computed():
    model, _ = folded(
        "c = Cast<to=1>(w) axes = Constant<value_ints=[1]>() r = ReduceSum<keepdims=0>(c, axes) "
        "y = Mul(x, r)", w=LARGE,
    )  # fmt: skip
    assert operators(model) == ["Mul"]
    assert held(model) == 512 * 4
    (total,) = model.graph.initializers.values()
    np.testing.assert_array_equal(total.const_value.numpy(), LARGE.sum(1, dtype=np.float32))


def test_a_weight_that_is_read_elsewhere_is_not_stored_twice():
    body = "t = Transpose<perm=[1,0]>(w) c = Cast<to=1>(t) d = Cast<to=1>(w) "
    body += "e = MatMul(x, d) y = MatMul(e, c)"
    model, tally = folded(body, w=LARGE)
    assert held(model) == LARGE.nbytes
    assert "more bytes" in next(iter(tally.declined["Fold"]))


@pytest.mark.parametrize(("columns", "left"), [(8, ["MatMul"]), (9, ["Cast", "MatMul"])])
def test_what_is_small_may_grow(columns, left):
    model, _ = folded("c = Cast<to=1>(w) y = MatMul(x, c)", w=LARGE[:, :columns].copy())
    assert operators(model) == left
    assert held(model) == 512 * columns * (4 if columns == 8 else 1)


def test_a_table_that_is_made_of_numbers_may_be_stored():
    """No weight grows: there is none."""
    body = "n = Constant<value_ints=[512,31]>() o = ConstantOfShape(n) y = MatMul(x, o)"
    model, _ = folded(body)
    assert operators(model) == ["MatMul"]


def test_half_of_a_weight_may_be_stored():
    """Its bytes are halved by the one cast, and its other reader is gone with it."""
    model, _ = folded(
        "h = Cast<to=10>(w) c = Cast<to=1>(h) y = MatMul(x, c)",
        w=np.linspace(0, 1, 512 * 256, dtype=np.float32).reshape(512, 256),
    )
    assert operators(model) == ["Cast", "MatMul"]
    assert held(model) == 512 * 256 * 2


def test_a_view_is_called_after_its_weight():
    model, _ = folded("t = Transpose<perm=[1,0]>(w) c = Cast<to=1>(t) y = MatMul(x, c)", w=LARGE.T)
    assert list(model.graph.initializers) == ["w.T"]
    body = "s = Constant<value_ints=[512,256]>() t = Reshape(w, s) c = Cast<to=1>(t) "
    model, _ = folded(body + "y = MatMul(x, c)", w=LARGE.reshape(-1))
    assert list(model.graph.initializers) == ["w.view"]


def test_what_is_asked_for_is_computed_whatever_its_size():
    large = np.ones((1024, 1024), np.int8)
    model, _ = folded("d = Add(w, w) c = Cast<to=1>(d) y = MatMul(x, c)", w=large)
    assert operators(model) == ["Add", "Cast", "MatMul"], "it is too large to be folded"
    content = compute(model.graph[1].outputs[0], 20)
    assert content.dtype == ir.DataType.FLOAT
    assert (content.numpy() == 2).all()
    with pytest.raises(Declined, match="not computed of constants"):
        compute(model.graph[2].outputs[0], 20)
