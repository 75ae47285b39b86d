import onnx_ir as ir
import pytest

from torchferry.graph.label import (
    clean,
    constant_lines,
    constant_text,
    printable,
    type_text,
    wrapped,
)


def test_types():
    value = ir.Value(name="x")
    assert type_text(value) == ""
    value.dtype = ir.DataType.BFLOAT16
    assert type_text(value) == "bf16"
    value.shape = ir.Shape([])
    assert type_text(value) == "bf16[]"
    value.shape = ir.Shape([None, "a + b", 0])
    assert type_text(value) == "bf16[?, a + b, 0]"
    listed = ir.Value(name="s", type=ir.SequenceType(ir.TensorType(ir.DataType.INT8)))
    assert "INT8" in type_text(listed)


def test_what_flows_is_no_constant():
    x = ir.Value(name="x")
    relu = ir.Node("", "Relu", [x])
    assert constant_text(x) is None
    assert constant_text(relu.outputs[0]) is None
    assert list(constant_lines(relu)) == []


@pytest.mark.parametrize(
    ("attribute", "text"),
    [
        (ir.AttrFloat32("value_float", 0.5), "0.5"),
        (ir.AttrInt64s("value_ints", [1, -1]), "[1, -1]"),
        (ir.AttrString("value_string", "a'b"), '"a\'b"'),
        (ir.AttrTensor("value", ir.tensor([2.5])), "[2.5]"),
        (ir.AttrTensor("value", ir.tensor([b"hi"])), "['hi']"),
    ],
)
def test_constants_of_every_form(attribute, text):
    constant = ir.Node("", "Constant", [], [attribute])
    assert constant_text(constant.outputs[0]) == text


def test_an_input_is_told_by_its_name_in_the_schema_or_its_place():
    for op_type, domain, name in (("Clip", "", "min"), ("Clip", "own", "1"), ("Max", "", "1")):
        zero = ir.Node("", "Constant", [], [ir.AttrFloat32("value_float", 0.0)])
        node = ir.Node(domain, op_type, [ir.Value(name="x"), zero.outputs[0], None])
        assert list(constant_lines(node)) == [f"{name} = 0"]


def test_a_long_line_is_broken_then_cut():
    assert wrapped("") == []
    assert wrapped("short") == ["short"]
    lines = wrapped("word " * 60)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 44
    assert lines[-1].endswith("…")
    assert all(len(line) <= 44 for line in wrapped("x" * 500))


def test_texts_are_made_printable():
    assert clean("x" * 99) == "x" * 43 + "…"
    assert clean("x" * 44) == "x" * 44
    assert printable("a\tb\x00\u202e") == "a b" + 2 * "\N{REPLACEMENT CHARACTER}"
