import onnx
import pytest
from onnx import TensorProto, helper

from torchferry.errors import UsageError
from torchferry.graph.outline import outline, read_proto


def a_model():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", None, 3])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    s = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    y = helper.make_value_info("y", helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["z"])], "b", [], [y],
        initializer=[helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["a"], then_branch=branch, else_branch=branch),
        helper.make_node("Gelu", ["a"], ["y"], domain="com.microsoft"),
    ]
    weights = [
        TensorProto(name="i4", data_type=TensorProto.INT4, dims=[3], raw_data=b"\0\0"),
        helper.make_tensor("text", TensorProto.STRING, [2], ["ab", "c"]),
        TensorProto(name="odd", data_type=99, dims=[3], raw_data=b"\0\0\0"),
    ]
    far = TensorProto(name="far", data_type=TensorProto.FLOAT, dims=[2, 5])
    far.data_location = TensorProto.EXTERNAL
    far.external_data.add(key="location", value="x.onnx_data")
    graph = helper.make_graph(nodes, "g", [x, c, s], [y], initializer=[*weights, far])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, producer_name="me", ir_version=10)


def test_any_model(tmp_path):
    path = tmp_path / "x.onnx"
    path.write_bytes(a_model().SerializeToString())
    found = outline(path)
    assert (found.producer, found.ir_version) == ("me", 10)
    assert found.opsets == (("ai.onnx", 20), ("com.microsoft", 1))
    assert found.inputs == (("x", "FLOAT[batch, ?, 3]"), ("c", "BOOL[]"), ("s", "sequence"))
    assert found.outputs == (("y", "FLOAT of any shape"),)
    assert found.operators == (("Add", 2), ("If", 1), ("com.microsoft::Gelu", 1))
    # Two branches with 4 bytes each, 2 of int4, 3 of text, 3 of a type to come, 40 elsewhere.
    assert (found.initializers, found.initializer_bytes) == (6, 56)
    assert found.external == ("x.onnx_data",)


def test_operators_of_functions_are_counted(tmp_path):
    model = a_model()
    node = helper.make_node("Abs", ["a"], ["b"])
    model.functions.append(
        helper.make_function("d", "f", ["a"], ["b"], [node], [helper.make_opsetid("", 20)])
    )
    onnx.save(model, tmp_path / "x.onnx")
    assert ("Abs", 1) in outline(tmp_path / "x.onnx").operators


def test_names_of_properties_are_told(tmp_path):
    model = a_model()
    helper.set_model_props(model, {"author": "me", "torchferry.dump": "{}"})
    onnx.save(model, tmp_path / "x.onnx")
    assert outline(tmp_path / "x.onnx").metadata == ("author", "torchferry.dump")


def test_what_is_no_model(tmp_path):
    whole = a_model().SerializeToString()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.onnx").write_text("x")
    (tmp_path / "empty.onnx").write_text("")
    for name in ("cut.onnx", "text.onnx", "empty.onnx"):
        with pytest.raises(UsageError, match=f"{name} is no ONNX model, or it is cut short"):
            read_proto(tmp_path / name)
    with pytest.raises(UsageError, match="there is no file"):
        outline(tmp_path / "no.onnx")
