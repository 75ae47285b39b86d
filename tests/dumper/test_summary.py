import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file

from torchferry.dumper.store import create_onnx_model_from_input_tensors, open_dump
from torchferry.dumper.summary import DumpSummary, ModelSummary, TensorsSummary, summarize
from torchferry.errors import UsageError


@pytest.mark.parametrize("name", ["x.onnx", "x.safetensors", "x"])
def test_a_dump(name, tmp_path):
    with open_dump(tmp_path / name) as dump:
        dump.add(("m", 0, "I"), ((torch.ones(20, 30),), {"mask": None, "n": 3}))
        dump.add(("m", 0, "O"), torch.tensor([1.0, float("nan")]))
    found = summarize(tmp_path / name)
    assert isinstance(found, DumpSummary)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert found.nbytes == sum(file.stat().st_size for file in files)
    first, second = found.entries
    assert first.key == ("m", 0, "I")
    assert first.type == "((T1s20x30,),dict(mask:None,n:int))"
    assert [(t.name, t.type, t.nbytes) for t in first.tensors] == [("0.0", "T1s20x30", 2400)]
    assert first.tensors[0].statistics.mean == 1
    assert second.tensors[0].name == ""
    assert second.tensors[0].statistics.nans == 1


def test_a_whole_value(tmp_path):
    create_onnx_model_from_input_tensors([torch.ones(2)], tmp_path / "x.onnx")
    assert [entry.key for entry in summarize(tmp_path / "x.onnx").entries] == [()]


def test_any_safetensors(tmp_path):
    save_file({"w": torch.ones(2, 3), "s": torch.tensor(1)}, tmp_path / "x.safetensors")
    found = summarize(tmp_path / "x.safetensors")
    assert isinstance(found, TensorsSummary)
    assert {(t.name, t.type, t.nbytes) for t in found.tensors} == {
        ("w", "F32 2x3", 24), ("s", "I64 scalar", 8),
    }  # fmt: skip


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
    found = summarize(path)
    assert isinstance(found, ModelSummary)
    assert (found.producer, found.ir_version) == ("me", 10)
    assert found.opsets == (("ai.onnx", 20), ("com.microsoft", 1))
    assert found.inputs == (("x", "FLOAT batchx?x3"), ("c", "BOOL scalar"), ("s", "sequence"))
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
    assert ("Abs", 1) in summarize(tmp_path / "x.onnx").operators


def test_what_is_none_of_these(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "y.onnx").write_text("x")
    for name in ("x.txt", "y.onnx", "no", "no.onnx", "no.safetensors"):
        with pytest.raises(UsageError):
            summarize(tmp_path / name)
