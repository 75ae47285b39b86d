import onnx_ir as ir
import pytest

from torchferry.runner import nodes_without_kernel

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
agraph ({kind}[n, 4] x, {kind}[4, 4] w) => ({kind}[n, 4] z)
{{
   a = Identity(x)
   y = MatMul(a, w)
   z = MatMul(y, w)
}}
"""


def model(kind):
    built = ir.from_onnx_text(TEXT.format(kind=kind))
    for node in built.graph:
        node.outputs[0].type = built.graph.inputs[0].type
    return built


def test_names_the_nodes_onnxruntime_has_no_kernel_for():
    missing = nodes_without_kernel(model("bfloat16"), ir.DataType.BFLOAT16)
    assert [node.op_type for node in missing] == ["MatMul", "MatMul"]
    assert [node.outputs[0].name for node in missing] == ["y", "z"]


def test_names_the_nodes_whose_definition_has_no_such_type():
    built = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 20]>
        agraph (bfloat16[n, 3, 8] x, bfloat16[4, 3, 2] w) => (bfloat16[n, 4, l] z)
        {
           y = Conv(x, w)
           z = Identity(y)
        }
    """)
    built.graph[0].outputs[0].type = built.graph.inputs[0].type
    missing = nodes_without_kernel(built, ir.DataType.BFLOAT16)
    assert [node.op_type for node in missing] == ["Conv"]


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_leaves_other_types_alone(kind):
    assert nodes_without_kernel(model(kind), ir.DataType.BFLOAT16) == []


def test_asks_about_the_inner_nodes_of_a_branch():
    built = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 20]>
        agraph (bool c, bfloat16[n] x) => (bfloat16[n] z)
        {
           z = If (c) <
             then_branch = g1 () => (bfloat16[n] a) { a = Mul(x, x) },
             else_branch = g2 () => (bfloat16[n] b) { b = Identity(x) }
           >
        }
    """)
    assert [n.op_type for n in nodes_without_kernel(built, ir.DataType.BFLOAT16)] == ["Mul"]
