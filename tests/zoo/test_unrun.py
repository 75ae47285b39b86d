from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.values.flatten import flatten
from torchferry.zoo import build
from torchferry.zoo.tasks import input_sets
from torchferry.zoo.unrun import unrun_input_sets
from versions import at_least

pytestmark = pytest.mark.skipif(
    not at_least("transformers", "5.0"), reason="its masks ask for the values of others"
)


def described(value: Any) -> list[Any]:
    return [
        (path, leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else (path, leaf)
        for path, leaf in flatten(value)[0]
    ]


@pytest.mark.parametrize("name", ["tiny-llm", "bert", "vit"])
def test_the_sets_are_those_of_a_run_but_for_their_values(name: str) -> None:
    model = build(name).model
    made = unrun_input_sets(model)
    assert described(made) == described(input_sets(model))
    tensors = [leaf for _, leaf in flatten(made)[0] if isinstance(leaf, torch.Tensor)]
    assert all(type(tensor) is torch.Tensor for tensor in tensors)


def test_the_weights_are_not_read() -> None:
    model = build("tiny-llm").model
    for parameter in model.parameters():
        parameter.data = torch.full_like(parameter, float("nan"))
    assert len(unrun_input_sets(model)) == 3


def test_a_model_whose_shapes_hang_on_its_numbers_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build("tiny-llm").model

    class Decides(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    monkeypatch.setattr(model.model, "norm", Decides())
    with pytest.raises(UsageError, match=r"hangs on its numbers.*--inputs"):
        unrun_input_sets(model)
