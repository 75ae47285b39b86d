import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchferry.converter.torch_onnx import export_module, translate
from torchferry.errors import ConversionError

ATEN = torch.library.Library("ferrytest", "DEF")
ATEN.define("mystery(Tensor x) -> Tensor")
ATEN.impl("mystery", lambda x: x.clone(), "CompositeExplicitAutograd")


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.ops.ferrytest.mystery(x)  # mystery


class Singular(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]  # svd


class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


def line(mark):
    lines = Path(__file__).read_text("utf-8").splitlines()
    number = next(i for i, text in enumerate(lines, 1) if text.endswith(f"  # {mark}"))
    return f"{__file__}:{number}"


@pytest.mark.parametrize(
    ("inner", "op", "mark"),
    [(Inner(), "ferrytest.mystery.default", "mystery"),
     (Singular(), "aten._linalg_svd.default", "svd")],
)  # fmt: skip
def test_an_operator_without_translation_is_named_with_its_module_and_line(inner, op, mark):
    program = torch.export.export(Outer(inner), (torch.ones(2, 2),))
    with pytest.raises(ConversionError) as caught:
        translate(program, 20)
    message, error = str(caught.value), caught.value
    assert f"{op} has no ONNX translation" in message
    assert f"in inner ({type(inner).__name__}), at {line(mark)}" in message
    assert error.source_line == line(mark)
    assert error.node in message
    assert len(message.splitlines()) == 1


def test_the_program_comes_back_after_a_failure():
    program = torch.export.export(Outer(Inner()), (), {"x": torch.ones(2, 2)})
    before = str(program), program.call_spec.in_spec, program.example_inputs
    with pytest.raises(ConversionError):
        translate(program, 20)
    assert (str(program), program.call_spec.in_spec, program.example_inputs) == before
    assert torch.equal(program.module()(x=torch.ones(2, 2)), torch.full((2, 2), 2.0))


def test_the_translation_keeps_inputs_and_outputs_in_order():
    class Many(torch.nn.Module):
        def forward(self, a, d, *, b):
            return {"z": a + d["k"][0], "none": None, "n": 3, "y": b * 2}

    ones = torch.ones(2)
    program = torch.export.export(Many(), (ones, {"k": [ones]}), {"b": ones})
    model = translate(program, 20)
    assert [len(model.graph.inputs), len(model.graph.outputs)] == [3, 2]
    producers = [value.producer().op_type for value in model.graph.outputs]
    assert producers == ["Add", "Mul"]


def test_logging_and_warnings_are_as_before():
    names = ("torch", "torch.onnx", "")
    before = [[(h, h.level) for h in logging.getLogger(name).handlers] for name in names]
    with pytest.raises(ConversionError):
        translate(torch.export.export(Inner(), (torch.ones(2),)), 20)
    after = [[(h, h.level) for h in logging.getLogger(name).handlers] for name in names]
    assert before == after


class Decides(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize("model", [Decides(), Singular(), Inner()], ids=type)
def test_nothing_is_printed_by_a_failure(model, capfd):
    with pytest.raises(ConversionError, match=r"^torch\.onnx\.export failed: "):
        export_module(model, (torch.ones(2, 2),), {}, None, 20)
    assert capfd.readouterr() == ("", "")


def test_nothing_is_printed_the_first_time():
    code = (
        "import torch; from torchferry.converter import convert;"
        "convert(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))"
    )
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
