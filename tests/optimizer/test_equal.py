import onnx
import onnx_ir as ir
import pytest
from rewriting import parse, same_numbers

from torchferry.optimizer.driver import remove_dead
from torchferry.optimizer.equal import merge_equal

G = "g (float[a,b] x, float[a,b] z) => (float[a,b] y) "


def merged(text):
    model = parse(text)
    count = merge_equal(model)
    remove_dead(model)
    same_numbers(parse(text), model)
    assert merge_equal(model) == 0
    return count, sorted(node.op_type for node in model.graph if node.op_type != "Constant")


def test_equal_nodes_are_computed_once():
    text = G + "{ s = Neg(x) t = Neg(x) u = Add(s, z) v = Add(z, t) y = Mul(u, v) }"
    assert merged(text) == (2, ["Add", "Mul", "Neg"])


@pytest.mark.parametrize(
    "body",
    [
        "s = Softmax<axis=0>(x) t = Softmax<axis=1>(x) y = Add(s, t)",
        "s = Sub(x, z) t = Sub(z, x) y = Mul(s, t)",
    ],
)
def test_other_nodes_stay(body):
    assert merged(G + "{" + body + "}")[0] == 0


def test_random_numbers_stay_two():
    model = parse(G + "{ s = RandomNormalLike(x) t = RandomNormalLike(x) y = Add(s, t) }")
    assert merge_equal(model) == 0


NOISE = """
<domain: "own", opset_import: ["" : 20]> Noise (a) => (b) { r = RandomNormalLike(a) b = Add(a, r) }
<domain: "own", opset_import: ["own" : 1]> Twice (a) => (c) { b = own.Noise(a) c = own.Noise(b) }
<domain: "own", opset_import: ["" : 20]> Plain (a) => (b) { b = Neg(a) }
"""


@pytest.mark.parametrize(("called", "merges"), [("Noise", 0), ("Twice", 0), ("Plain", 1)])
def test_calls_of_functions_that_draw_stay_two(called, merges):
    head = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>\n'
    body = f"{{ s = own.{called}(x) t = own.{called}(x) y = Sub(s, t) }}"
    model = ir.from_proto(onnx.parser.parse_model(head + G + body + NOISE))
    assert merge_equal(model) == merges


def test_attributes_of_strings():
    words = ir.tensor([b"a", b"b"], dtype=ir.DataType.STRING)
    made = [
        ir.node("LabelEncoder", [ir.val("x", ir.DataType.STRING, ["n"])],
                {"keys_tensor": words, "values_tensor": ir.tensor([number, 2])},
                domain="ai.onnx.ml")
        for number in (1, 3)
    ]  # fmt: skip
    x = made[0].inputs[0]
    twin = ir.node("LabelEncoder", [x], {"keys_tensor": words, "values_tensor": ir.tensor([1, 2])},
                   domain="ai.onnx.ml")  # fmt: skip
    made[1].replace_input_with(0, x)
    total = ir.node("Sum", [node.outputs[0] for node in (*made, twin)])
    graph = ir.Graph([x], total.outputs, nodes=[*made, twin, total], opset_imports={"": 20})
    assert merge_equal(ir.Model(graph, ir_version=10)) == 1
    assert list(total.inputs) == [made[0].outputs[0], made[1].outputs[0], made[0].outputs[0]]


def test_an_output_keeps_its_node():
    text = "g (float[a] x) => (float[a] y, float[a] w) { y = Neg(x) w = Neg(x) }"
    assert merged(text)[0] == 0


def test_equal_constants_count_as_one_input():
    one = "{0} = Constant<value_float=1.0>() "
    text = (
        G + "{" + one.format("c") + one.format("d") + "s = Add(x, c) t = Add(x, d) y = Mul(s, t) }"
    )
    assert merged(text) == (1, ["Add", "Mul"])


def test_sizes_that_are_one_expression():
    text = """g (float[a,b] x, float[a,c] z) => (int64[1] y) {
        s = Shape<end=1>(x) t = Shape<end=1>(z)
        o = Constant<value_ints=[1]>() u = Add(s, o) v = Add(o, t) w = Add(v, s) y = Add(w, u) }"""
    assert merged(text) == (2, ["Add", "Add", "Add", "Shape"])


def test_sizes_without_names_are_not_one():
    text = "g (float[a] x) => (int64[2] y) { n = Neg(x) i = NonZero(x) j = NonZero(n) "
    model = parse(text + "s = Shape(i) t = Shape(j) y = Add(s, t) }")
    assert merge_equal(model) == 0
    model = parse(text + "k = NonZero(x) s = Shape(i) t = Shape(k) y = Add(s, t) }")
    assert merge_equal(model) == 2  # NonZero(x), and its shape


def test_subgraphs_read_values_from_around():
    text = """g (float[a] x, bool c) => (float[a] y) {
        s = Neg(x)
        r = If (c) <
            then_branch = t () => (float[a] p) { n = Neg(x) p = Exp(n) },
            else_branch = e () => (float[a] q) { m = Abs(x) q = Exp(m) }
        >
        k = Abs(x) w = Add(s, k) y = Add(w, r) }"""
    count, operators = merged(text)
    assert count == 1  # the Abs of the branch is not known outside
    assert operators.count("Abs") == 1
    assert isinstance(parse(text), ir.Model)


def test_strings_are_not_compared_by_content():
    text = 'g (string[a] x) => (bool[a] y) { c = Constant<value_strings=["a"]>() '
    model = parse(text + "p = Equal(x, c) q = Equal(x, c) y = And(p, q) }")
    assert merge_equal(model) == 1
