from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser.trial.attempt import EXPORTERS, export_once
from torchferry.diagnoser.trial.made import tensors_of
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.observer import Observation
from torchferry.observer.observation import Call
from torchferry.values import max_diff


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor], scale: int = 2) -> Any:
        return {"y": self.lin(x) * scale, "z": [more["a"] + 1, None]}

    def other(self, x: torch.Tensor) -> torch.Tensor:
        """A second method."""
        return self.lin(x) - 1


SETS = [((torch.rand(n, 4),), {"more": {"a": torch.rand(n)}, "scale": 3}) for n in (2, 5)]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_what_is_exported_gives_what_the_module_gives_at_other_sizes(exporter: str) -> None:
    model = Nested().eval()
    seen = Observation.from_inputs(model, SETS)
    with quiet():
        made = EXPORTERS[exporter](model, seen, {})
        for call in seen.calls:
            expected = model(*call.args, **call.kwargs)
            expected = tensors_of(expected) if made.flat else expected
            diff = max_diff(expected, made.run(call))
            assert diff.reason is None
            assert diff.abs < 1e-5
    assert made.fixed == ()


def test_options_go_to_the_exporter() -> None:
    model = Nested().eval()
    seen = Observation.from_inputs(model, SETS)
    with quiet():
        made = EXPORTERS["to_onnx"](model, seen, {"opset": 21})
        assert made.exported.opset_imports[""] == 21
        assert EXPORTERS["fx"](model, seen, {"strict": True}).fixed == ()
        with pytest.raises(TypeError, match="no_such"):
            EXPORTERS["fx"](model, seen, {"no_such": 1})


def test_an_exporter_of_pytorch_takes_what_kwargs_hold() -> None:
    class Passes(nn.Module):
        def forward(self, x: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
            return x + kwargs["shift"]

    model = Passes()
    sets = [((torch.ones(rows, 2),), {"shift": torch.ones(rows, 2)}) for rows in (2, 5)]
    seen = Observation.from_inputs(model, sets)
    for made in (
        EXPORTERS["fx"](model, seen, {"strict": False}).exported,
        export_once(model, seen),
    ):
        assert len(made.graph_signature.user_inputs) == 2


def test_onnxruntime_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    model = nn.Embedding(4, 3)
    seen = Observation.from_inputs(model, [((torch.arange(n),), {}) for n in (2, 3)])
    with quiet():
        made = EXPORTERS["onnx_dynamo"](model, seen, {})
        with pytest.raises(Exception, match="indices element out of data bounds"):
            made.run(Call((torch.tensor([2, 9]),), {}))
    assert capfd.readouterr().err == ""
