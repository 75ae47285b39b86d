"""Writes to a copy that at some sizes is none: right, or refused there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import UsageError

Args = tuple[torch.Tensor, ...]


class Calling(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*(arg * 1 for arg in args))


def half_of_the_rows(x: torch.Tensor) -> torch.Tensor:
    x[::2].contiguous().mul_(3)
    return x


def some_columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[:, : y.shape[0]].contiguous().mul_(3)
    return x


def total(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A sum is its argument where nothing is to be summed."""
    x.sum_to_size(y.shape).add_(1)
    return x


def flat(x: torch.Tensor) -> torch.Tensor:
    x.t().flatten().mul_(3)
    return x


def first_column(x: torch.Tensor) -> torch.Tensor:
    """A view at every size."""
    x[:, :1].reshape(-1).mul_(3)
    return x


def of_a_product(x: torch.Tensor) -> torch.Tensor:
    """What a product gives is nobody's view, whatever it is a product of."""
    (x.t().contiguous() @ x).mul_(2).add_(1)
    return x


def rows(*sizes: int) -> Args:
    return tuple(torch.randn(size, 6) for size in sizes)


# recorded; where it is right; where it is refused
CASES: dict[Any, tuple[list[Args], list[Args], list[Args]]] = {
    half_of_the_rows: ([rows(5), rows(7)], [rows(4), rows(3)], [rows(1), rows(2)]),
    some_columns: (
        [(*rows(5), torch.ones(5)), (*rows(7), torch.ones(4))],
        [(*rows(2), torch.ones(3)), (*rows(3), torch.ones(1))],
        [(*rows(4), torch.ones(6)), (*rows(1), torch.ones(3))],
    ),
    total: ([rows(5, 1), rows(7, 1)], [rows(2, 1)], [rows(1, 1)]),
    flat: ([rows(5), rows(7)], [rows(2), rows(3)], [rows(1)]),
    first_column: ([rows(5), rows(7)], [rows(1), rows(2), rows(3)], []),
    of_a_product: ([rows(5), rows(7)], [rows(1), rows(2), rows(3)], []),
}


@pytest.mark.parametrize("function", CASES)
def test_it_is_right_or_refused(function: Any) -> None:
    recorded, right, refused = CASES[function]
    model = Calling(function).eval()
    program = tf.export(model, [(args, {}) for args in recorded], check=False)
    for args in right:
        torch.testing.assert_close(program(*args), model(*args))
    for args in refused:
        with pytest.raises(UsageError, match="its code does something else there"):
            program(*args)
