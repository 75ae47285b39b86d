from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.exporter import to_onnx


def made(model, onnx, inputs=None, against="program"):
    return set_up(model, onnx, inputs, against=against, runner=Runner())


def test_a_module_is_captured(small):
    found = made(small.module, small.onnx, small.args)
    assert found.module is small.module
    assert found.reference.program is not None
    assert found.reference.origins["add"].key == "add"
    assert torch.equal(found.feeds["x"], small.args[0])


def test_the_program_of_an_export_is_used(small):
    program = to_onnx(small.module, small.args)
    assert made(small.module, program, small.args).reference.program is program.program


@pytest.mark.parametrize("form", ["pair", "tuple", "dict", "tensor", "list"])
def test_inputs_come_in_several_forms(small, form):
    x = small.args[0]
    inputs = {"pair": ((x,), {}), "tuple": (x,), "dict": {"x": x}, "tensor": x,
              "list": [(x,), {"x": x[:2]}]}[form]  # fmt: skip
    assert torch.equal(made(small.module, small.onnx, inputs).feeds["x"], x)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (None, "give"),
        ([], "an empty list"),
        (3, "not a int"),
        ({"z": 1}, "no input|unexpected|cannot"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(small, inputs, says):
    with pytest.raises(UsageError, match=says):
        made(small.module, small.onnx, inputs)


def test_a_program_has_inputs_of_its_own(small):
    assert torch.equal(made(small.program, small.onnx).feeds["x"], small.args[0])
    other = torch.rand(3, 6)
    assert torch.equal(made(small.program, small.onnx, (other,)).feeds["x"], other)


def test_a_captured_program_is_one(small):
    class Captured:
        program = small.program

    assert made(Captured(), small.onnx).reference.program is small.program


def test_files_folders_and_protos_are_onnx_models(small, tmp_path):
    ir.save(small.onnx, tmp_path / "model.onnx")
    for source in (tmp_path, tmp_path / "model.onnx", str(tmp_path), ir.to_proto(small.onnx)):
        assert len(made(small.program, source).onnx.graph) == len(small.onnx.graph)


def test_what_is_no_model_is_refused(small, tmp_path):
    with pytest.raises(UsageError, match="cannot compare a dict"):
        made({}, small.onnx)
    with pytest.raises(UsageError, match="cannot compare a float"):
        made(small.program, 2.5)
    with pytest.raises(UsageError, match="there is no file"):
        made(small.program, tmp_path / "none.onnx")


def test_onnx_models_are_given_inputs_that_fit(small):
    found = made(convert(small.program), small.onnx)
    assert found.feeds["x"].shape == (3, 6)
    assert found.module is None
    found = made(convert(small.program), small.onnx, {"x": small.args[0]})
    assert torch.equal(found.feeds["x"], small.args[0])


def test_onnx_models_that_take_other_inputs_are_refused(small):
    other = convert(small.program)
    other.graph.inputs[0].name = "z"
    with pytest.raises(UsageError, match="take other inputs: x and z"):
        made(small.onnx, other)


@pytest.mark.parametrize(
    ("weights", "dtype"),
    [
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float32),
    ],
)
def test_the_coarsest_dtype_is_that_of_the_weights(weights, dtype):
    module = torch.nn.Linear(2, 2).to(weights)
    program = torch.export.export(module, (torch.rand(1, 2).to(weights),))
    assert made(program, convert(program)).coarsest == dtype
