from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchferry.compiler.weights import FrozenWeights, can_freeze


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(4, 6))


def test_the_same_tensors_are_unchanged() -> None:
    args = [parameter(), 3, parameter(), torch.ones(2)]
    weights = FrozenWeights([0, 2], args)
    assert set(weights.tensors) == {0, 2}
    assert weights.unchanged(args)
    assert weights.unchanged([args[0], 5, args[2], torch.zeros(1)])
    assert weights.owned(args)
    assert FrozenWeights([], []).unchanged([1, 2])


def in_place(tensor: Any) -> None:
    with torch.no_grad():
        tensor[0, 0] += 1


def through_data(tensor: Any) -> None:
    tensor.data.mul_(2)


def another_memory(tensor: Any) -> None:
    tensor.data = tensor.data.clone()


@pytest.mark.parametrize("change", [in_place, through_data, another_memory])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_change_is_noticed(change: Callable[[Any], None], dtype: torch.dtype) -> None:
    tensor = torch.nn.Parameter(torch.randn(4, 6).to(dtype))
    weights = FrozenWeights([0], [tensor])
    change(tensor)
    assert weights.owned([tensor])
    assert not weights.unchanged([tensor])


def one_row(tensor: Any) -> None:
    tensor.data[-3] = 5.0


def one_element(tensor: Any) -> None:
    tensor.numpy(force=True)[7, 5] = 5.0


@pytest.mark.parametrize("change", [one_row, one_element])
def test_a_small_tensor_is_compared_whole(change: Callable[[Any], None]) -> None:
    for tensor in (torch.randn(64, 64), torch.randn(64, 64).t(), torch.randn(64, 70)[:, 7:]):
        weights = FrozenWeights([0], [tensor])
        assert weights.unchanged([tensor])
        change(tensor)
        assert not weights.unchanged([tensor])


def test_a_part_of_a_large_tensor_is_noticed_if_it_is_large() -> None:
    tensor = torch.randn(300, 600)
    weights = FrozenWeights([0], [tensor])
    tensor.data[20:40] = 1.0
    assert not weights.unchanged([tensor])


def test_another_tensor_with_the_same_content_is_another() -> None:
    tensor = parameter()
    weights = FrozenWeights([0], [tensor])
    other = torch.nn.Parameter(tensor.detach())
    assert not weights.owned([other])
    assert not weights.unchanged([other])


@pytest.mark.parametrize(
    "tensor",
    [torch.randn(()), torch.randn(0, 3), torch.randn(3, 4).t(), torch.randn(3, 1).expand(3, 9),
     torch.randn(3, dtype=torch.complex64), torch.tensor([True, False])],
)  # fmt: skip
def test_tensors_of_every_kind(tensor: torch.Tensor) -> None:
    assert can_freeze(tensor)
    weights = FrozenWeights([0], [tensor])
    assert weights.unchanged([tensor])


def test_what_cannot_be_frozen() -> None:
    with torch.inference_mode():
        uncounted = torch.ones(2)
    assert not can_freeze(uncounted)
    assert not can_freeze(3)
    assert not can_freeze(torch.eye(2).to_sparse())
