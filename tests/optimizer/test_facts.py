import numpy as np
import onnx_ir as ir
import pytest
from rewriting import parse

from torchferry.dims import Dim
from torchferry.optimizer import facts
from torchferry.optimizer.rule import Declined


@pytest.fixture
def values():
    model = parse(
        "g (float[a,b,3] x, float[b,a] z, float u) => (float[a] y) "
        "{ c = Constant<value_ints=[1,-1]>() f = Constant<value_float=0.5>() y = Foo(x, c, f) }"
    )
    for value, axis in zip(model.graph.inputs[:2], (1, 0), strict=True):
        sizes = [*value.shape]
        value.shape = ir.Shape([*sizes[:axis], "b + 1", *sizes[axis + 1 :]])
    found = {v.name: v for v in model.graph.inputs}
    return found | {v.name: v for node in model.graph for v in node.outputs}


def test_sizes(values):
    a, b = Dim.of("a"), Dim.of("b")
    assert facts.shape(values["x"]) == (a, b + 1, 3)
    assert facts.size(values["x"], -2) == b + 1
    assert facts.same_size(values["x"], 1, values["z"], 0)
    assert not facts.same_size(values["x"], 0, values["z"], 0)
    assert facts.same_shape(values["x"], values["x"])
    assert facts.rank(values["u"]) == 0
    with pytest.raises(Declined, match="x has no axis 3"):
        facts.size(values["x"], 3)


def test_sizes_without_names_equal_themselves_only():
    x, z = (ir.val(name, ir.DataType.FLOAT, [None, "a"]) for name in "xz")
    assert facts.size(x, 0) == facts.size(x, 0)
    assert facts.size(x, 0) != facts.size(z, 0)
    assert facts.size(x, 0) != facts.size(x, 1)
    assert facts.size(x, 1) == facts.size(z, 1)
    with pytest.raises(Declined, match="rank of y is not known"):
        facts.rank(ir.Value(name="y"))


def test_constants(values):
    assert facts.ints(values["c"]) == [1, -1]
    assert facts.number(values["f"]) == 0.5
    assert facts.axes_of(values["c"], 3) == [1, 2]
    assert facts.is_constant(values["c"])
    assert not facts.is_constant(values["x"])
    assert not facts.is_constant(None)
    with pytest.raises(Declined, match="x is not constant"):
        facts.tensor_of(values["x"])
    with pytest.raises(Declined, match="c is no constant number"):
        facts.number(values["c"])
    with pytest.raises(Declined, match="f is no vector of integers"):
        facts.ints(values["f"])
    with pytest.raises(Declined, match="has 2 elements, more than 1"):
        facts.array(values["c"], most=1)


def test_what_can_be_overridden_is_not_constant():
    value = ir.val("c", const_value=ir.tensor(np.float32(1), name="c"))
    graph = ir.Graph([value], [], nodes=[], initializers=[value])
    assert value.is_graph_input()
    assert graph.initializers
    assert facts.constant(value) is None


def test_attributes():
    node = ir.node("Transpose", [], {"perm": [1, 0]})
    assert facts.attribute(node, "perm") == [1, 0]
    assert facts.attribute(node, "axis", 7) == 7
    bound = ir.Node("", "Cast", [], [ir.RefAttr("to", "type", ir.AttributeType.INT)])
    with pytest.raises(Declined, match="who calls the function"):
        facts.attribute(bound, "to")


def test_names_that_are_no_arithmetic():
    assert facts.size_of_text("2*n") == 2 * Dim.of("n")
    assert facts.size_of_text("my dim") == Dim.of("my dim")


@pytest.mark.parametrize("text", ["?", "*", "-1", "None", " "])
def test_what_exporters_write_for_no_name_is_no_name(text):
    x, z = (ir.val(name, ir.DataType.FLOAT, [text, 3]) for name in "xz")
    assert facts.is_nameless(text)
    assert facts.size(x, 0) == facts.size(x, 0)
    assert not facts.same_shape(x, z)
    assert facts.same_shape(*(ir.val(name, ir.DataType.FLOAT, ["n", 3]) for name in "xz"))


def test_strings_have_no_number_of_bytes():
    assert facts.byte_count(ir.tensor(np.zeros(3, np.float16))) == 6
    assert facts.byte_count(ir.StringTensor([b"a"], shape=ir.Shape([1]))) == float("inf")
