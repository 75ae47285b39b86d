from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from torchferry.observer.keywords import explicit_keywords


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, **more: Any) -> torch.Tensor:
        return x * more["scale"] if more.get("flag") else x


def test_torch_exports_what_goes_to_kwargs() -> None:
    model = Scaled()
    kwargs = {"x": torch.rand(3, 4), "scale": torch.rand(3, 4), "flag": True}
    shapes = {"x": {0: Dim.DYNAMIC}, "scale": {0: Dim.DYNAMIC}, "flag": None}
    with explicit_keywords(model, kwargs):
        program = torch.export.export(model, (), kwargs, dynamic_shapes=shapes)
    other = {"x": torch.rand(7, 4), "scale": torch.rand(7, 4), "flag": True}
    torch.testing.assert_close(program.module()(**other), other["x"] * other["scale"])


def test_the_method_is_as_it_was() -> None:
    model = Scaled()
    before = inspect.signature(model.forward)
    with explicit_keywords(model, ["x", "scale"]):
        assert list(inspect.signature(model.forward).parameters) == ["x", "scale"]
    assert inspect.signature(model.forward) == before
    assert "forward" not in vars(model)


def test_also_after_an_error_and_when_the_instance_had_its_own() -> None:
    model = Scaled()
    own = model.forward
    vars(model)["forward"] = own
    with pytest.raises(RuntimeError, match="stop"), explicit_keywords(model, ["scale"]):
        raise RuntimeError("stop")
    assert vars(model)["forward"] is own


def test_nothing_is_replaced_when_all_are_parameters() -> None:
    model = Scaled()
    with explicit_keywords(model, ["x"]):
        assert "forward" not in vars(model)


def test_another_method() -> None:
    class Two(Scaled):
        def encode(self, **more: Any) -> torch.Tensor:
            return more["x"]

    model = Two()
    with explicit_keywords(model, ["x"], "encode"):
        assert list(inspect.signature(model.encode).parameters) == ["x"]
        assert model.encode(x=1) == 1
    assert "encode" not in vars(model)
