from __future__ import annotations

from typing import Any

import pytest

from torchferry.diagnoser.trial.option import Options
from torchferry.errors import UsageError


@pytest.mark.parametrize("options", [{"exporter": "onnx"}, {"atol": -1.0}, {"rtol": float("nan")}])
def test_what_is_no_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Options(**options).check()


@pytest.mark.parametrize("exporter", ["fx", "to_onnx", "onnx_dynamo", "torch_script"])
def test_an_option_that_the_exporter_does_not_have_is_refused(exporter: str) -> None:
    with pytest.raises(UsageError, match=f"{exporter} takes no 'no_such'"):
        Options(exporter, {"no_such": 1}).check()


def test_a_name_that_is_nearly_right_is_guessed() -> None:
    with pytest.raises(UsageError, match="did you mean 'opset_version'"):
        Options("torch_script", {"opset_versoin": 18}).check()


@pytest.mark.parametrize("exporter", ["fx", "onnx_dynamo"])
def test_what_belongs_to_each_module_is_refused(exporter: str) -> None:
    with pytest.raises(UsageError, match="differs from module to module"):
        Options(exporter, {"dynamic_shapes": None}).check()


def test_a_value_that_no_module_can_be_exported_with_is_refused() -> None:
    with pytest.raises(UsageError, match=r"exports nothing, not even x \+ 1"):
        Options("torch_script", {"opset_version": 99}).check()
    Options("torch_script", {"opset_version": 17}).check()
    Options("fx", {"strict": True}).check()
