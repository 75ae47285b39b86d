from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from torchferry.capturer import capture
from torchferry.diagnoser.explain.blame import advice_for, explain, who_raised, with_code
from torchferry.errors import CaptureError, ConversionError
from torchferry.observer import Observation


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # here
            return x
        return -x


LINE = next(
    number
    for number, line in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)
    if line.endswith("# here")
)


def test_the_reason_is_torchs_and_the_line_is_the_users() -> None:
    sets = [((torch.ones(n),), {}) for n in (2, 5)]
    with pytest.raises(CaptureError) as caught:
        capture(Decides(), Observation.from_inputs(Decides(), sets), rewrite=False)
    reason = explain(caught.value)
    assert reason.text.startswith("Could not guard on data-dependent expression")
    assert "\n" not in reason.text
    assert reason.line == f"{__file__}:{LINE}: if x.sum() > 0:  # here"
    assert "torch.cond" in reason.advice


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Could not guard on data-dependent expression u0", "torch.where or torch.cond"),
        ("Expected u3 >= 0", "torch._check"),
        ("Constraints violated (batch)!", "x.shape"),
        ("dimension batch was fixed to 3", "x.shape"),
        ("UnsupportedOperatorException: lib.op.default", "register_fake"),
        ("cannot convert: lib.op has no ONNX translation", "no ONNX form"),
        ("conversion of some_op not implemented if enable_gqa", "no ONNX form"),
        ("forward writes to buffer seen", "as an argument"),
        ("forward writes to input x", "new tensor"),
        ("torch._dynamo.exc.Unsupported", "torch.library.custom_op"),
        (
            "dropout in training mode is random, call model.eval() before",
            "call model.eval() first",
        ),
        ("writes to buffer running_mean: call model.eval() first", "call model.eval() first"),
        ("Error when translating node return (linear, 3)", "return no numbers"),
        ("something else", "change that line"),
    ],
)
def test_each_reason_has_its_advice(text: str, words: str) -> None:
    assert words in advice_for(text)


def test_what_only_announces_a_list_is_no_reason() -> None:
    text = "Found the following conflicts:\n\n- tracing inferred a static shape of 2\n- and more"
    reason = explain(ValueError(text))
    assert reason.text == "tracing inferred a static shape of 2"
    assert "x.shape" in reason.advice


def test_an_error_that_knows_its_line_is_believed() -> None:
    error = ConversionError("no form", source_line=f"{__file__}:{LINE}")
    assert explain(error).line == f"{__file__}:{LINE}: if x.sum() > 0:  # here"
    assert with_code("/no/file.py:3") == "/no/file.py:3"
    assert with_code("unknown") == "unknown"


def test_a_reason_that_is_a_bare_name_says_what_it_is() -> None:
    assert explain(KeyError("x")).text == "KeyError: 'x'"
    assert explain(RuntimeError()).text == "RuntimeError"


def test_dynamos_place_is_read_off_its_text() -> None:
    text = 'no\n\nfrom user code:\n  File "/a.py", line 3, in forward\n    x = g(x)\n'
    assert explain(RuntimeError(text)).line == "/a.py:3: x = g(x)"


def test_who_raised_is_the_innermost_module_that_the_model_has() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no\nmore")  # raised

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList([Inner()])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[0](x)

    model = Outer()
    with pytest.raises(ValueError, match="no") as caught:
        model(torch.ones(2))
    said = who_raised(caught.value, model)
    assert said.startswith(f"module parts.0 (Inner) raises ValueError: no, at {__file__}:")
    assert said.endswith("# raised")
    assert who_raised(ValueError(), model) == "its own code raises ValueError: nothing more"


def test_without_a_line_none_is_to_be_changed() -> None:
    assert explain(ValueError("something else")).advice == ""
    assert explain(ConversionError("something else", source_line="a.py:3")).advice == advice_for(
        ""
    )


def test_what_torch_onnx_does_not_know_has_no_onnx_form() -> None:
    texts = (
        "Exporting the operator 'aten::vdot' to ONNX opset version 20 is not supported",
        "ONNX export failed on an operator with unrecognized namespace lib::op",
    )
    for text in texts:
        error = torch.onnx.errors.UnsupportedOperatorError("aten::vdot", 20, None)
        error.args = (text,)
        assert "no ONNX form" in explain(error).advice


def test_a_file_that_is_gone_is_not_named() -> None:
    said = "onnxruntime cannot load /tmp/torchferry-a_1b/model.onnx: no"
    assert explain(RuntimeError(said)).text == "onnxruntime cannot load the exported file: no"
    assert "mine/model.onnx" in explain(RuntimeError("cannot load mine/model.onnx")).text
