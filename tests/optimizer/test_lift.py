import onnx_ir as ir
from rewriting import HEAD, same_numbers

from torchferry.optimizer.lift import lift_constants


def test_constants_become_initializers():
    text = HEAD.format(opset=20) + (
        "g (float[a] x) => (float[a] y, float o) { c = Constant<value_float=2.0>() "
        "o = Constant<value_float=3.0>() y = Mul(x, c) }"
    )
    model = ir.from_onnx_text(text)
    assert lift_constants(model) == 1
    assert [node.op_type for node in model.graph] == ["Constant", "Mul"]
    assert model.graph.initializers["c"].const_value.numpy() == 2
    same_numbers(ir.from_onnx_text(text), model)
