from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.compiler.session import TensorSession, providers_for
from torchferry.converter.weight import weight_value
from torchferry.errors import RunError, UsageError

CPU = torch.device("cpu")
TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[N,3] x, bool[N] b) => (float[N,3] y, bool[N] c, float[N,3] z)
{ y = Relu(x) c = Not(b) z = Identity(x) }"""


def load(model: ir.Model) -> TensorSession:
    return TensorSession(model, ["CPUExecutionProvider"], CPU)


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_tensors_in_and_out(rows: int) -> None:
    session = load(ir.from_onnx_text(TEXT))
    x, b = torch.randn(rows, 3), torch.arange(rows) > 1
    y, c, z = session([x, b])
    torch.testing.assert_close((y, c, z), (x.relu(), ~b, x))
    assert y.stride() == (3, 1)
    assert (session.inputs, session.outputs) == (("x", "b"), ("y", "c", "z"))
    if rows:
        assert z.data_ptr() != x.data_ptr()
        again = session([x, b])
        y.add_(1)
        torch.testing.assert_close(again[0], x.relu())


def test_results_outlive_the_session() -> None:
    x = torch.randn(4, 3)
    y = load(ir.from_onnx_text(TEXT))([x, torch.ones(4, dtype=torch.bool)])[0]
    torch.testing.assert_close(y, x.relu())


@pytest.mark.parametrize("transposed", [False, True])
def test_large_weights_are_not_in_the_model(transposed: bool) -> None:
    weight = torch.randn(32, 32)
    weight = weight.t() if transposed else weight
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 32]))
    value = weight_value(weight, "w")
    node = ir.node("MatMul", [x, value])
    node.outputs[0].name = "y"
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[value],
                     opset_imports={"": 20})  # fmt: skip
    tensor = value.const_value
    session = load(ir.Model(graph, ir_version=10))
    assert value.const_value is tensor
    assert session.proto.ByteSize() < 1000
    given = torch.randn(2, 32)
    torch.testing.assert_close(session([given])[0], given @ weight)


def test_another_process_can_load_what_was_loaded() -> None:
    first = load(ir.from_onnx_text(TEXT))
    second = TensorSession(first.proto, ["CPUExecutionProvider"], CPU)
    x, b = torch.randn(2, 3), torch.tensor([True, False])
    torch.testing.assert_close(second([x, b]), first([x, b]))


def test_kernels_that_are_gone_are_told() -> None:
    model = ir.from_onnx_text(TEXT)
    model.metadata_props["pkg.torchferry.kernels"] = "no-such-library.so"
    with pytest.raises(RunError, match=r"cannot load the kernels .*no-such-library\.so"):
        load(model)


def test_what_onnxruntime_refuses_names_the_node() -> None:
    text = TEXT.replace("Relu(x)", "NoSuch(x)")
    with pytest.raises(RunError, match="NoSuch"):
        load(ir.from_onnx_text(text))


def test_what_onnxruntime_cannot_run() -> None:
    session = load(ir.from_onnx_text(TEXT))
    with pytest.raises(RunError, match="onnxruntime failed"):
        session([torch.ones(2, 5), torch.ones(2, dtype=torch.bool)])


def test_providers() -> None:
    assert providers_for(CPU) == ["CPUExecutionProvider"]
    with pytest.raises(RunError, match="no xpu provider"):
        providers_for(torch.device("xpu"))
    with pytest.raises(RunError, match="no Unknown"):
        providers_for(CPU, ["Unknown"])


def test_options_and_configuration_entries() -> None:
    asked = {"intra_op_num_threads": 1, "session.set_denormal_as_zero": "1"}
    model = ir.from_onnx_text(TEXT)
    session = TensorSession(model, ["CPUExecutionProvider"], CPU, options=asked)
    options = session.session.get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("threads", 1, "SessionOptions have no 'threads' to set"),
        ("add_session_config_entry", 1, "have no 'add_session_config_entry' to set"),
        ("intra_op_num_threads", "two", "session option intra_op_num_threads='two'"),
    ],
)
def test_options_that_onnxruntime_does_not_have(name: str, value: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        TensorSession(
            ir.from_onnx_text(TEXT), ["CPUExecutionProvider"], CPU, options={name: value}
        )
