"""A whole program as a graph: inputs, weights, outputs, and what is missing."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
import torch
from op_case import check, export, run

from torchferry.converter.translate import translate
from torchferry.errors import ConversionError, LoweringFailed, MissingLowering

OPS = torch.library.Library("ferrymissing", "DEF")
for _name in ("mystery", "riddle"):
    OPS.define(f"{_name}(Tensor x) -> Tensor")
    OPS.impl(_name, lambda x: x.clone(), "CompositeExplicitAutograd")


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.ops.ferrymissing.mystery(x)  # mystery


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        y = self.inner(x) + self.inner(x)
        return torch.ops.ferrymissing.riddle(y)  # riddle


def line(mark):
    lines = Path(__file__).read_text("utf-8").splitlines()
    number = next(i for i, text in enumerate(lines, 1) if text.endswith(f"  # {mark}"))
    return f"{__file__}:{number}"


def test_everything_missing_is_told_at_once():
    program = torch.export.export(Outer(), (torch.ones(2, 2),))
    with pytest.raises(MissingLowering) as caught:
        translate(program, 20)
    error, message = caught.value, str(caught.value)
    assert error.operators == {
        "ferrymissing.mystery.default": 2,
        "ferrymissing.riddle.default": 1,
    }
    assert f"(2x) in inner (Inner), at {line('mystery')}" in message
    assert f"(1x) in the model (Outer), at {line('riddle')}" in message
    assert error.source_line == line("mystery")
    assert "torchferry.lowers" in message
    assert len(message.splitlines()) <= 12


def test_the_program_comes_back_after_a_failure():
    program = torch.export.export(Outer(), (), {"x": torch.ones(2, 2)})
    before = str(program), program.call_spec.in_spec, program.example_inputs
    with pytest.raises(MissingLowering):
        translate(program, 20)
    assert (str(program), program.call_spec.in_spec, program.example_inputs) == before
    assert torch.equal(program.module()(x=torch.ones(2, 2)), torch.full((2, 2), 2.0))


def test_inputs_and_outputs_are_in_the_order_of_the_program():
    class Many(torch.nn.Module):
        def forward(self, a, d, *, b):
            return {"z": a + d["k"][0], "none": None, "n": 3, "y": b * 2}

    ones = torch.ones(2)
    program = torch.export.export(Many(), (ones, {"k": [ones]}), {"b": ones})
    model = translate(program, 20)
    assert [len(model.graph.inputs), len(model.graph.outputs)] == [3, 2]
    producers = [value.producer().op_type for value in model.graph.outputs]
    assert producers == ["Add", "Mul"]


def test_a_size_is_computed_once_and_returned_as_a_number():
    def sizes(x, y):
        n = x.shape[0] + y.shape[0]
        return x.sum() + n, y * n, n

    program = export(sizes, (torch.ones(2, 3), torch.ones(4)), (torch.ones(5, 3), torch.ones(6)))
    model = translate(program, 20)
    assert Counter(node.op_type for node in model.graph)["Shape"] == 2
    *_, number = run(model, (torch.ones(1, 3), torch.ones(1)))
    assert (number.item(), number.shape) == (2, ())


def test_an_unused_input_stays_an_input():
    model = translate(export(lambda x, y: x + 1, (torch.ones(2), torch.ones(3))), 20)
    assert len(model.graph.inputs) == 2


def test_an_input_returned_as_it_is():
    x = torch.randn(3)
    model = translate(export(lambda x: (x, x + 1), (x,)), 20)
    assert len(model.graph.outputs) == 2


def test_nodes_know_where_they_came_from():
    model = translate(
        torch.export.export(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),)), 20
    )
    (node,) = model.graph
    assert node.metadata_props["pkg.torch.onnx.name_scopes"] == "['', '0', 'relu']"
    hierarchy = node.metadata_props["pkg.torch.onnx.class_hierarchy"]
    assert "torch.nn.modules.activation.ReLU" in hierarchy
    assert node.metadata_props["namespace"].startswith(": torch.nn.modules.container.Sequential/")
    assert "relu" in node.metadata_props["pkg.torch.onnx.fx_node"]


def test_a_lowering_that_fails_is_told_with_its_place():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x.view(torch.int16)  # bits

    program = torch.export.export(Model(), (torch.ones(2, dtype=torch.float64),))
    with pytest.raises((LoweringFailed, MissingLowering)) as caught:
        translate(program, 20)
    assert caught.value.source_line == line("bits")


def test_weights_of_every_dtype_are_stored_as_they_are():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.low = torch.nn.Parameter(torch.randn(3, dtype=torch.bfloat16))
            self.register_buffer("steps", torch.arange(3, dtype=torch.int32))

        def forward(self, x):
            return x + self.low.float() + self.steps

    model = translate(torch.export.export(Model(), (torch.ones(3),)), 20)
    kinds = {name: value.dtype for name, value in model.graph.initializers.items()}
    assert kinds["low"] == ir.DataType.BFLOAT16
    assert kinds["steps"] == ir.DataType.INT32


@pytest.mark.parametrize("opset", [18, 20, 21, 22, 23])
def test_models_are_valid_in_every_opset(opset):
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(2, 3)
    model = check(layers, (x,), (torch.randn(5, 3),), opset=opset)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    assert [node.op_type for node in model.graph] == ["Gemm", "Relu", "Gemm"]


def test_a_matrix_is_stored_transposed_and_a_tied_one_is_not():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(7, 5)
            self.head = torch.nn.Linear(5, 7, bias=False)
            self.head.weight = self.embed.weight
            self.free = torch.nn.Linear(5, 5, bias=False)

        def forward(self, ids):
            return self.head(self.free(self.embed(ids)))

    model = check(Tied(), (torch.tensor([[1, 2]]),), (torch.tensor([[1, 2, 3]]),))
    names = [name for name in model.graph.initializers if not name.startswith("constant")]
    assert sorted(names) == ["free.weight.T", "head.weight"]  # torch keeps one name of two


def test_nothing_is_printed_the_first_time():
    code = (
        "import torch; from torchferry.converter import convert;"
        "convert(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))"
    )
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("returned", [True, 3, 2.5, None, "text", (), [None]])
def test_nothing_that_is_computed_is_refused(returned):
    with pytest.raises(ConversionError, match="forward returns no tensor"):
        translate(export(lambda x: returned, (torch.ones(2),)), 20)


def test_constants_of_bodies_that_are_called_alike_are_kept_apart():
    def function(x):
        def body(y):
            return y + torch.tensor([1.0, 2.0])

        def other(y):
            return y * torch.tensor([3.0, 4.0])

        return torch.cond(x.sum() > 0, body, other, (x,)) + torch.tensor([5.0, 6.0])

    check(function, (torch.ones(2),), (-torch.ones(2),))
