import onnx_ir as ir
import pytest
import torch

from torchferry.seams import torch_onnx


def test_a_lowering_of_onnxscript_writes_a_node():
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    (node,) = (n for n in program.graph.nodes if n.op == "call_function")
    assert torch_onnx.has_lowering(node.target)
    function, _ = torch_onnx.dispatch(node)
    opset = torch_onnx.new_opset(18)
    recorder = torch_onnx.new_recorder(opset)
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    with torch_onnx.recorded_by(recorder):
        function(torch_onnx.stand_in(value, opset))
    assert [made.op_type for made in recorder.nodes] == ["Relu"]


@pytest.mark.parametrize("part", ["_new_opset", "_default_as", "_dispatch", "_OpRecorder"])
def test_without_a_part_there_are_none(part, monkeypatch):
    monkeypatch.setattr(torch_onnx, part, None)
    torch_onnx._registry.cache_clear()
    try:
        assert not torch_onnx.has_lowering(torch.ops.aten.relu.default)
        function, said = torch_onnx.dispatch(None)
        assert function is None
        assert "this version of torch or onnxscript" in said
    finally:
        monkeypatch.undo()
        torch_onnx._registry.cache_clear()
