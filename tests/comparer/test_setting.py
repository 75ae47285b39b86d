from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.converter import convert
from torchferry.errors import UsageError
from torchferry.exporter import to_onnx


def made(model, onnx, inputs=None, against="program"):
    return set_up(model, onnx, inputs, against=against, runner=Runner())[0][0]


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


@pytest.mark.parametrize("against", ["program", "eager"])
def test_every_set_is_compared_that_the_file_takes(small, against):
    sets = [(torch.rand(5, 6),), {"x": small.args[0]}, (torch.rand(3, 6),)]
    found, left_out = set_up(small.module, small.onnx, sets, against=against, runner=Runner())
    assert [setting.place for setting in found] == [2, 3]
    assert torch.equal(found[0].feeds["x"], small.args[0])
    assert [text.split(":")[0] for text in left_out] == ["set 1 of the inputs was not compared"]
    with pytest.raises(UsageError, match="input x has shape 5x6"):
        made(small.module, small.onnx, sets[:1], against)


def test_sets_of_a_program_and_of_a_file_are_all_compared(small):
    sets = [small.args, (torch.rand(3, 6),)]
    for reference in (small.program, convert(small.program)):
        found, _ = set_up(reference, small.onnx, sets, against="program", runner=Runner())
        assert [setting.place for setting in found] == [1, 2]


class Less(torch.nn.Module):
    def forward(self, x, y):
        return x - y


FOREIGN = """<ir_version: 10, opset_import: ["" : 20]>
main (float[2] y, float[2] x) => (float[2] z) {{ z = Sub({}) }}"""


@pytest.mark.parametrize("reference", ["module", "eager", "program"])
@pytest.mark.parametrize("inputs", ["tuple", "dict", "both"])
def test_positional_arguments_are_known_by_their_names(reference, inputs):
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 7.0])
    given = {"tuple": (x, y), "dict": {"y": y, "x": x}, "both": ((x,), {"y": y})}[inputs]
    model = torch.export.export(Less(), (x, y)) if reference == "program" else Less()
    against = "eager" if reference == "eager" else "program"
    onnx = ir.from_onnx_text(FOREIGN.format("x, y"))
    found = made(model, onnx, given, against)
    assert torch.equal(found.feeds["x"], x)
    assert compare(model, onnx, given, against=against).ok
    wrong = ir.from_onnx_text(FOREIGN.format("y, x"))
    assert not compare(model, wrong, given, against=against).ok


@pytest.mark.parametrize("against", ["program", "eager"])
def test_a_parameter_may_be_called_otherwise_in_an_export(against):
    class Other(torch.nn.Module):
        def forward(self, first, second):
            return first - second

    x, y = torch.rand(2), torch.rand(2)
    exported = to_onnx(Other(), (x, y))
    onnx = exported.model
    assert compare(Less(), exported, (x, y), against=against).ok
    assert compare(Less(), onnx, (x, y), against=against).ok
    assert compare(torch.export.export(Less(), (x, y)), onnx, (x, y)).ok


def test_a_module_that_fails_is_told_before_its_capture_is_blamed(small):
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise ValueError("no such thing")

    for against in ("program", "eager"):
        with pytest.raises(UsageError, match="Fails fails on these inputs in eager mode: Value"):
            made(Fails(), small.onnx, small.args, against)


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


def test_an_output_that_nothing_makes_is_refused(small):
    small.onnx.graph.outputs[0] = ir.Value(name="lost")
    with pytest.raises(UsageError, match="no node of the ONNX model makes its output lost"):
        made(small.program, small.onnx)


def test_weights_may_be_inputs_with_a_default(small):
    small.onnx.graph.inputs.extend(small.onnx.graph.initializers.values())
    assert compare(small.program, small.onnx).ok
    assert compare(small.module, small.onnx, small.args, feed="torch").ok


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
