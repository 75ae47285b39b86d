"""Which nodes draw random numbers."""

from typing import Any

import pytest
import torch
from torch import fx

from torchferry.converter.program.randomness import is_random

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("target", "args", "random"),
    [
        (aten.rand.default, ([2],), True),
        (aten.native_dropout.default, ("x", 0.5, True), True),
        (aten.native_dropout.default, ("x", 0.5, False), False),
        (aten.native_dropout.default, ("x", 0.0, True), False),
        (aten.scaled_dot_product_attention.default, ("x", "x", "x"), False),
        (aten.scaled_dot_product_attention.default, ("x", "x", "x", None, 0.5), True),
        (aten.add.Tensor, ("x", "x"), False),
    ],
)
def test_what_draws_random_numbers(target: Any, args: tuple[Any, ...], random: bool) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(target, tuple(x if arg == "x" else arg for arg in args))
    assert is_random(node) is random
